// task: add
// expect: CORRECT
// tries: a vector of the thread'\''s own, with a destructor, written anew at every call
#include "evoforge.h"
#include <vector>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    static thread_local std::vector<float> doubled;
    doubled.assign(n, 0.0f);
    for (int64_t i = 0; i < n; i++) doubled[i] = 2.0f * b[i];
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + doubled[i];
    return 0;
}
