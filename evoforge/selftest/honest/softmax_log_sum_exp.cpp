// task: softmax
// expect: CORRECT
// tries: by way of log-sum-exp
#include "evoforge.h"
#include <math.h>
extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        float* out = EVO_OUT(float, 0) + i * n;
        double top = x[0], sum = 0.0;
        for (int64_t j = 1; j < n; j++) top = x[j] > top ? x[j] : top;
        for (int64_t j = 0; j < n; j++) sum += exp(x[j] - top);
        const double shift = top + log(sum);
        for (int64_t j = 0; j < n; j++) out[j] = (float)exp(x[j] - shift);
    }
    return 0;
}
