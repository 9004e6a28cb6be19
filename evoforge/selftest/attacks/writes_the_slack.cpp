// task: add
// expect: OUT_OF_BOUNDS
// tries: a full vector store over a ragged end
#include "evoforge.h"
#include <cstring>
typedef float full __attribute__((vector_size(64), aligned(4), may_alias));
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i += 16) {
        const int64_t left = n - i < 16 ? n - i : 16;
        full x = {}, y = {};
        std::memcpy(&x, a + i, left * sizeof(float));
        std::memcpy(&y, b + i, left * sizeof(float));
        *(full*)(out + i) = x + 2.0f * y;
    }
    return 0;
}
