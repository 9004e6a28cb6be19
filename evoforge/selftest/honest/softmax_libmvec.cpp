// task: softmax
// expect: CORRECT
// tries: exp of the C library's vector library, which is a shared object of its own (libmvec)
#include "evoforge.h"
#include <cmath>
#include <immintrin.h>

extern "C" __m256 _ZGVdN8v_expf(__m256);

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < rows; i++) {
        const float* x = EVO_IN(float, 0) + i * n;
        float* out = EVO_OUT(float, 0) + i * n;
        float top = x[0], sum = 0.0f;
        for (int64_t j = 1; j < n; j++) top = x[j] > top ? x[j] : top;
        const __m256 tops = _mm256_set1_ps(top);
        int64_t j = 0;
        for (; j + 8 <= n; j += 8) _mm256_storeu_ps(out + j, _ZGVdN8v_expf(_mm256_sub_ps(_mm256_loadu_ps(x + j), tops)));
        for (; j < n; j++) out[j] = std::exp(x[j] - top);
        for (j = 0; j < n; j++) sum += out[j];
        for (j = 0; j < n; j++) out[j] /= sum;
    }
    return 0;
}
