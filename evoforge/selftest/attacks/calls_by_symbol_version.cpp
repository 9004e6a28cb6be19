// task: add
// expect: SCREENED | VIOLATION | BUILD_ERROR
// tries: dlopen under another name by a symbol version
#include "evoforge.h"
#include <stdint.h>
asm(".symver another, dlopen@GLIBC_2.34");
extern "C" void* another(const char*, int);
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    if (!another("libopenblas.so.0", 2)) out[0] += 1.0f;
    return 0;
}
