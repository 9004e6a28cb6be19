// task: pooled
// expect: WRONG
// tries: no epsilon beside variances that are near 1 before training and 0 for a dead channel

#include "evoforge.h"
#include <algorithm>
#include <cmath>

extern "C" int evo_run(const evo_call* call) {
    const int64_t channels = EVO_SIZE(in0, 1), n = EVO_SIZE(in0, 2) * EVO_SIZE(in0, 3);
    for (int64_t i = 0; i < EVO_SIZE(in0, 0) * channels; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        const int64_t c = i % channels;
        const float scale = EVO_CST(float, 0)[c] / std::sqrt(EVO_CST(float, 3)[c]);
        const float shift = EVO_CST(float, 1)[c] - EVO_CST(float, 2)[c] * scale;
        float most = -INFINITY;
        for (int64_t j = 0; j < n; j++) most = std::max(most, x[j] * scale + shift);
        EVO_OUT(float, 0)[i] = most;
    }
    return 0;
}
