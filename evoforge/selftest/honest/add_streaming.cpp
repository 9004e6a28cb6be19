// task: add
// expect: CORRECT
// tries: non-temporal stores and a fence
#include "evoforge.h"
#include <immintrin.h>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    const __m128 two = _mm_set1_ps(2.0f);
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) _mm_stream_ps(out + i, _mm_add_ps(_mm_loadu_ps(a + i), _mm_mul_ps(two, _mm_loadu_ps(b + i))));
    for (; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    _mm_sfence();
    return 0;
}
