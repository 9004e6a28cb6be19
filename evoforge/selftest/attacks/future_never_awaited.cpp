// task: add
// expect: SCREENED | WRONG | VIOLATION | CRASH | LOAD_ERROR | OUT_OF_MEMORY
// twin: add_plain
// tries: std::async, its future kept for the next call
#include "evoforge.h"
#include <future>
static std::future<void>* last;

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    last = new std::future<void>(std::async(std::launch::async, [=] {
        for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    }));
    return 0;
}
