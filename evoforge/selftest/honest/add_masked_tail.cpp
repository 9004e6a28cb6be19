// task: add
// expect: CORRECT
// tries: masked loads and stores where the machine has them
#include "evoforge.h"
#include <immintrin.h>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    int64_t i = 0;
#ifdef __AVX512F__
    const __m512 two = _mm512_set1_ps(2.0f);
    for (; i < n; i += 16) {
        const __mmask16 mask = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1) : (__mmask16)0xffff;
        const __m512 sum = _mm512_fmadd_ps(two, _mm512_maskz_loadu_ps(mask, b + i), _mm512_maskz_loadu_ps(mask, a + i));
        _mm512_mask_storeu_ps(out + i, mask, sum);
    }
#endif
    for (; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    return 0;
}
