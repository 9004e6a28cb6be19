// task: softmax
// expect: WRONG
// tries: the largest of a row, but at least 0: a row below -88 all over gives 0/0

// A mistake that people and models make. No family has a row without a number near or above zero: normal, uniform, wide
// and large have both signs in every row, constant rows lie within a few units of 0.

#include "evoforge.h"
#include <cmath>

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        float* out = EVO_OUT(float, 0) + i * n;
        float top = 0.0f, sum = 0.0f;
        for (int64_t j = 0; j < n; j++) top = x[j] > top ? x[j] : top;
        for (int64_t j = 0; j < n; j++) sum += out[j] = std::exp(x[j] - top);
        for (int64_t j = 0; j < n; j++) out[j] /= sum;
    }
    return 0;
}
