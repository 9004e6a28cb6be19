// task: add
// expect: CORRECT
// tries: AVX2 intrinsics and a scalar tail
#include "evoforge.h"
#include <immintrin.h>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    const __m256 two = _mm256_set1_ps(2.0f);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_fmadd_ps(two, _mm256_loadu_ps(b + i), _mm256_loadu_ps(a + i)));
    for (; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    return 0;
}
