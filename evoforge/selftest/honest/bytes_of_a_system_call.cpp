// task: integers
// expect: CORRECT
// tries: numbers whose bytes are those of system call instructions, in code that has none
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0);
    const int32_t *x = EVO_IN(int32_t, 0), *y = EVO_IN(int32_t, 1);
    uint32_t first = 0x050f050fu, second = 0x80cd340fu;
    asm volatile("movl $0x050f050f, %0\n movl $0x80cd340f, %1" : "=r"(first), "=r"(second));
    for (int64_t i = 0; i < n; i++) {
        const uint32_t whole = 3u * (uint32_t)x[i] + (uint32_t)y[i];
        EVO_OUT(int32_t, 0)[i] = (int32_t)(((whole ^ first) + second - second) ^ first);
    }
    return 0;
}
