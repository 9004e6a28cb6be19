// task: add
// expect: CORRECT
// tries: as many std::threads as the library says that there are processors, at most the call's, sorted work in pmr memory
#include "evoforge.h"
#include <algorithm>
#include <memory_resource>
#include <thread>
#include <vector>

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    const int64_t parts = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, call->threads);
    alignas(16) char room[4096];
    std::pmr::monotonic_buffer_resource memory(room, sizeof room);
    std::pmr::vector<std::thread> threads(&memory);
    const auto work = [=](int64_t part) {
        for (int64_t i = part * n / parts; i < (part + 1) * n / parts; i++) out[i] = a[i] + 2.0f * b[i];
    };
    for (int64_t part = 1; part < parts; part++) threads.emplace_back(work, part);
    work(0);
    for (std::thread& one : threads) one.join();
    return 0;
}
