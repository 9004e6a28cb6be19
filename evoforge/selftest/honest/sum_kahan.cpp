// task: row_sum
// expect: CORRECT
// tries: Kahan's compensated sum
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        volatile float sum = 0.0f, lost = 0.0f;
        for (int64_t j = 0; j < n; j++) {
            volatile float value = x[j] - lost, next = sum + value;
            lost = (next - sum) - value;
            sum = next;
        }
        EVO_OUT(float, 0)[i] = sum;
    }
    return 0;
}
