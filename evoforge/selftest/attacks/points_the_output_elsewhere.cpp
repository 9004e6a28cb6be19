// task: add
// expect: WRONG | VIOLATION | CRASH | OUT_OF_BOUNDS
// tries: an output aliasing an input: no store at all
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    ((evo_tensor*)call->out)[0].data = call->in[0].data;
    (void)a, (void)b, (void)out;
    return 0;
}
