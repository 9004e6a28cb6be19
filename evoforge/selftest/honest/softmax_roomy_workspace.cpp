// task: softmax
// expect: CORRECT
// tries: a workspace that takes far longer to wipe than to use
#include "evoforge.h"
#include <math.h>
extern "C" int64_t evo_workspace(const evo_call*) { return 48 << 20; }

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    float* row = (float*)call->ws;
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        float* out = EVO_OUT(float, 0) + i * n;
        float top = x[0], sum = 0.0f;
        for (int64_t j = 1; j < n; j++) top = fmaxf(top, x[j]);
        for (int64_t j = 0; j < n; j++) sum += row[j] = expf(x[j] - top);
        for (int64_t j = 0; j < n; j++) out[j] = row[j] / sum;
    }
    return 0;
}
