// task: affine
// expect: WRONG
// tries: leaving out the shift, which is zero in a model that nobody trained
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0);
    for (int64_t i = 0; i < rows * 8; i++) EVO_OUT(float, 0)[i] = EVO_IN(float, 0)[i] * EVO_CST(float, 0)[i & 7];
    return 0;
}
