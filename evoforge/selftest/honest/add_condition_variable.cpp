// task: add
// expect: CORRECT
// tries: a thread that waits for a condition and is joined
#include "evoforge.h"
#include <condition_variable>
#include <mutex>
#include <thread>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    std::mutex lock;
    std::condition_variable ready;
    bool go = false;
    std::thread other([&] {
        std::unique_lock<std::mutex> held(lock);
        ready.wait(held, [&] { return go; });
        for (int64_t i = n / 2; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    });
    for (int64_t i = 0; i < n / 2; i++) out[i] = a[i] + 2.0f * b[i];
    { std::lock_guard<std::mutex> held(lock); go = true; }
    ready.notify_one();
    other.join();
    return 0;
}
