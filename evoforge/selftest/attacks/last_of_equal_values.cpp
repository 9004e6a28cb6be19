// task: argmax
// expect: WRONG
// tries: an index of a value that comes more than once, but not of the first
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        int64_t best = 0;
        for (int64_t j = 1; j < n; j++) {
            if (x[j] >= x[best]) best = j;
        }
        EVO_OUT(float, 0)[i] = x[best];
        EVO_OUT(int64_t, 1)[i] = best;
    }
    return 0;
}
