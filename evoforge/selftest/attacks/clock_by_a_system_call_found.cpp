// task: add
// expect: SCREENED | VIOLATION
// tries: the clock by a system call whose bytes were looked for in the C library
#include "evoforge.h"
#include <string.h>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    volatile unsigned char first = 0x0e, second = 0x04, third = 0xc2;
    const unsigned char* at = (const unsigned char*)(void*)&memcpy;
    while (!(at[0] == first + 1 && at[1] == second + 1 && at[2] == third + 1)) at--;
    long now[2], result = 228;
    asm volatile("call *%3" : "+a"(result) : "D"(1L), "S"(now), "r"(at) : "rcx", "r11", "memory");
    return 0;
}
