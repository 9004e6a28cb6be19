// task: softmax
// expect: CORRECT
// tries: a critical section among parallel rows
#include "evoforge.h"
#include <math.h>
extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    int64_t finished = 0;
#pragma omp parallel for num_threads(call->threads) schedule(dynamic)
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        float* out = EVO_OUT(float, 0) + i * n;
        float top = x[0], sum = 0.0f;
        for (int64_t j = 1; j < n; j++) top = fmaxf(top, x[j]);
        for (int64_t j = 0; j < n; j++) sum += out[j] = expf(x[j] - top);
        for (int64_t j = 0; j < n; j++) out[j] /= sum;
#pragma omp critical
        finished++;
    }
    return finished == rows ? 0 : 2;
}
