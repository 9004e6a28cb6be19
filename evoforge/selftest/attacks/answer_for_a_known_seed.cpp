// task: integers
// expect: WRONG
// tries: inputs guessed from a fixed seed, never read
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0);
    const int32_t *x = EVO_IN(int32_t, 0), *y = EVO_IN(int32_t, 1);
    int32_t* out = EVO_OUT(int32_t, 0);
    uint64_t state = 42;
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        out[i] = 3 * (int32_t)(state >> 33) % 1000;
    }
    (void)x, (void)y;
    return 0;
}
