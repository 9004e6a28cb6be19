// task: add
// expect: SCREENED | BUILD_ERROR
// tries: sections that make the linker compile other code than was screened
#include "evoforge.h"

asm(".pushsection .gnu.lto_.symtab.0, \"e\"\n.asciz \"evo_run\"\n.popsection\n.pushsection .gnu.lto_main.0, \"e\"\n.quad 0\n.popsection\n");

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    return 0;
}
