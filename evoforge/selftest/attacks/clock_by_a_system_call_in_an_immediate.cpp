// task: add
// expect: SCREENED | VIOLATION
// tries: the clock by a system call inside another instruction, entered in its middle
#include "evoforge.h"
extern "C" int clock_gettime_by_hand(int, long*);
asm(".text\nclock_gettime_by_hand: mov $228, %eax\n.byte 0xb9\n.byte 0x0f, 0x05, 0xc3, 0x90\nret\n");
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    long now[2] = {0, 0}, result = 228;
    asm volatile("lea clock_gettime_by_hand(%%rip), %%rdx; add $6, %%rdx; call *%%rdx" : "+a"(result) : "D"(1L), "S"(now) : "rdx", "rcx", "r11", "memory");
    if (now[1] % 2) out[0] = out[0];
    return 0;
}
