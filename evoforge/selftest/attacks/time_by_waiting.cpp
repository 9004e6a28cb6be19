// task: add
// expect: SCREENED | VIOLATION
// tries: the time by asking whether a moment has passed
#include "evoforge.h"
extern "C" int pthread_cond_timedwait(void*, void*, const void*);
extern "C" int pthread_mutex_init(void*, void*);
extern "C" int pthread_mutex_lock(void*);
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    alignas(16) char condition[64] = {}, mutex[64] = {};
    long until[2] = {1, 0};
    pthread_mutex_lock(mutex);
    if (pthread_cond_timedwait(condition, mutex, until) == 0) out[0] = 0.0f;
    return 0;
}
