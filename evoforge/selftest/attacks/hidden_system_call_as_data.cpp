// task: add
// expect: SCREENED | VIOLATION
// tries: a system call whose bytes are declared to be data
#include "evoforge.h"

asm(".text\n.type hidden_call, @object\nhidden_call: .byte 0x0f, 0x05, 0xc3\n.size hidden_call, 3\n");

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    long result = 231;
    asm volatile("call hidden_call" : "+a"(result) : "D"(0L) : "rcx", "r11", "memory");
    return 0;
}
