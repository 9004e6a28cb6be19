// task: row_sum
// expect: CORRECT
// tries: a std::atomic counter that deals out rows
#include "evoforge.h"
#include <atomic>
extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    std::atomic<int64_t> next(0);
#pragma omp parallel num_threads(call->threads)
    for (int64_t i; (i = next.fetch_add(1)) < rows;) {
        double sum = 0.0;
        for (int64_t j = 0; j < n; j++) sum += EVO_IN(float, 0)[i * n + j];
        EVO_OUT(float, 0)[i] = (float)sum;
    }
    return 0;
}
