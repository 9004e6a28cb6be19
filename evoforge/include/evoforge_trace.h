// For the traced build only (evaluation/facts/trace.py): put in front of a kernel with -include.
// The compiler's address instrumentation sees ordinary loads and stores. It does not see the memory
// operands of builtins: masked, streaming and gathering intrinsics, software prefetch, and the copies
// of the C library. Their names are given to functions that report the access first.
#pragma once
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

extern "C" {
void evo_trace_read(const void* p, int64_t bytes);
void evo_trace_write(const void* p, int64_t bytes);
void evo_trace_stream(const void* p, int64_t bytes);
void evo_trace_prefetch(const void* p);
void evo_trace_gather(const void* p, int64_t bytes);
}

#define EVO_TRACED 1
#define EVO_TRACE static inline __attribute__((always_inline, unused))

// One bit per element that takes part; a contiguous mask is one access, others go one by one.
EVO_TRACE void evo_trace_mask(const void* p, uint64_t mask, int size, bool store) {
    while (mask) {
        int from = __builtin_ctzll(mask);
        uint64_t rest = ~(mask >> from);
        int run = rest ? __builtin_ctzll(rest) : 64;
        if (store) evo_trace_write((const char*)p + (int64_t)from * size, (int64_t)run * size);
        else evo_trace_read((const char*)p + (int64_t)from * size, (int64_t)run * size);
        mask = from + run >= 64 ? 0 : mask >> (from + run) << (from + run);
    }
}

#define EVO_TRACE_STREAM(name, pointer, value, bytes)        \
    EVO_TRACE void evo_trace##name(pointer p, value v) {     \
        evo_trace_stream(p, bytes);                          \
        name(p, v);                                          \
    }
#define EVO_TRACE_MASKED(bits, suffix, value, mask, size)                                                          \
    EVO_TRACE value evo_trace_mm##bits##_maskz_loadu_##suffix(mask m, const void* p) {                            \
        evo_trace_mask(p, m, size, false);                                                                        \
        return _mm##bits##_maskz_loadu_##suffix(m, p);                                                            \
    }                                                                                                              \
    EVO_TRACE value evo_trace_mm##bits##_mask_loadu_##suffix(value v, mask m, const void* p) {                    \
        evo_trace_mask(p, m, size, false);                                                                        \
        return _mm##bits##_mask_loadu_##suffix(v, m, p);                                                          \
    }                                                                                                              \
    EVO_TRACE void evo_trace_mm##bits##_mask_storeu_##suffix(void* p, mask m, value v) {                          \
        evo_trace_mask(p, m, size, true);                                                                         \
        _mm##bits##_mask_storeu_##suffix(p, m, v);                                                                \
    }
// The aligned forms, and those that pack what takes part.
#define EVO_TRACE_ALIGNED(bits, suffix, value, mask, size)                                                         \
    EVO_TRACE value evo_trace_mm##bits##_maskz_load_##suffix(mask m, const void* p) {                             \
        evo_trace_mask(p, m, size, false);                                                                        \
        return _mm##bits##_maskz_load_##suffix(m, p);                                                             \
    }                                                                                                              \
    EVO_TRACE value evo_trace_mm##bits##_mask_load_##suffix(value v, mask m, const void* p) {                     \
        evo_trace_mask(p, m, size, false);                                                                        \
        return _mm##bits##_mask_load_##suffix(v, m, p);                                                           \
    }                                                                                                              \
    EVO_TRACE void evo_trace_mm##bits##_mask_store_##suffix(void* p, mask m, value v) {                           \
        evo_trace_mask(p, m, size, true);                                                                         \
        _mm##bits##_mask_store_##suffix(p, m, v);                                                                 \
    }                                                                                                              \
    EVO_TRACE void evo_trace_mm##bits##_mask_compressstoreu_##suffix(void* p, mask m, value v) {                  \
        evo_trace_write(p, (int64_t)__builtin_popcountll(m) * size);                                              \
        _mm##bits##_mask_compressstoreu_##suffix(p, m, v);                                                        \
    }                                                                                                              \
    EVO_TRACE value evo_trace_mm##bits##_maskz_expandloadu_##suffix(mask m, const void* p) {                      \
        evo_trace_read(p, (int64_t)__builtin_popcountll(m) * size);                                               \
        return _mm##bits##_maskz_expandloadu_##suffix(m, p);                                                      \
    }
// Lane by lane, in plain code: the lanes of an index vector of `element`s.
#define EVO_TRACE_GATHER(name, result, index, element, from, count)                                                \
    EVO_TRACE void evo_trace_lanes##name(index i, const void* p, int scale, uint64_t mask) {                      \
        union { index v; element e[sizeof(index) / sizeof(element)]; } u = {i};                                   \
        for (int k = 0; k < count; ++k)                                                                            \
            if (mask >> k & 1) evo_trace_gather((const char*)p + (int64_t)u.e[k] * scale, sizeof(from));          \
    }


EVO_TRACE_STREAM(_mm_stream_ps, float*, __m128, 16)
EVO_TRACE_STREAM(_mm_stream_pd, double*, __m128d, 16)
EVO_TRACE_STREAM(_mm_stream_si128, __m128i*, __m128i, 16)
EVO_TRACE_STREAM(_mm_stream_si32, int*, int, 4)
EVO_TRACE_STREAM(_mm_stream_si64, long long*, long long, 8)
#define _mm_stream_ps(...) evo_trace_mm_stream_ps(__VA_ARGS__)
#define _mm_stream_pd(...) evo_trace_mm_stream_pd(__VA_ARGS__)
#define _mm_stream_si128(...) evo_trace_mm_stream_si128(__VA_ARGS__)
#define _mm_stream_si32(...) evo_trace_mm_stream_si32(__VA_ARGS__)
#define _mm_stream_si64(...) evo_trace_mm_stream_si64(__VA_ARGS__)
#undef _mm_prefetch
#define _mm_prefetch(p, ...) evo_trace_prefetch((const void*)(p))
#define __builtin_prefetch(p, ...) evo_trace_prefetch((const void*)(p))

#ifdef __AVX__
EVO_TRACE_STREAM(_mm256_stream_ps, float*, __m256, 32)
EVO_TRACE_STREAM(_mm256_stream_pd, double*, __m256d, 32)
EVO_TRACE_STREAM(_mm256_stream_si256, __m256i*, __m256i, 32)
#define _mm256_stream_ps(...) evo_trace_mm256_stream_ps(__VA_ARGS__)
#define _mm256_stream_pd(...) evo_trace_mm256_stream_pd(__VA_ARGS__)
#define _mm256_stream_si256(...) evo_trace_mm256_stream_si256(__VA_ARGS__)
EVO_TRACE __m256 evo_trace_mm256_broadcast_ss(const float* p) { return _mm256_set1_ps(*p); }
EVO_TRACE __m256d evo_trace_mm256_broadcast_sd(const double* p) { return _mm256_set1_pd(*p); }
EVO_TRACE __m256i evo_trace_mm256_lddqu_si256(const __m256i* p) { return _mm256_loadu_si256(p); }
#define _mm256_broadcast_ss(...) evo_trace_mm256_broadcast_ss(__VA_ARGS__)
#define _mm256_broadcast_sd(...) evo_trace_mm256_broadcast_sd(__VA_ARGS__)
#define _mm256_lddqu_si256(...) evo_trace_mm256_lddqu_si256(__VA_ARGS__)

EVO_TRACE __m256 evo_trace_mm256_maskload_ps(const float* p, __m256i m) {
    evo_trace_mask(p, (uint64_t)(unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(m)), 4, false);
    return _mm256_maskload_ps(p, m);
}
EVO_TRACE void evo_trace_mm256_maskstore_ps(float* p, __m256i m, __m256 v) {
    evo_trace_mask(p, (uint64_t)(unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(m)), 4, true);
    _mm256_maskstore_ps(p, m, v);
}
#define _mm256_maskload_ps(...) evo_trace_mm256_maskload_ps(__VA_ARGS__)
#define _mm256_maskstore_ps(...) evo_trace_mm256_maskstore_ps(__VA_ARGS__)
EVO_TRACE __m256d evo_trace_mm256_maskload_pd(const double* p, __m256i m) {
    evo_trace_mask(p, (uint64_t)(unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(m)), 8, false);
    return _mm256_maskload_pd(p, m);
}
EVO_TRACE void evo_trace_mm256_maskstore_pd(double* p, __m256i m, __m256d v) {
    evo_trace_mask(p, (uint64_t)(unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(m)), 8, true);
    _mm256_maskstore_pd(p, m, v);
}
#define _mm256_maskload_pd(...) evo_trace_mm256_maskload_pd(__VA_ARGS__)
#define _mm256_maskstore_pd(...) evo_trace_mm256_maskstore_pd(__VA_ARGS__)
EVO_TRACE __m128 evo_trace_mm_maskload_ps(const float* p, __m128i m) {
    evo_trace_mask(p, (uint64_t)(unsigned)_mm_movemask_ps(_mm_castsi128_ps(m)), 4, false);
    return _mm_maskload_ps(p, m);
}
EVO_TRACE void evo_trace_mm_maskstore_ps(float* p, __m128i m, __m128 v) {
    evo_trace_mask(p, (uint64_t)(unsigned)_mm_movemask_ps(_mm_castsi128_ps(m)), 4, true);
    _mm_maskstore_ps(p, m, v);
}
#define _mm_maskload_ps(...) evo_trace_mm_maskload_ps(__VA_ARGS__)
#define _mm_maskstore_ps(...) evo_trace_mm_maskstore_ps(__VA_ARGS__)
EVO_TRACE __m128d evo_trace_mm_maskload_pd(const double* p, __m128i m) {
    evo_trace_mask(p, (uint64_t)(unsigned)_mm_movemask_pd(_mm_castsi128_pd(m)), 8, false);
    return _mm_maskload_pd(p, m);
}
EVO_TRACE void evo_trace_mm_maskstore_pd(double* p, __m128i m, __m128d v) {
    evo_trace_mask(p, (uint64_t)(unsigned)_mm_movemask_pd(_mm_castsi128_pd(m)), 8, true);
    _mm_maskstore_pd(p, m, v);
}
#define _mm_maskload_pd(...) evo_trace_mm_maskload_pd(__VA_ARGS__)
#define _mm_maskstore_pd(...) evo_trace_mm_maskstore_pd(__VA_ARGS__)
#endif  // __AVX__

#ifdef __AVX2__
EVO_TRACE __m256i evo_trace_mm256_maskload_epi32(const int* p, __m256i m) {
    evo_trace_mask(p, (uint64_t)(unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(m)), 4, false);
    return _mm256_maskload_epi32(p, m);
}
EVO_TRACE void evo_trace_mm256_maskstore_epi32(int* p, __m256i m, __m256i v) {
    evo_trace_mask(p, (uint64_t)(unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(m)), 4, true);
    _mm256_maskstore_epi32(p, m, v);
}
#define _mm256_maskload_epi32(...) evo_trace_mm256_maskload_epi32(__VA_ARGS__)
#define _mm256_maskstore_epi32(...) evo_trace_mm256_maskstore_epi32(__VA_ARGS__)
EVO_TRACE __m128i evo_trace_mm_maskload_epi32(const int* p, __m128i m) {
    evo_trace_mask(p, (uint64_t)(unsigned)_mm_movemask_ps(_mm_castsi128_ps(m)), 4, false);
    return _mm_maskload_epi32(p, m);
}
EVO_TRACE void evo_trace_mm_maskstore_epi32(int* p, __m128i m, __m128i v) {
    evo_trace_mask(p, (uint64_t)(unsigned)_mm_movemask_ps(_mm_castsi128_ps(m)), 4, true);
    _mm_maskstore_epi32(p, m, v);
}
#define _mm_maskload_epi32(...) evo_trace_mm_maskload_epi32(__VA_ARGS__)
#define _mm_maskstore_epi32(...) evo_trace_mm_maskstore_epi32(__VA_ARGS__)
EVO_TRACE_GATHER(_mm_i32gather_ps, __m128, __m128i, int32_t, float, 4)
#define _mm_i32gather_ps(p, i, s) (evo_trace_lanes_mm_i32gather_ps(i, p, s, ~0ull), _mm_i32gather_ps(p, i, s))
EVO_TRACE_GATHER(_mm_i32gather_epi32, __m128i, __m128i, int32_t, int, 4)
#define _mm_i32gather_epi32(p, i, s) (evo_trace_lanes_mm_i32gather_epi32(i, p, s, ~0ull), _mm_i32gather_epi32(p, i, s))
EVO_TRACE_GATHER(_mm_i64gather_pd, __m128d, __m128i, int64_t, double, 2)
#define _mm_i64gather_pd(p, i, s) (evo_trace_lanes_mm_i64gather_pd(i, p, s, ~0ull), _mm_i64gather_pd(p, i, s))
EVO_TRACE_GATHER(_mm_i64gather_epi64, __m128i, __m128i, int64_t, long long, 2)
#define _mm_i64gather_epi64(p, i, s) (evo_trace_lanes_mm_i64gather_epi64(i, p, s, ~0ull), _mm_i64gather_epi64(p, i, s))
EVO_TRACE_GATHER(_mm256_i32gather_ps, __m256, __m256i, int32_t, float, 8)
#define _mm256_i32gather_ps(p, i, s) (evo_trace_lanes_mm256_i32gather_ps(i, p, s, ~0ull), _mm256_i32gather_ps(p, i, s))
EVO_TRACE_GATHER(_mm256_i32gather_epi32, __m256i, __m256i, int32_t, int, 8)
#define _mm256_i32gather_epi32(p, i, s) (evo_trace_lanes_mm256_i32gather_epi32(i, p, s, ~0ull), _mm256_i32gather_epi32(p, i, s))
EVO_TRACE_GATHER(_mm256_i64gather_pd, __m256d, __m256i, int64_t, double, 4)
#define _mm256_i64gather_pd(p, i, s) (evo_trace_lanes_mm256_i64gather_pd(i, p, s, ~0ull), _mm256_i64gather_pd(p, i, s))
EVO_TRACE_GATHER(_mm256_i64gather_epi64, __m256i, __m256i, int64_t, long long, 4)
#define _mm256_i64gather_epi64(p, i, s) (evo_trace_lanes_mm256_i64gather_epi64(i, p, s, ~0ull), _mm256_i64gather_epi64(p, i, s))
EVO_TRACE_GATHER(_mm256_i32gather_pd, __m256d, __m128i, int32_t, double, 4)
#define _mm256_i32gather_pd(p, i, s) (evo_trace_lanes_mm256_i32gather_pd(i, p, s, ~0ull), _mm256_i32gather_pd(p, i, s))
#endif  // __AVX2__

#ifdef __AVX512F__
EVO_TRACE_STREAM(_mm512_stream_ps, float*, __m512, 64)
#define _mm512_stream_ps(...) evo_trace_mm512_stream_ps(__VA_ARGS__)
EVO_TRACE_STREAM(_mm512_stream_pd, double*, __m512d, 64)
#define _mm512_stream_pd(...) evo_trace_mm512_stream_pd(__VA_ARGS__)
EVO_TRACE_STREAM(_mm512_stream_si512, __m512i*, __m512i, 64)
#define _mm512_stream_si512(...) evo_trace_mm512_stream_si512(__VA_ARGS__)
EVO_TRACE_MASKED(512, ps, __m512, __mmask16, 4)
EVO_TRACE_ALIGNED(512, ps, __m512, __mmask16, 4)
#define _mm512_maskz_loadu_ps(...) evo_trace_mm512_maskz_loadu_ps(__VA_ARGS__)
#define _mm512_mask_loadu_ps(...) evo_trace_mm512_mask_loadu_ps(__VA_ARGS__)
#define _mm512_mask_storeu_ps(...) evo_trace_mm512_mask_storeu_ps(__VA_ARGS__)
#define _mm512_maskz_load_ps(...) evo_trace_mm512_maskz_load_ps(__VA_ARGS__)
#define _mm512_mask_load_ps(...) evo_trace_mm512_mask_load_ps(__VA_ARGS__)
#define _mm512_mask_store_ps(...) evo_trace_mm512_mask_store_ps(__VA_ARGS__)
#define _mm512_mask_compressstoreu_ps(...) evo_trace_mm512_mask_compressstoreu_ps(__VA_ARGS__)
#define _mm512_maskz_expandloadu_ps(...) evo_trace_mm512_maskz_expandloadu_ps(__VA_ARGS__)
EVO_TRACE_MASKED(512, pd, __m512d, __mmask8, 8)
EVO_TRACE_ALIGNED(512, pd, __m512d, __mmask8, 8)
#define _mm512_maskz_loadu_pd(...) evo_trace_mm512_maskz_loadu_pd(__VA_ARGS__)
#define _mm512_mask_loadu_pd(...) evo_trace_mm512_mask_loadu_pd(__VA_ARGS__)
#define _mm512_mask_storeu_pd(...) evo_trace_mm512_mask_storeu_pd(__VA_ARGS__)
#define _mm512_maskz_load_pd(...) evo_trace_mm512_maskz_load_pd(__VA_ARGS__)
#define _mm512_mask_load_pd(...) evo_trace_mm512_mask_load_pd(__VA_ARGS__)
#define _mm512_mask_store_pd(...) evo_trace_mm512_mask_store_pd(__VA_ARGS__)
#define _mm512_mask_compressstoreu_pd(...) evo_trace_mm512_mask_compressstoreu_pd(__VA_ARGS__)
#define _mm512_maskz_expandloadu_pd(...) evo_trace_mm512_maskz_expandloadu_pd(__VA_ARGS__)
EVO_TRACE_MASKED(512, epi32, __m512i, __mmask16, 4)
EVO_TRACE_ALIGNED(512, epi32, __m512i, __mmask16, 4)
#define _mm512_maskz_loadu_epi32(...) evo_trace_mm512_maskz_loadu_epi32(__VA_ARGS__)
#define _mm512_mask_loadu_epi32(...) evo_trace_mm512_mask_loadu_epi32(__VA_ARGS__)
#define _mm512_mask_storeu_epi32(...) evo_trace_mm512_mask_storeu_epi32(__VA_ARGS__)
#define _mm512_maskz_load_epi32(...) evo_trace_mm512_maskz_load_epi32(__VA_ARGS__)
#define _mm512_mask_load_epi32(...) evo_trace_mm512_mask_load_epi32(__VA_ARGS__)
#define _mm512_mask_store_epi32(...) evo_trace_mm512_mask_store_epi32(__VA_ARGS__)
#define _mm512_mask_compressstoreu_epi32(...) evo_trace_mm512_mask_compressstoreu_epi32(__VA_ARGS__)
#define _mm512_maskz_expandloadu_epi32(...) evo_trace_mm512_maskz_expandloadu_epi32(__VA_ARGS__)
EVO_TRACE_MASKED(512, epi64, __m512i, __mmask8, 8)
EVO_TRACE_ALIGNED(512, epi64, __m512i, __mmask8, 8)
#define _mm512_maskz_loadu_epi64(...) evo_trace_mm512_maskz_loadu_epi64(__VA_ARGS__)
#define _mm512_mask_loadu_epi64(...) evo_trace_mm512_mask_loadu_epi64(__VA_ARGS__)
#define _mm512_mask_storeu_epi64(...) evo_trace_mm512_mask_storeu_epi64(__VA_ARGS__)
#define _mm512_maskz_load_epi64(...) evo_trace_mm512_maskz_load_epi64(__VA_ARGS__)
#define _mm512_mask_load_epi64(...) evo_trace_mm512_mask_load_epi64(__VA_ARGS__)
#define _mm512_mask_store_epi64(...) evo_trace_mm512_mask_store_epi64(__VA_ARGS__)
#define _mm512_mask_compressstoreu_epi64(...) evo_trace_mm512_mask_compressstoreu_epi64(__VA_ARGS__)
#define _mm512_maskz_expandloadu_epi64(...) evo_trace_mm512_maskz_expandloadu_epi64(__VA_ARGS__)
EVO_TRACE_GATHER(_mm512_i32gather_ps, , __m512i, int32_t, float, 16)
#define _mm512_i32gather_ps(i, p, s) (evo_trace_lanes_mm512_i32gather_ps(i, p, s, ~0ull), _mm512_i32gather_ps(i, p, s))
#define _mm512_mask_i32gather_ps(o, m, i, p, s) (evo_trace_lanes_mm512_i32gather_ps(i, p, s, m), _mm512_mask_i32gather_ps(o, m, i, p, s))
#define _mm512_i32scatter_ps(p, i, v, s) (evo_trace_lanes_mm512_i32gather_ps(i, p, s, ~0ull), _mm512_i32scatter_ps(p, i, v, s))
#define _mm512_mask_i32scatter_ps(p, m, i, v, s) (evo_trace_lanes_mm512_i32gather_ps(i, p, s, m), _mm512_mask_i32scatter_ps(p, m, i, v, s))
EVO_TRACE_GATHER(_mm512_i32gather_epi32, , __m512i, int32_t, int, 16)
#define _mm512_i32gather_epi32(i, p, s) (evo_trace_lanes_mm512_i32gather_epi32(i, p, s, ~0ull), _mm512_i32gather_epi32(i, p, s))
#define _mm512_mask_i32gather_epi32(o, m, i, p, s) (evo_trace_lanes_mm512_i32gather_epi32(i, p, s, m), _mm512_mask_i32gather_epi32(o, m, i, p, s))
#define _mm512_i32scatter_epi32(p, i, v, s) (evo_trace_lanes_mm512_i32gather_epi32(i, p, s, ~0ull), _mm512_i32scatter_epi32(p, i, v, s))
#define _mm512_mask_i32scatter_epi32(p, m, i, v, s) (evo_trace_lanes_mm512_i32gather_epi32(i, p, s, m), _mm512_mask_i32scatter_epi32(p, m, i, v, s))
EVO_TRACE_GATHER(_mm512_i32gather_pd, , __m256i, int32_t, double, 8)
#define _mm512_i32gather_pd(i, p, s) (evo_trace_lanes_mm512_i32gather_pd(i, p, s, ~0ull), _mm512_i32gather_pd(i, p, s))
#define _mm512_mask_i32gather_pd(o, m, i, p, s) (evo_trace_lanes_mm512_i32gather_pd(i, p, s, m), _mm512_mask_i32gather_pd(o, m, i, p, s))
#define _mm512_i32scatter_pd(p, i, v, s) (evo_trace_lanes_mm512_i32gather_pd(i, p, s, ~0ull), _mm512_i32scatter_pd(p, i, v, s))
#define _mm512_mask_i32scatter_pd(p, m, i, v, s) (evo_trace_lanes_mm512_i32gather_pd(i, p, s, m), _mm512_mask_i32scatter_pd(p, m, i, v, s))
EVO_TRACE_GATHER(_mm512_i64gather_pd, , __m512i, int64_t, double, 8)
#define _mm512_i64gather_pd(i, p, s) (evo_trace_lanes_mm512_i64gather_pd(i, p, s, ~0ull), _mm512_i64gather_pd(i, p, s))
#define _mm512_mask_i64gather_pd(o, m, i, p, s) (evo_trace_lanes_mm512_i64gather_pd(i, p, s, m), _mm512_mask_i64gather_pd(o, m, i, p, s))
#define _mm512_i64scatter_pd(p, i, v, s) (evo_trace_lanes_mm512_i64gather_pd(i, p, s, ~0ull), _mm512_i64scatter_pd(p, i, v, s))
#define _mm512_mask_i64scatter_pd(p, m, i, v, s) (evo_trace_lanes_mm512_i64gather_pd(i, p, s, m), _mm512_mask_i64scatter_pd(p, m, i, v, s))
EVO_TRACE_GATHER(_mm512_i64gather_epi64, , __m512i, int64_t, long long, 8)
#define _mm512_i64gather_epi64(i, p, s) (evo_trace_lanes_mm512_i64gather_epi64(i, p, s, ~0ull), _mm512_i64gather_epi64(i, p, s))
#define _mm512_mask_i64gather_epi64(o, m, i, p, s) (evo_trace_lanes_mm512_i64gather_epi64(i, p, s, m), _mm512_mask_i64gather_epi64(o, m, i, p, s))
#define _mm512_i64scatter_epi64(p, i, v, s) (evo_trace_lanes_mm512_i64gather_epi64(i, p, s, ~0ull), _mm512_i64scatter_epi64(p, i, v, s))
#define _mm512_mask_i64scatter_epi64(p, m, i, v, s) (evo_trace_lanes_mm512_i64gather_epi64(i, p, s, m), _mm512_mask_i64scatter_epi64(p, m, i, v, s))
EVO_TRACE_GATHER(_mm512_i64gather_ps, , __m512i, int64_t, float, 8)
#define _mm512_i64gather_ps(i, p, s) (evo_trace_lanes_mm512_i64gather_ps(i, p, s, ~0ull), _mm512_i64gather_ps(i, p, s))
#define _mm512_mask_i64gather_ps(o, m, i, p, s) (evo_trace_lanes_mm512_i64gather_ps(i, p, s, m), _mm512_mask_i64gather_ps(o, m, i, p, s))
#define _mm512_i64scatter_ps(p, i, v, s) (evo_trace_lanes_mm512_i64gather_ps(i, p, s, ~0ull), _mm512_i64scatter_ps(p, i, v, s))
#define _mm512_mask_i64scatter_ps(p, m, i, v, s) (evo_trace_lanes_mm512_i64gather_ps(i, p, s, m), _mm512_mask_i64scatter_ps(p, m, i, v, s))
#endif  // __AVX512F__

#if defined(__AVX512VL__) && defined(__AVX512F__)
EVO_TRACE_MASKED(256, ps, __m256, __mmask8, 4)
EVO_TRACE_ALIGNED(256, ps, __m256, __mmask8, 4)
#define _mm256_maskz_loadu_ps(...) evo_trace_mm256_maskz_loadu_ps(__VA_ARGS__)
#define _mm256_mask_loadu_ps(...) evo_trace_mm256_mask_loadu_ps(__VA_ARGS__)
#define _mm256_mask_storeu_ps(...) evo_trace_mm256_mask_storeu_ps(__VA_ARGS__)
#define _mm256_maskz_load_ps(...) evo_trace_mm256_maskz_load_ps(__VA_ARGS__)
#define _mm256_mask_load_ps(...) evo_trace_mm256_mask_load_ps(__VA_ARGS__)
#define _mm256_mask_store_ps(...) evo_trace_mm256_mask_store_ps(__VA_ARGS__)
#define _mm256_mask_compressstoreu_ps(...) evo_trace_mm256_mask_compressstoreu_ps(__VA_ARGS__)
#define _mm256_maskz_expandloadu_ps(...) evo_trace_mm256_maskz_expandloadu_ps(__VA_ARGS__)
EVO_TRACE_MASKED(256, pd, __m256d, __mmask8, 8)
EVO_TRACE_ALIGNED(256, pd, __m256d, __mmask8, 8)
#define _mm256_maskz_loadu_pd(...) evo_trace_mm256_maskz_loadu_pd(__VA_ARGS__)
#define _mm256_mask_loadu_pd(...) evo_trace_mm256_mask_loadu_pd(__VA_ARGS__)
#define _mm256_mask_storeu_pd(...) evo_trace_mm256_mask_storeu_pd(__VA_ARGS__)
#define _mm256_maskz_load_pd(...) evo_trace_mm256_maskz_load_pd(__VA_ARGS__)
#define _mm256_mask_load_pd(...) evo_trace_mm256_mask_load_pd(__VA_ARGS__)
#define _mm256_mask_store_pd(...) evo_trace_mm256_mask_store_pd(__VA_ARGS__)
#define _mm256_mask_compressstoreu_pd(...) evo_trace_mm256_mask_compressstoreu_pd(__VA_ARGS__)
#define _mm256_maskz_expandloadu_pd(...) evo_trace_mm256_maskz_expandloadu_pd(__VA_ARGS__)
EVO_TRACE_MASKED(256, epi32, __m256i, __mmask8, 4)
EVO_TRACE_ALIGNED(256, epi32, __m256i, __mmask8, 4)
#define _mm256_maskz_loadu_epi32(...) evo_trace_mm256_maskz_loadu_epi32(__VA_ARGS__)
#define _mm256_mask_loadu_epi32(...) evo_trace_mm256_mask_loadu_epi32(__VA_ARGS__)
#define _mm256_mask_storeu_epi32(...) evo_trace_mm256_mask_storeu_epi32(__VA_ARGS__)
#define _mm256_maskz_load_epi32(...) evo_trace_mm256_maskz_load_epi32(__VA_ARGS__)
#define _mm256_mask_load_epi32(...) evo_trace_mm256_mask_load_epi32(__VA_ARGS__)
#define _mm256_mask_store_epi32(...) evo_trace_mm256_mask_store_epi32(__VA_ARGS__)
#define _mm256_mask_compressstoreu_epi32(...) evo_trace_mm256_mask_compressstoreu_epi32(__VA_ARGS__)
#define _mm256_maskz_expandloadu_epi32(...) evo_trace_mm256_maskz_expandloadu_epi32(__VA_ARGS__)
EVO_TRACE_MASKED(256, epi64, __m256i, __mmask8, 8)
EVO_TRACE_ALIGNED(256, epi64, __m256i, __mmask8, 8)
#define _mm256_maskz_loadu_epi64(...) evo_trace_mm256_maskz_loadu_epi64(__VA_ARGS__)
#define _mm256_mask_loadu_epi64(...) evo_trace_mm256_mask_loadu_epi64(__VA_ARGS__)
#define _mm256_mask_storeu_epi64(...) evo_trace_mm256_mask_storeu_epi64(__VA_ARGS__)
#define _mm256_maskz_load_epi64(...) evo_trace_mm256_maskz_load_epi64(__VA_ARGS__)
#define _mm256_mask_load_epi64(...) evo_trace_mm256_mask_load_epi64(__VA_ARGS__)
#define _mm256_mask_store_epi64(...) evo_trace_mm256_mask_store_epi64(__VA_ARGS__)
#define _mm256_mask_compressstoreu_epi64(...) evo_trace_mm256_mask_compressstoreu_epi64(__VA_ARGS__)
#define _mm256_maskz_expandloadu_epi64(...) evo_trace_mm256_maskz_expandloadu_epi64(__VA_ARGS__)
EVO_TRACE_MASKED(, ps, __m128, __mmask8, 4)
EVO_TRACE_ALIGNED(, ps, __m128, __mmask8, 4)
#define _mm_maskz_loadu_ps(...) evo_trace_mm_maskz_loadu_ps(__VA_ARGS__)
#define _mm_mask_loadu_ps(...) evo_trace_mm_mask_loadu_ps(__VA_ARGS__)
#define _mm_mask_storeu_ps(...) evo_trace_mm_mask_storeu_ps(__VA_ARGS__)
#define _mm_maskz_load_ps(...) evo_trace_mm_maskz_load_ps(__VA_ARGS__)
#define _mm_mask_load_ps(...) evo_trace_mm_mask_load_ps(__VA_ARGS__)
#define _mm_mask_store_ps(...) evo_trace_mm_mask_store_ps(__VA_ARGS__)
#define _mm_mask_compressstoreu_ps(...) evo_trace_mm_mask_compressstoreu_ps(__VA_ARGS__)
#define _mm_maskz_expandloadu_ps(...) evo_trace_mm_maskz_expandloadu_ps(__VA_ARGS__)
EVO_TRACE_MASKED(, pd, __m128d, __mmask8, 8)
EVO_TRACE_ALIGNED(, pd, __m128d, __mmask8, 8)
#define _mm_maskz_loadu_pd(...) evo_trace_mm_maskz_loadu_pd(__VA_ARGS__)
#define _mm_mask_loadu_pd(...) evo_trace_mm_mask_loadu_pd(__VA_ARGS__)
#define _mm_mask_storeu_pd(...) evo_trace_mm_mask_storeu_pd(__VA_ARGS__)
#define _mm_maskz_load_pd(...) evo_trace_mm_maskz_load_pd(__VA_ARGS__)
#define _mm_mask_load_pd(...) evo_trace_mm_mask_load_pd(__VA_ARGS__)
#define _mm_mask_store_pd(...) evo_trace_mm_mask_store_pd(__VA_ARGS__)
#define _mm_mask_compressstoreu_pd(...) evo_trace_mm_mask_compressstoreu_pd(__VA_ARGS__)
#define _mm_maskz_expandloadu_pd(...) evo_trace_mm_maskz_expandloadu_pd(__VA_ARGS__)
EVO_TRACE_MASKED(, epi32, __m128i, __mmask8, 4)
EVO_TRACE_ALIGNED(, epi32, __m128i, __mmask8, 4)
#define _mm_maskz_loadu_epi32(...) evo_trace_mm_maskz_loadu_epi32(__VA_ARGS__)
#define _mm_mask_loadu_epi32(...) evo_trace_mm_mask_loadu_epi32(__VA_ARGS__)
#define _mm_mask_storeu_epi32(...) evo_trace_mm_mask_storeu_epi32(__VA_ARGS__)
#define _mm_maskz_load_epi32(...) evo_trace_mm_maskz_load_epi32(__VA_ARGS__)
#define _mm_mask_load_epi32(...) evo_trace_mm_mask_load_epi32(__VA_ARGS__)
#define _mm_mask_store_epi32(...) evo_trace_mm_mask_store_epi32(__VA_ARGS__)
#define _mm_mask_compressstoreu_epi32(...) evo_trace_mm_mask_compressstoreu_epi32(__VA_ARGS__)
#define _mm_maskz_expandloadu_epi32(...) evo_trace_mm_maskz_expandloadu_epi32(__VA_ARGS__)
EVO_TRACE_MASKED(, epi64, __m128i, __mmask8, 8)
EVO_TRACE_ALIGNED(, epi64, __m128i, __mmask8, 8)
#define _mm_maskz_loadu_epi64(...) evo_trace_mm_maskz_loadu_epi64(__VA_ARGS__)
#define _mm_mask_loadu_epi64(...) evo_trace_mm_mask_loadu_epi64(__VA_ARGS__)
#define _mm_mask_storeu_epi64(...) evo_trace_mm_mask_storeu_epi64(__VA_ARGS__)
#define _mm_maskz_load_epi64(...) evo_trace_mm_maskz_load_epi64(__VA_ARGS__)
#define _mm_mask_load_epi64(...) evo_trace_mm_mask_load_epi64(__VA_ARGS__)
#define _mm_mask_store_epi64(...) evo_trace_mm_mask_store_epi64(__VA_ARGS__)
#define _mm_mask_compressstoreu_epi64(...) evo_trace_mm_mask_compressstoreu_epi64(__VA_ARGS__)
#define _mm_maskz_expandloadu_epi64(...) evo_trace_mm_maskz_expandloadu_epi64(__VA_ARGS__)
#endif

#ifdef __AVX512BW__
EVO_TRACE_MASKED(512, epi8, __m512i, __mmask64, 1)
#define _mm512_maskz_loadu_epi8(...) evo_trace_mm512_maskz_loadu_epi8(__VA_ARGS__)
#define _mm512_mask_loadu_epi8(...) evo_trace_mm512_mask_loadu_epi8(__VA_ARGS__)
#define _mm512_mask_storeu_epi8(...) evo_trace_mm512_mask_storeu_epi8(__VA_ARGS__)
EVO_TRACE_MASKED(512, epi16, __m512i, __mmask32, 2)
#define _mm512_maskz_loadu_epi16(...) evo_trace_mm512_maskz_loadu_epi16(__VA_ARGS__)
#define _mm512_mask_loadu_epi16(...) evo_trace_mm512_mask_loadu_epi16(__VA_ARGS__)
#define _mm512_mask_storeu_epi16(...) evo_trace_mm512_mask_storeu_epi16(__VA_ARGS__)
#ifdef __AVX512VL__
EVO_TRACE_MASKED(256, epi8, __m256i, __mmask32, 1)
#define _mm256_maskz_loadu_epi8(...) evo_trace_mm256_maskz_loadu_epi8(__VA_ARGS__)
#define _mm256_mask_loadu_epi8(...) evo_trace_mm256_mask_loadu_epi8(__VA_ARGS__)
#define _mm256_mask_storeu_epi8(...) evo_trace_mm256_mask_storeu_epi8(__VA_ARGS__)
EVO_TRACE_MASKED(256, epi16, __m256i, __mmask16, 2)
#define _mm256_maskz_loadu_epi16(...) evo_trace_mm256_maskz_loadu_epi16(__VA_ARGS__)
#define _mm256_mask_loadu_epi16(...) evo_trace_mm256_mask_loadu_epi16(__VA_ARGS__)
#define _mm256_mask_storeu_epi16(...) evo_trace_mm256_mask_storeu_epi16(__VA_ARGS__)
EVO_TRACE_MASKED(, epi8, __m128i, __mmask16, 1)
#define _mm_maskz_loadu_epi8(...) evo_trace_mm_maskz_loadu_epi8(__VA_ARGS__)
#define _mm_mask_loadu_epi8(...) evo_trace_mm_mask_loadu_epi8(__VA_ARGS__)
#define _mm_mask_storeu_epi8(...) evo_trace_mm_mask_storeu_epi8(__VA_ARGS__)
EVO_TRACE_MASKED(, epi16, __m128i, __mmask8, 2)
#define _mm_maskz_loadu_epi16(...) evo_trace_mm_maskz_loadu_epi16(__VA_ARGS__)
#define _mm_mask_loadu_epi16(...) evo_trace_mm_mask_loadu_epi16(__VA_ARGS__)
#define _mm_mask_storeu_epi16(...) evo_trace_mm_mask_storeu_epi16(__VA_ARGS__)
#endif
#endif

#include "evoforge.h"
#undef EVO_TRACED  // a kernel does not learn that it is watched
