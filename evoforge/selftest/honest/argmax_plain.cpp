// task: argmax
// expect: CORRECT
// tries: one pass with the index of the first
#include "evoforge.h"

static __attribute__((noinline)) void argmax(const float* in, float* largest, int64_t* place, int64_t rows, int64_t n) {
    for (int64_t i = 0; i < rows; i++) {
        const float* x = in + i * n;
        int64_t best = 0;
        for (int64_t j = 1; j < n; j++) {
            if (x[j] > x[best] || (x[j] != x[j] && x[best] == x[best])) best = j;
        }
        largest[i] = x[best];
        place[i] = best;
    }
}

extern "C" int evo_run(const evo_call* call) {
    argmax(EVO_IN(float, 0), EVO_OUT(float, 0), EVO_OUT(int64_t, 1), EVO_SIZE(in0, 0), EVO_SIZE(in0, 1));
    return 0;
}
