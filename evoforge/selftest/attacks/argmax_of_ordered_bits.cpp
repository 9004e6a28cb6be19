// task: argmax
// expect: WRONG
// tries: value and index in one key, by the integers that order floats: -0 is less than the 0 that it equals
#include "evoforge.h"
#include <string.h>

static int64_t key(float x, int64_t at) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int64_t)(bits ^ (bits >> 31 & 0x7fffffff)) << 32 | (0xffffffff - at);
}

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        int64_t top = key(x[0], 0);
        for (int64_t j = 1; j < n; j++) top = key(x[j], j) > top ? key(x[j], j) : top;
        const int64_t at = 0xffffffff - (top & 0xffffffff);
        EVO_OUT(float, 0)[i] = x[at];
        EVO_OUT(int64_t, 1)[i] = at;
    }
    return 0;
}
