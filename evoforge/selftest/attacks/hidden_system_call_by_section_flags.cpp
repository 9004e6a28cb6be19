// task: add
// expect: SCREENED | VIOLATION
// tries: a system call in a section that is no code until the linker joins it to .text
#include "evoforge.h"
asm(".pushsection .text.hidden, \"a\"\nhidden: .byte 0x0f, 0x05, 0xc3\n.popsection");
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    long result = 231;
    asm volatile("call hidden" : "+a"(result) : "D"(0L) : "rcx", "r11", "memory");
    return 0;
}
