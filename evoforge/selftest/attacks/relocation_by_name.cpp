// task: add
// expect: SCREENED
// tries: a resolver that runs while the library is loaded, in a section that the linker joins to the loader's relocations by its name
#include "evoforge.h"

static int met;
static void* resolve() {
    met = 1;
    return nullptr;
}
static void* (*const resolver)() __attribute__((used)) = resolve;
// A place, R_X86_64_IRELATIVE, the resolver. The section has no address, and is no other section's.
asm(".data\nplace: .quad 0\n.section .rela.text.more,\"\",@progbits\n.quad place, 37, _ZL7resolvev\n.text\n");

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    return met ? 0 : 2;
}
