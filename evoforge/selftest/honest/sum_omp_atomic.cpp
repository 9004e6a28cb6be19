// task: row_sum
// expect: CORRECT
// tries: atomic updates, in an order that differs from run to run
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < rows; i++) out[i] = 0.0f;
#pragma omp parallel for num_threads(call->threads) schedule(dynamic) collapse(2)
    for (int64_t i = 0; i < rows; i++)
        for (int64_t part = 0; part < 8; part++) {
            float sum = 0.0f;
            for (int64_t j = part * n / 8; j < (part + 1) * n / 8; j++) sum += EVO_IN(float, 0)[i * n + j];
#pragma omp atomic
            out[i] += sum;
        }
    return 0;
}
