// task: pooled
// expect: WRONG
// tries: the largest of a plane, but at least 0: of planes one seldom lies below 0 all over

#include "evoforge.h"
#include <algorithm>
#include <cmath>

extern "C" int evo_run(const evo_call* call) {
    const int64_t channels = EVO_SIZE(in0, 1), n = EVO_SIZE(in0, 2) * EVO_SIZE(in0, 3);
    for (int64_t i = 0; i < EVO_SIZE(in0, 0) * channels; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        const int64_t c = i % channels;
        const float scale = EVO_CST(float, 0)[c] / std::sqrt(EVO_CST(float, 3)[c] + 1e-5f);
        const float shift = EVO_CST(float, 1)[c] - EVO_CST(float, 2)[c] * scale;
        float most = 0.0f;
        for (int64_t j = 0; j < n; j++) most = std::max(most, x[j] * scale + shift);
        EVO_OUT(float, 0)[i] = most;
    }
    return 0;
}
