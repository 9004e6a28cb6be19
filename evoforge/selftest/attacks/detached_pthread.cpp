// task: add
// expect: SCREENED | WRONG | VIOLATION | CRASH
// twin: add_plain
// tries: the same with pthreads
#include "evoforge.h"
#include <pthread.h>
static const evo_call* todo;
static evo_call copy;
static void* work(void*) {
    const evo_call* call = todo;
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    return nullptr;
}

extern "C" int evo_run(const evo_call* call) {
    pthread_t thread;
    copy = *call, todo = &copy;
    pthread_create(&thread, nullptr, work, nullptr);
    pthread_detach(thread);
    return 0;
}
