// task: row_sum
// expect: CORRECT
// tries: std::accumulate in double
#include "evoforge.h"
#include <numeric>
extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        EVO_OUT(float, 0)[i] = (float)std::accumulate(x, x + n, 0.0);
    }
    return 0;
}
