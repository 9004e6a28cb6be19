// task: add
// expect: CORRECT
// tries: the rounding mode set and restored, a number read from text
#include "evoforge.h"
#include <cfenv>
#include <stdlib.h>
#include <string.h>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    char text[32];
    strcpy(text, "2.0");
    const int mode = fegetround();
    fesetround(FE_TONEAREST);
    const float factor = strtof(text, nullptr);
    fesetround(mode);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + factor * b[i];
    return 0;
}
