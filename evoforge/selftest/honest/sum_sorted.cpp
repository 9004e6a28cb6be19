// task: row_sum
// expect: CORRECT
// tries: smallest first, after std::sort
#include "evoforge.h"
#include <algorithm>
#include <vector>
extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        std::vector<float> sorted(x, x + n);
        std::sort(sorted.begin(), sorted.end(), [](float a, float b) { return (a < 0 ? -a : a) < (b < 0 ? -b : b); });
        double sum = 0.0;
        for (float value : sorted) sum += value;
        EVO_OUT(float, 0)[i] = (float)sum;
    }
    return 0;
}
