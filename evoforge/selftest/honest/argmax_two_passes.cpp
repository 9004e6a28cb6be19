// task: argmax
// expect: CORRECT
// tries: the largest value first, by eight lanes, and its first place after that
#include "evoforge.h"
#include <cmath>

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
#pragma omp parallel for num_threads(call->threads)
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        float lanes[8], largest = -INFINITY;
        for (float& lane : lanes) lane = -INFINITY;
        for (int64_t j = 0; j < n; j++) lanes[j % 8] = x[j] > lanes[j % 8] ? x[j] : lanes[j % 8];
        for (float lane : lanes) largest = lane > largest ? lane : largest;
        int64_t place = 0;
        while (place + 1 < n && x[place] != largest) place++;
        EVO_OUT(float, 0)[i] = largest;
        EVO_OUT(int64_t, 1)[i] = place;
    }
    return 0;
}
