// task: add
// expect: CORRECT
// tries: pthreads, joined before it returns
#include "evoforge.h"
#include <pthread.h>
struct part {
    const float *a, *b;
    float* out;
    int64_t from, to;
};
static void* work(void* data) {
    const part* it = (const part*)data;
    for (int64_t i = it->from; i < it->to; i++) it->out[i] = it->a[i] + 2.0f * it->b[i];
    return nullptr;
}

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    part halves[2] = {{a, b, out, 0, n / 2}, {a, b, out, n / 2, n}};
    pthread_t thread;
    if (pthread_create(&thread, nullptr, work, &halves[1])) return 2;
    work(&halves[0]);
    pthread_join(thread, nullptr);
    return 0;
}
