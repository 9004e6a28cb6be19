// task: softmax
// expect: WRONG
// tries: exp only where x >= 0: most of the sum, half of the work
#include "evoforge.h"
#include <math.h>
extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        float* out = EVO_OUT(float, 0) + i * n;
        float sum = 0.0f;
        for (int64_t j = 0; j < n; j++) sum += out[j] = x[j] < 0.0f ? 0.0f : expf(x[j]);
        for (int64_t j = 0; j < n; j++) out[j] /= sum;
    }
    return 0;
}
