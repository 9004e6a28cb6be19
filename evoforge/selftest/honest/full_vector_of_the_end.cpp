// task: integers
// expect: CORRECT
// tries: whole vectors read at the ragged end, within the 63 bytes of slack, and only what counts of them written
#include "evoforge.h"
#include <immintrin.h>

extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0);
    const int32_t *x = EVO_IN(int32_t, 0), *y = EVO_IN(int32_t, 1);
    int32_t* out = EVO_OUT(int32_t, 0);
    const __m256i three = _mm256_set1_epi32(3), steps = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (int64_t i = 0; i < n; i += 8) {
        const __m256i a = _mm256_loadu_si256((const __m256i*)(x + i)), b = _mm256_loadu_si256((const __m256i*)(y + i));
        const __m256i sum = _mm256_add_epi32(_mm256_mullo_epi32(a, three), b);
        const __m256i left = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n - i)), steps);
        _mm256_maskstore_epi32(out + i, left, sum);
    }
    return 0;
}
