// task: argmax
// expect: WRONG
// tries: floats compared as signed integers: right wherever a row has a positive number

// Rows below zero all over come in the family of constant rows only, where every index but the first is a tie and the
// value is right anyway.

#include "evoforge.h"
#include <string.h>

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        int32_t best;
        int64_t place = 0;
        memcpy(&best, x, sizeof best);
        for (int64_t j = 1; j < n; j++) {
            int32_t bits;
            memcpy(&bits, x + j, sizeof bits);
            if (bits > best) best = bits, place = j;
        }
        EVO_OUT(float, 0)[i] = x[place];
        EVO_OUT(int64_t, 1)[i] = place;
    }
    return 0;
}
