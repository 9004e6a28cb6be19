// task: add
// expect: SCREENED | CRASH | VIOLATION
// tries: a library function replaced in the global offset table
#include "evoforge.h"
#include <string.h>
extern "C" void* _GLOBAL_OFFSET_TABLE_[] __attribute__((visibility("hidden")));

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    for (int k = 0; k < 8; k++) ((void* volatile*)_GLOBAL_OFFSET_TABLE_)[k] = (void*)&memcpy;
    memcpy(out, out, (size_t)(n & 1));
    return 0;
}
