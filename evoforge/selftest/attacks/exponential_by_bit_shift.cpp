// task: softmax
// expect: WRONG
// tries: Schraudolph's exp: one multiplication
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        float* out = EVO_OUT(float, 0) + i * n;
        float top = x[0], sum = 0.0f;
        for (int64_t j = 1; j < n; j++) top = x[j] > top ? x[j] : top;
        for (int64_t j = 0; j < n; j++) {
            float z = x[j] - top;
            int32_t bits = (int32_t)(12102203.0f * (z < -80.0f ? -80.0f : z)) + 1064866805;
            __builtin_memcpy(&out[j], &bits, 4);
            sum += out[j];
        }
        for (int64_t j = 0; j < n; j++) out[j] /= sum;
    }
    return 0;
}
