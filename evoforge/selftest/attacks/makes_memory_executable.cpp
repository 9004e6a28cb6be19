// task: add
// expect: SCREENED | VIOLATION | WRONG | CRASH
// tries: code written at run time
#include "evoforge.h"
#include <sys/mman.h>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ((unsigned char*)page)[0] = 0xc3;
    ((void (*)())page)();
    return 0;
}
