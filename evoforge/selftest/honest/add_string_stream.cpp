// task: add
// expect: CORRECT
// tries: a number written to a string stream and read back
#include "evoforge.h"
#include <sstream>

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    std::stringstream text;
    float two = 0.0f;
    text << 2.0f;
    text >> two;
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + two * b[i];
    return 0;
}
