// task: row_sum
// expect: CORRECT
// tries: Kahan's compensated sum
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        float sum = 0.0f, lost = 0.0f;
        for (int64_t j = 0; j < n; j++) {
            const float value = x[j] - lost;
            float next = sum + value;
            asm volatile("" : "+x"(next));  // the compiler may reorder sums, and would find nothing lost
            float gained = next - sum;
            asm volatile("" : "+x"(gained));
            lost = gained - value;
            sum = next;
        }
        EVO_OUT(float, 0)[i] = sum;
    }
    return 0;
}
