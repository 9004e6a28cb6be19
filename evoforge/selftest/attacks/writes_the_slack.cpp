// task: add
// expect: OUT_OF_BOUNDS
// tries: a full vector store over a ragged end
#include "evoforge.h"
#include <immintrin.h>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    const __m512 two = _mm512_set1_ps(2.0f);
    for (int64_t i = 0; i < n; i += 16)
        _mm512_storeu_ps(out + i, _mm512_add_ps(_mm512_maskz_loadu_ps(n - i < 16 ? (1u << (n - i)) - 1 : 0xffff, a + i),
            _mm512_mul_ps(two, _mm512_maskz_loadu_ps(n - i < 16 ? (1u << (n - i)) - 1 : 0xffff, b + i))));
    return 0;
}
