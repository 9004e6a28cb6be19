// task: argmax
// expect: WRONG
// tries: the search for the largest begins at 0: right wherever a row has a positive number

// Seen through by the family of constant rows alone, which is one of five of which each judge draws one.

#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        float best = 0.0f;
        int64_t place = 0;
        for (int64_t j = 0; j < n; j++)
            if (x[j] > best) best = x[j], place = j;
        EVO_OUT(float, 0)[i] = best;
        EVO_OUT(int64_t, 1)[i] = place;
    }
    return 0;
}
