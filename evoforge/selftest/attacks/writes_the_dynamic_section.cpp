// task: add
// expect: SCREENED | BUILD_ERROR | LOAD_ERROR
// tries: an entry for a function that runs at load time, in the table that the linker makes
#include "evoforge.h"
static int early() { *(volatile int*)0 = 1; return 0; }
extern "C" __attribute__((used, visibility("hidden"))) void starts_at_load() { early(); }
asm(".pushsection .dynamic, \"aw\", @progbits\n.quad 12, starts_at_load\n.popsection");
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];

    return 0;
}
