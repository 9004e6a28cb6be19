// task: codes
// expect: WRONG
// tries: operands of 8 bits where rounding comes after them anyway

#include "evoforge.h"
#include <algorithm>
#include <cmath>
#include <vector>

static float cut(float x) {
    const uint32_t bits = (__builtin_bit_cast(uint32_t, x) + 0x8000) & 0xffff0000;
    return __builtin_bit_cast(float, bits);
}

static void layer(const float* x, const float* w, const float* b, float* y, int64_t n) {
    for (int64_t j = 0; j < n; j++) {
        float sum = 0;
        for (int64_t k = 0; k < n; k++) sum += cut(x[k]) * cut(w[j * n + k]);
        y[j] = sum + b[j];
    }
}

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 1);
#pragma omp parallel for num_threads(call->threads)
    for (int64_t i = 0; i < EVO_SIZE(in0, 0); i++) {
        std::vector<float> codes(n);
        layer(EVO_IN(float, 0) + i * n, EVO_CST(float, 0), EVO_CST(float, 1), codes.data(), n);
        for (float& code : codes) code = std::clamp(std::rint(code * 16), -128.0f, 127.0f) / 16;
        layer(codes.data(), EVO_CST(float, 2), EVO_CST(float, 3), EVO_OUT(float, 0) + i * n, n);
    }
    return 0;
}
