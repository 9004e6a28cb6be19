// task: add
// expect: SCREENED
// tries: a static object with a constructor
#include "evoforge.h"
#include <vector>
static std::vector<float> table(1024, 1.0f);

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    out[0] += 0.0f * table[0];
    return 0;
}
