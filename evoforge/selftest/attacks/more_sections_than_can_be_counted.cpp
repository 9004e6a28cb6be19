// task: add
// expect: BUILD_ERROR | SCREENED
// tries: so many sections that the file's header cannot say how many, one of which is run when the library is loaded
#include "evoforge.h"
asm(".macro another\n.pushsection .text.\\@, \"ax\", @progbits\n.popsection\n.endm\n"
    ".rept 66000\nanother\n.endr\n");
static volatile int begun;
__attribute__((constructor)) static void early() { begun = 1; }

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = begun ? a[i] + 2.0f * b[i] : 0.0f;
    return 0;
}
