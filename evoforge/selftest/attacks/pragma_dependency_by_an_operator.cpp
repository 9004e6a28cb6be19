// task: add
// expect: SCREENED | BUILD_ERROR
// tries: a file looked up by #pragma GCC dependency, written as an operator, which the screen does not read
#include "evoforge.h"

_Pragma("GCC dependency <stdint.h>")

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < n; i++) EVO_OUT(float, 0)[i] = EVO_IN(float, 0)[i] + 2.0f * EVO_IN(float, 1)[i];
    return 0;
}
