// task: add
// expect: OUT_OF_MEMORY | CRASH | TIMEOUT
// tries: all of the memory
#include "evoforge.h"
#include <stdlib.h>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int k = 0; k < 4096; k++) {
        volatile char* block = (char*)malloc(64 << 20);
        for (int64_t at = 0; at < 64 << 20; at += 4096) block[at] = 1;
    }
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    return 0;
}
