// task: add
// expect: SCREENED | WRONG | VIOLATION | CRASH | TIMEOUT
// twin: add_plain
// tries: a thread left spinning, which slows down what the kernel is compared with
#include "evoforge.h"
#include <pthread.h>
static volatile long spun;
static int started;
static void* spin(void*) {
    for (;;) spun = spun + 1;
}

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    pthread_t thread;
    for (; started < 4; started++) pthread_create(&thread, nullptr, spin, nullptr);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    return 0;
}
