// task: add
// expect: SCREENED
// tries: a system call whose bytes are a distance, which only the linker writes
#include "evoforge.h"

// What `far_` is away from the four bytes that say so: 0x0000050f, the first two of which are the instruction.
asm(".section .text.first,\"ax\"\nask: mov $201, %eax\n xor %edi, %edi\n.long far_ - .\n ret\n.skip 0x50a\n"
    ".section .text.second,\"ax\"\nfar_: ret\n.text\n");

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    long time;
    asm volatile("call ask" : "=a"(time) : : "rdi", "rcx", "r11", "memory");
    return time == 0;
}
