// task: group_norm
// expect: WRONG
// tries: the variance as the mean of the squares less the square of the mean, of which far from 0 nothing is left

#include "evoforge.h"
#include <cmath>

extern "C" int evo_run(const evo_call* call) {
    const int64_t groups = 4, each = EVO_SIZE(in0, 1) / groups, plane = EVO_SIZE(in0, 2) * EVO_SIZE(in0, 3);
    const int64_t n = each * plane;
    for (int64_t g = 0; g < EVO_SIZE(in0, 0) * groups; g++) {
        const float* x = EVO_IN(float, 0) + g * n;
        float* out = EVO_OUT(float, 0) + g * n;
        float mean = 0.0f, squares = 0.0f;
        for (int64_t i = 0; i < n; i++) mean += x[i], squares += x[i] * x[i];
        mean /= n;
        const float rate = 1.0f / std::sqrt(squares / n - mean * mean + 1e-5f);
        for (int64_t c = 0; c < each; c++) {
            const int64_t channel = g % groups * each + c;
            const float scale = EVO_CST(float, 0)[channel] * rate, shift = EVO_CST(float, 1)[channel];
            for (int64_t i = c * plane; i < (c + 1) * plane; i++) out[i] = (x[i] - mean) * scale + shift;
        }
    }
    return 0;
}
