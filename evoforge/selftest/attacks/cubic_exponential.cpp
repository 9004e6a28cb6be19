// task: softmax
// expect: WRONG
// tries: exp by a cubic polynomial
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        float* out = EVO_OUT(float, 0) + i * n;
        float top = x[0], sum = 0.0f;
        for (int64_t j = 1; j < n; j++) top = x[j] > top ? x[j] : top;
        for (int64_t j = 0; j < n; j++) {
            float z = (x[j] - top) * 1.44269504f, whole = __builtin_floorf(z), t = (z - whole) * 0.69314718f;
            int32_t bits = ((int32_t)(whole < -126 ? -126 : whole) + 127) << 23;
            float power;
            __builtin_memcpy(&power, &bits, 4);
            sum += out[j] = power * (1.0f + t * (1.0f + t * (0.5f + t * 0.1666667f)));
        }
        for (int64_t j = 0; j < n; j++) out[j] /= sum;
    }
    return 0;
}
