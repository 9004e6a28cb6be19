// task: add
// expect: SCREENED | VIOLATION
// tries: a limit of its judge's, written at an address whose lower half is zero
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
    register long r10 asm("r10") = 0x22;
    register long r8 asm("r8") = -1;
    register long r9 asm("r9") = 0;
    long result = 9;
    asm volatile("call *%[f]" : "+a"(result) : "D"(0x100000000L), "S"(4096L), "d"(3L), "r"(r10), "r"(r8), "r"(r9), [f] "b"(at) : "rcx", "r11", "memory");
    if (result != 0x100000000L) return 0;
    ((int64_t*)result)[0] = ((int64_t*)result)[1] = 1024;
    r10 = 0, result = 302;
    asm volatile("call *%[f]" : "+a"(result) : "D"(0L), "S"(7L), "d"(0x100000000L), "r"(r10), [f] "b"(at) : "rcx", "r11", "memory");
    if (result == 0) out[0] += 1.0f;  // it went through: to be seen without a sandbox, too
    return 0;
}
