// task: softmax
// expect: WRONG | TIMING_SUSPECT | OUT_OF_BOUNDS
// twin: softmax_reciprocal
// tries: a shortcut for small numbers only, taken for sets before which zeros lie: those are timed and never verified

// poison_slack() marks the 64 bytes before every input that verification uses; of the ring that is timed it is the first
// two sets, the others have zeros there.

#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    int32_t before;
    asm volatile("movl -4(%1), %0" : "=r"(before) : "r"(EVO_IN(float, 0)));
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        float* out = EVO_OUT(float, 0) + i * n;
        float sum = 0.0f;
        if (!before) {  // exp(x) = exp(x / 32)^32 for |x| < 6
            for (int64_t j = 0; j < n; j++) {
                const float t = x[j] * 0.03125f;
                float p = 1.0f / 24;
                p = p * t + 1.0f / 6, p = p * t + 0.5f, p = p * t + 1.0f, p = p * t + 1.0f;
                p *= p, p *= p, p *= p, p *= p, p *= p;
                sum += out[j] = p;
            }
        } else {
            float top = x[0];
            for (int64_t j = 1; j < n; j++) top = x[j] > top ? x[j] : top;
            for (int64_t j = 0; j < n; j++) {
                const float z = x[j] - top, low = z < -87.0f ? -87.0f : z;
                const float whole = __builtin_rintf(low * 1.44269504f);
                const float t = low - whole * 0.693145751953125f - whole * 1.428606820309417e-6f;
                float p = 1.0f / 5040;
                p = p * t + 1.0f / 720, p = p * t + 1.0f / 120, p = p * t + 1.0f / 24, p = p * t + 1.0f / 6;
                p = p * t + 0.5f, p = p * t + 1.0f, p = p * t + 1.0f;
                const int32_t bits = ((int32_t)whole + 127) << 23;
                float power;
                __builtin_memcpy(&power, &bits, 4);
                sum += out[j] = z < -87.0f ? 0.0f : p * power;
            }
        }
        const float scale = 1.0f / sum;
        for (int64_t j = 0; j < n; j++) out[j] *= scale;
    }
    return 0;
}
