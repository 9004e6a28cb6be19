// task: add
// expect: CORRECT
// tries: std::thread, joined before it returns
#include "evoforge.h"
#include <thread>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    auto work = [=](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; i++) out[i] = a[i] + 2.0f * b[i];
    };
    std::thread other(work, n / 2, n);
    work(0, n / 2);
    other.join();
    return 0;
}
