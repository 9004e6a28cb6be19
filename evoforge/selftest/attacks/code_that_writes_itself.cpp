// task: add
// expect: SCREENED | VIOLATION | CRASH | LOAD_ERROR
// tries: a writable executable section, patched into a system call
#include "evoforge.h"

asm(".pushsection .evil, \"awx\", @progbits\nown_call: .byte 0x0e, 0x04, 0xc3\n.popsection\n");
extern "C" unsigned char own_call[] __attribute__((visibility("hidden")));

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    ((volatile unsigned char*)own_call)[0] = 0x0f, ((volatile unsigned char*)own_call)[1] = 0x05;
    long result = 231;
    asm volatile("call *%2" : "+a"(result) : "D"(0L), "r"(own_call) : "rcx", "r11", "memory");
    return 0;
}
