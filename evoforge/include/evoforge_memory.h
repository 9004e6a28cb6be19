// Vectors from and to memory: contiguous, the first n lanes (the others read as 0), strided; and pieces of the workspace.
#pragma once
#include "evoforge_half.h"
#include "evoforge_vec.h"

namespace evo {

EVO_INLINE float load(const float* p) { return *p; }
EVO_INLINE vec load(const float* p, all_t) {
#ifdef EVO_AVX512
    return (vec)_mm512_loadu_ps(p);
#elif defined(EVO_AVX2)
    return (vec)_mm256_loadu_ps(p);
#else
    return (vec)_mm_loadu_ps(p);
#endif
}
EVO_INLINE vec load(const float* p, first n) {
#ifdef EVO_AVX512
    return (vec)_mm512_maskz_loadu_ps(detail::mask16(n.n), p);
#elif defined(EVO_AVX2)
    return (vec)_mm256_maskload_ps(p, (__m256i)take(n));
#else
    vec v{};
    for (int64_t i = 0; i < n.n; ++i) v[i] = p[i];
    return v;
#endif
}
EVO_INLINE void store(float* p, vec v, all_t) {
#ifdef EVO_AVX512
    _mm512_storeu_ps(p, (__m512)v);
#elif defined(EVO_AVX2)
    _mm256_storeu_ps(p, (__m256)v);
#else
    _mm_storeu_ps(p, (__m128)v);
#endif
}
EVO_INLINE void store(float* p, vec v, first n) {
#ifdef EVO_AVX512
    _mm512_mask_storeu_ps(p, detail::mask16(n.n), (__m512)v);
#elif defined(EVO_AVX2)
    _mm256_maskstore_ps(p, (__m256i)take(n), (__m256)v);
#else
    for (int64_t i = 0; i < n.n; ++i) p[i] = v[i];
#endif
}
// Non-temporal: past the caches, for data that is not read again soon. `p` is aligned to the vector. The
// barrier that ends a parallel region (a locked instruction) orders these stores.
EVO_INLINE void stream(float* p, vec v) {
#ifdef EVO_AVX512
    _mm512_stream_ps(p, (__m512)v);
#elif defined(EVO_AVX2)
    _mm256_stream_ps(p, (__m256)v);
#else
    _mm_stream_ps(p, (__m128)v);
#endif
}

// sixteen bits per element
namespace detail {
#ifdef EVO_AVX512
typedef __m256i half;
EVO_INLINE half load_half(const void* p, all_t) { return _mm256_loadu_si256((const __m256i*)p); }
EVO_INLINE half load_half(const void* p, first n) { return _mm256_maskz_loadu_epi16(mask16(n.n), p); }
EVO_INLINE void store_half(void* p, half v, all_t) { _mm256_storeu_si256((__m256i*)p, v); }
EVO_INLINE void store_half(void* p, half v, first n) { _mm256_mask_storeu_epi16(p, mask16(n.n), v); }
EVO_INLINE void stream_half(void* p, half v) { _mm256_stream_si256((__m256i*)p, v); }
EVO_INLINE vec from_f16(half h) { return (vec)_mm512_cvtph_ps(h); }
EVO_INLINE half to_f16(vec v) { return _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT); }
EVO_INLINE vec from_bf16(half h) { return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16); }
EVO_INLINE half narrow(ivec v) { return _mm512_cvtepi32_epi16((__m512i)v); }
#else
typedef uint16_t half __attribute__((vector_size(2 * lanes)));
EVO_INLINE half load_half(const void* p, all_t) {
    half h;
    __builtin_memcpy(&h, p, sizeof h);
    return h;
}
EVO_INLINE half load_half(const void* p, first n) {
    half h{};
    for (int64_t i = 0; i < n.n; ++i) h[i] = ((const uint16_t*)p)[i];
    return h;
}
EVO_INLINE void store_half(void* p, half v, all_t) { __builtin_memcpy(p, &v, sizeof v); }
EVO_INLINE void store_half(void* p, half v, first n) {
    for (int64_t i = 0; i < n.n; ++i) ((uint16_t*)p)[i] = v[i];
}
#ifdef EVO_AVX2
EVO_INLINE void stream_half(void* p, half v) { _mm_stream_si128((__m128i*)p, (__m128i)v); }
EVO_INLINE vec from_f16(half h) { return (vec)_mm256_cvtph_ps((__m128i)h); }
EVO_INLINE half to_f16(vec v) { return (half)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT); }
#else
EVO_INLINE void stream_half(void* p, half v) { _mm_stream_si64((long long*)p, (long long)v); }
EVO_INLINE vec from_f16(half h) {
    vec v;
    for (int i = 0; i < lanes; ++i) {
        f16 x;
        x.bits = h[i];
        v[i] = x;
    }
    return v;
}
EVO_INLINE half to_f16(vec v) {
    half h;
    for (int i = 0; i < lanes; ++i) h[i] = f16(v[i]).bits;
    return h;
}
#endif
EVO_INLINE vec from_bf16(half h) { return (vec)(__builtin_convertvector(h, ivec) << 16); }
EVO_INLINE half narrow(ivec v) { return __builtin_convertvector(v, half); }
#endif
EVO_INLINE half to_bf16(vec v) {
    ivec u = (ivec)v;
    ivec rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    return narrow(v != v ? broadcast((int32_t)0x7fc0) : rounded);
}
}  // namespace detail

// The nearest number of 16 bits, as it is computed with.
EVO_INLINE vec as_f16(vec v) { return detail::from_f16(detail::to_f16(v)); }
EVO_INLINE vec as_bf16(vec v) { return detail::from_bf16(detail::to_bf16(v)); }
template <class Type>
EVO_INLINE Type as_f16(Type x) { return (float)f16((float)x); }
template <class Type>
EVO_INLINE Type as_bf16(Type x) { return (float)bf16((float)x); }

EVO_INLINE float load(const f16* p) { return *p; }
EVO_INLINE float load(const bf16* p) { return *p; }
EVO_INLINE vec load(const f16* p, all_t n) { return detail::from_f16(detail::load_half(p, n)); }
EVO_INLINE vec load(const f16* p, first n) { return detail::from_f16(detail::load_half(p, n)); }
EVO_INLINE vec load(const bf16* p, all_t n) { return detail::from_bf16(detail::load_half(p, n)); }
EVO_INLINE vec load(const bf16* p, first n) { return detail::from_bf16(detail::load_half(p, n)); }
EVO_INLINE void store(f16* p, vec v, all_t n) { detail::store_half(p, detail::to_f16(v), n); }
EVO_INLINE void store(f16* p, vec v, first n) { detail::store_half(p, detail::to_f16(v), n); }
EVO_INLINE void store(bf16* p, vec v, all_t n) { detail::store_half(p, detail::to_bf16(v), n); }
EVO_INLINE void store(bf16* p, vec v, first n) { detail::store_half(p, detail::to_bf16(v), n); }
EVO_INLINE void stream(f16* p, vec v) { detail::stream_half(p, detail::to_f16(v)); }
EVO_INLINE void stream(bf16* p, vec v) { detail::stream_half(p, detail::to_bf16(v)); }

namespace detail {
template <class Type>
struct several {
    typedef Type type __attribute__((vector_size(sizeof(Type) * lanes)));
};
template <class Type>
EVO_INLINE auto several_at(const Type* p) {
    typename several<Type>::type v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
// To and from 32 bits; __builtin_convertvector goes lane by lane where bytes meet wider elements (gcc 12).
#ifdef EVO_AVX512
EVO_INLINE ivec widened(several<uint8_t>::type v) { return (ivec)_mm512_cvtepu8_epi32((__m128i)v); }
EVO_INLINE ivec widened(several<int8_t>::type v) { return (ivec)_mm512_cvtepi8_epi32((__m128i)v); }
EVO_INLINE ivec widened(several<int16_t>::type v) { return (ivec)_mm512_cvtepi16_epi32((__m256i)v); }
EVO_INLINE auto narrowed(ivec v) { return (several<uint8_t>::type)_mm512_cvtepi32_epi8((__m512i)v); }
#elif defined(EVO_AVX2)
EVO_INLINE ivec widened(several<uint8_t>::type v) { return (ivec)_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)v)); }
EVO_INLINE ivec widened(several<int8_t>::type v) { return (ivec)_mm256_cvtepi8_epi32(_mm_cvtsi64_si128((int64_t)v)); }
EVO_INLINE ivec widened(several<int16_t>::type v) { return (ivec)_mm256_cvtepi16_epi32((__m128i)v); }
EVO_INLINE auto narrowed(ivec v) {
    const ivec low = v & 255;  // packing saturates
    const __m128i both = _mm_packus_epi32(_mm256_castsi256_si128((__m256i)low), _mm256_extracti128_si256((__m256i)low, 1));
    return (several<uint8_t>::type)_mm_cvtsi128_si64(_mm_packus_epi16(both, both));
}
#else
template <class Vector>
EVO_INLINE ivec widened(Vector v) { return __builtin_convertvector(v, ivec); }
EVO_INLINE auto narrowed(ivec v) { return __builtin_convertvector(v, several<uint8_t>::type); }
#endif
EVO_INLINE ivec widened(several<int32_t>::type v) { return v; }

// Every s-th element from p on: s loads, the last of which ends with the last one wanted, and a choice among them.
template <int s, class Type>
EVO_INLINE auto every(const Type* p) {
    const int width = lanes;
    const ivec at = iota() * s;
    auto found = several_at(p);
#pragma GCC unroll 4
    for (int k = 1; k < s; ++k) {
        const int start = k < s - 1 ? k * width : (width - 1) * (s - 1);
        const ivec from = at < k * width ? k == 1 ? at : iota() : at - start + width;
        found = __builtin_shuffle(found, several_at(p + start), __builtin_convertvector(from, decltype(found == found)));
    }
    return found;
}
// Those that are a stride apart, one by one.
template <class Type>
EVO_INLINE vec apart(const Type* p, int64_t stride, int64_t n) {
    vec v{};
    for (int64_t i = 0; i < n; ++i) v[i] = (float)p[i * stride];
    return v;
}
// The elements up to p, the last one first.
template <class Type>
EVO_INLINE auto backwards(const Type* p) {
    const auto found = several_at(p - (lanes - 1));
    return __builtin_shuffle(found, __builtin_convertvector((int32_t)(lanes - 1) - iota(), decltype(found == found)));
}
// Whether a stride is known to the compiler, and one that `every` takes.
#define EVO_NEAR(stride) (__builtin_constant_p(stride) && ((stride) == -1 || ((stride) >= 2 && (stride) <= 4)))
template <class Type>
EVO_INLINE auto every(const Type* p, int64_t stride) {
    return stride == -1 ? backwards(p) : stride == 2 ? every<2>(p) : stride == 3 ? every<3>(p) : every<4>(p);
}
}  // namespace detail

// masks from and to bool tensors (one byte per element)
EVO_INLINE bool load(const bool* p) { return *(const uint8_t*)p != 0; }
EVO_INLINE ivec load(const bool* p, first n) {
    ivec m{};
    for (int64_t i = 0; i < n.n; ++i) m[i] = -(int32_t)(((const uint8_t*)p)[i] != 0);
    return m;
}
EVO_INLINE ivec load(const bool* p, all_t) {
    return detail::widened(detail::several_at((const uint8_t*)p)) != 0;
}
EVO_INLINE void store(bool* p, ivec m, first n) {
    for (int64_t i = 0; i < n.n; ++i) ((uint8_t*)p)[i] = m[i] != 0;
}
EVO_INLINE void store(bool* p, ivec m, all_t) {
    const auto b = detail::narrowed(m & 1);
    __builtin_memcpy(p, &b, sizeof b);
}

// integers become floats as they are loaded
#define EVO_CONVERTING(Type)                                                                                  \
    EVO_INLINE vec load(const Type* p, all_t) {                                                               \
        return __builtin_convertvector(detail::widened(detail::several_at(p)), vec);                          \
    }                                                                                                         \
    EVO_INLINE vec load(const Type* p, first n) {                                                             \
        vec v{};                                                                                              \
        for (int64_t i = 0; i < n.n; ++i) v[i] = (float)p[i];                                                 \
        return v;                                                                                             \
    }                                                                                                         \
    EVO_INLINE vec gather(const Type* p, int64_t stride, all_t) {                                             \
        if (EVO_NEAR(stride)) return __builtin_convertvector(detail::widened(detail::every(p, stride)), vec); \
        return detail::apart(p, stride, lanes);                                                               \
    }
EVO_CONVERTING(int8_t)
EVO_CONVERTING(uint8_t)
EVO_CONVERTING(int16_t)
EVO_CONVERTING(int32_t)
#undef EVO_CONVERTING

// Lane i reads p[i · stride].
EVO_INLINE vec gather(const f16* p, int64_t stride, all_t) {
    if (EVO_NEAR(stride)) return detail::from_f16((detail::half)detail::every((const uint16_t*)p, stride));
    return detail::apart(p, stride, lanes);
}
EVO_INLINE vec gather(const bf16* p, int64_t stride, all_t) {
    if (EVO_NEAR(stride)) return detail::from_bf16((detail::half)detail::every((const uint16_t*)p, stride));
    return detail::apart(p, stride, lanes);
}
template <class Type>
EVO_INLINE vec gather(const Type* p, int64_t stride, first n) { return detail::apart(p, stride, n.n); }
#ifdef EVO_AVX512
EVO_INLINE vec gather(const float* p, int64_t stride, all_t) {
    if (EVO_NEAR(stride)) return detail::every(p, stride);
    return (vec)_mm512_i32gather_ps((__m512i)(iota() * (int32_t)stride), p, 4);
}
EVO_INLINE vec gather(const float* p, int64_t stride, first n) {
    __m512i index = (__m512i)(iota() * (int32_t)stride);
    return (vec)_mm512_mask_i32gather_ps(_mm512_setzero_ps(), detail::mask16(n.n), index, p, 4);
}
#elif defined(EVO_AVX2)
EVO_INLINE vec gather(const float* p, int64_t stride, all_t) {
    if (EVO_NEAR(stride)) return detail::every(p, stride);
    return (vec)_mm256_i32gather_ps(p, (__m256i)(iota() * (int32_t)stride), 4);
}
#else
EVO_INLINE vec gather(const float* p, int64_t stride, all_t) {
    return EVO_NEAR(stride) ? detail::every(p, stride) : detail::apart(p, stride, lanes);
}
#endif

// Whole numbers of 32 bits; longer ones saturate.
EVO_INLINE int32_t to_i32(int64_t x) { return x < INT32_MIN ? INT32_MIN : x > INT32_MAX ? INT32_MAX : (int32_t)x; }
// By the instructions: what a conversion cannot hold is undefined in C++, and one that is taken back is left out.
EVO_INLINE ivec to_i32(vec x) {
#ifdef EVO_AVX512
    return (ivec)_mm512_cvttps_epi32((__m512)x);
#elif defined(EVO_AVX2)
    return (ivec)_mm256_cvttps_epi32((__m256)x);
#else
    return (ivec)_mm_cvttps_epi32((__m128)x);
#endif
}
// The whole number of a float towards 0; out of range it wraps as torch's does, by way of a longer one.
template <class Type>
EVO_INLINE Type whole(float x) {
    return (Type)(sizeof(Type) == 8 ? _mm_cvttss_si64(_mm_set_ss(x)) : _mm_cvttss_si32(_mm_set_ss(x)));
}
template <class Type>
EVO_INLINE Type whole(double x) {
    const bool wide = sizeof(Type) == 8 || Type(-1) > Type(0);
    return (Type)(wide ? _mm_cvttsd_si64(_mm_set_sd(x)) : _mm_cvttsd_si32(_mm_set_sd(x)));
}
template <class Type>
EVO_INLINE ivec whole(vec x) {
    const int unused = 32 - 8 * (int)sizeof(Type);
    return Type(-1) > Type(0) ? to_i32(x) & ((1 << 8 * sizeof(Type)) - 1) : to_i32(x) << unused >> unused;
}
EVO_INLINE vec real(ivec x) { return __builtin_convertvector(x, vec); }
EVO_INLINE ivec load_i32(const int32_t* p, all_t) { return detail::several_at(p); }
EVO_INLINE ivec load_i32(const int64_t* p, all_t) {
#ifdef EVO_AVX512
    const __m256i low = _mm512_cvtsepi64_epi32(_mm512_loadu_si512(p)), high = _mm512_cvtsepi64_epi32(_mm512_loadu_si512(p + 8));
    return (ivec)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
#else
    ivec v;
    for (int i = 0; i < lanes; ++i) v[i] = to_i32(p[i]);
    return v;
#endif
}
template <class Type>
EVO_INLINE ivec gather_i32(const Type* p, int64_t stride, first n) {
    ivec v{};
    for (int64_t i = 0; i < n.n; ++i) v[i] = to_i32((int64_t)p[i * stride]);
    return v;
}
template <class Type>
EVO_INLINE ivec load_i32(const Type* p, first n) { return gather_i32(p, 1, n); }
EVO_INLINE void store(int32_t* p, ivec v, all_t) { __builtin_memcpy(p, &v, sizeof v); }
EVO_INLINE void store(int16_t* p, ivec v, all_t) { detail::store_half(p, detail::narrow(v), all); }
template <class Type>
EVO_INLINE void store_bytes(Type* p, ivec v) {
    const auto b = detail::narrowed(v);
    __builtin_memcpy(p, &b, sizeof b);
}
EVO_INLINE void store(int8_t* p, ivec v, all_t) { store_bytes(p, v); }
EVO_INLINE void store(uint8_t* p, ivec v, all_t) { store_bytes(p, v); }
EVO_INLINE void store(int64_t* p, ivec v, all_t) {
#ifdef EVO_AVX512
    _mm512_storeu_si512(p, _mm512_cvtepi32_epi64(_mm512_castsi512_si256((__m512i)v)));
    _mm512_storeu_si512(p + 8, _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64((__m512i)v, 1)));
#else
    for (int i = 0; i < lanes; ++i) p[i] = v[i];
#endif
}
template <class Type>
EVO_INLINE void store(Type* p, ivec v, first n) {
    for (int64_t i = 0; i < n.n; ++i) p[i] = (Type)v[i];
}
// Lane i reads p[at[i]].
template <class Type>
EVO_INLINE vec lookup(const Type* p, ivec at, first n) {
    vec v{};
    for (int64_t i = 0; i < n.n; ++i) v[i] = (float)p[at[i]];
    return v;
}
template <class Type>
EVO_INLINE vec lookup(const Type* p, ivec at, all_t) { return lookup(p, at, first{lanes}); }
#ifdef EVO_AVX512
EVO_INLINE vec lookup(const float* p, ivec at, all_t) { return (vec)_mm512_i32gather_ps((__m512i)at, p, 4); }
EVO_INLINE vec lookup(const float* p, ivec at, first n) {
    return (vec)_mm512_mask_i32gather_ps(_mm512_setzero_ps(), detail::mask16(n.n), (__m512i)at, p, 4);
}
#elif defined(EVO_AVX2)
EVO_INLINE vec lookup(const float* p, ivec at, all_t) { return (vec)_mm256_i32gather_ps(p, (__m256i)at, 4); }
#endif

// The same with a number of lanes.
// Before AVX-512 a masked store takes tens of cycles on some processors, and other types than float go one by one:
// there it is worth a jump to find out that all lanes take part.
#ifdef EVO_AVX512
#define EVO_FULL(n) EVO_WHOLE(n)
#else
#define EVO_FULL(n) ((n) >= lanes)
#endif
template <class Type>
EVO_INLINE auto load(const Type* p, int64_t n) { return EVO_FULL(n) ? load(p, all) : load(p, first{n}); }
EVO_INLINE vec load(const float* p, int64_t n) { return EVO_WHOLE(n) ? load(p, all) : load(p, first{n}); }
template <class Type, class Vector>
EVO_INLINE void store(Type* p, Vector v, int64_t n) {
    if (EVO_FULL(n)) store(p, v, all);
    else store(p, v, first{n});
}
template <class Type>
EVO_INLINE vec gather(const Type* p, int64_t stride, int64_t n) {
    return EVO_FULL(n) ? gather(p, stride, all) : gather(p, stride, first{n});
}
template <class Type>
EVO_INLINE ivec load_i32(const Type* p, int64_t n) { return EVO_FULL(n) ? load_i32(p, all) : load_i32(p, first{n}); }
template <class Type>
EVO_INLINE ivec gather_i32(const Type* p, int64_t stride, int64_t n) { return gather_i32(p, stride, first{n}); }
template <class Type>
EVO_INLINE vec lookup(const Type* p, ivec at, int64_t n) { return EVO_FULL(n) ? lookup(p, at, all) : lookup(p, at, first{n}); }
template <class Type>
EVO_INLINE vec lookup(const Type* p, ivec at, int64_t n, ivec mask) {
    vec v{};
    for (int64_t i = 0; i < n; ++i)
        if (mask[i]) v[i] = (float)p[at[i]];
    return v;
}
#ifdef EVO_AVX512
EVO_INLINE vec lookup(const float* p, ivec at, int64_t n, ivec mask) {
    const __mmask16 m = _mm512_movepi32_mask((__m512i)mask) & detail::mask16(n);
    return (vec)_mm512_mask_i32gather_ps(_mm512_setzero_ps(), m, (__m512i)at, p, 4);
}
#endif
// Lane i is first + i · step.
EVO_INLINE ivec places(int64_t first, int64_t step) { return iota() * (int32_t)step + (int32_t)first; }
// Lanes i where first + i · step >= 0, and loads of lanes that take part in such a mask; others read as 0.
EVO_INLINE ivec at_least_0(int64_t first, int64_t step) { return places(first, step) >= 0; }
// Lane i is first + i · step, as a float.
EVO_INLINE vec positions(int64_t first, int64_t step) { return real(places(first, step)); }
EVO_INLINE vec load(const float* p, int64_t n, ivec mask) {
#ifdef EVO_AVX512
    __mmask16 m = _mm512_movepi32_mask((__m512i)mask);
    return (vec)_mm512_maskz_loadu_ps(EVO_WHOLE(n) ? m : (__mmask16)(m & detail::mask16(n)), p);
#elif defined(EVO_AVX2)
    return (vec)_mm256_maskload_ps(p, (__m256i)(EVO_WHOLE(n) ? mask : mask & take(first{n})));
#else
    vec v{};
    for (int64_t i = 0; i < n; ++i)
        if (mask[i]) v[i] = p[i];
    return v;
#endif
}
// The same lanes as at_least_0, of which two tell whether all are: most vectors lie inside all edges, and need no mask.
struct edge {
    int64_t first, step;
    EVO_MEMBER bool everywhere() const { return first >= 0 && first + (lanes - 1) * step >= 0; }
    EVO_MEMBER ivec mask() const { return at_least_0(first, step); }
};
template <class... Edge>
EVO_INLINE vec load(const float* p, int64_t n, edge one, Edge... others) {
    if (n >= lanes && one.everywhere() && (others.everywhere() && ...)) return load(p, all);
    return load(p, n, (one.mask() & ... & others.mask()));
}
EVO_INLINE vec gather(const float* p, int64_t stride, int64_t n, ivec mask) {
#ifdef EVO_AVX512
    __mmask16 m = _mm512_movepi32_mask((__m512i)mask) & detail::mask16(n);
    if (EVO_NEAR(stride) && m == 0xffff) return detail::every(p, stride);
    return (vec)_mm512_mask_i32gather_ps(_mm512_setzero_ps(), m, (__m512i)(iota() * (int32_t)stride), p, 4);
#elif defined(EVO_AVX2)
    __m256i m = (__m256i)(mask & take(first{n}));
    if (EVO_NEAR(stride) && _mm256_movemask_ps((__m256)m) == 0xff) return detail::every(p, stride);
    return (vec)_mm256_mask_i32gather_ps(_mm256_setzero_ps(), p, (__m256i)(iota() * (int32_t)stride), (__m256)m, 4);
#else
    vec v{};
    for (int64_t i = 0; i < n; ++i)
        if (mask[i]) v[i] = p[i * stride];
    return v;
#endif
}
// Lane i reads p[(first + i) / by] where that is whole and the mask holds; others read as 0.
EVO_INLINE vec load_quotients(const float* p, int64_t first, int64_t by, int64_t n, ivec mask) {
    vec v{};
    const int64_t start = ((-first) % by + by) % by;  // the first lane that is whole
#ifdef EVO_AVX512
    __mmask16 m = _mm512_movepi32_mask((__m512i)mask) & detail::mask16(n);
    uint32_t whole = 0;
    for (int64_t i = start; i < lanes; i += by) whole |= 1u << i;
    m &= (__mmask16)whole;
    if (m) v = (vec)_mm512_maskz_expandloadu_ps(m, p + (first + __builtin_ctz(m)) / by);
#else
    for (int64_t i = start; i < n; i += by)
        if (mask[i]) v[i] = p[(first + i) / by];
#endif
    return v;
}
namespace detail {
// Exchanges off-diagonal blocks of w by w elements.
template <int w>
EVO_INLINE void exchange(vec* row) {
    const ivec lane = iota(), odd = (lane & w) != 0;
    const ivec upper = odd ? lane - w + (int32_t)lanes : lane, lower = odd ? lane + (int32_t)lanes : lane + w;
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i)
        if (!(i & w)) {
            const vec a = row[i], b = row[i + w];
            row[i] = __builtin_shuffle(a, b, upper);
            row[i + w] = __builtin_shuffle(a, b, lower);
        }
}
}  // namespace detail

// `out` row k, lane i = lane k of vector_of(i, count), for k < count and i < n, both at most `lanes`; lanes from n on
// are 0.
template <class Function>
EVO_INLINE void transpose(float* out, int64_t width, int64_t count, int64_t n, Function vector_of) {
    vec row[lanes];
    if (count == lanes && n == lanes) {
#pragma GCC unroll 16
        for (int64_t i = 0; i < lanes; ++i) row[i] = vector_of(i, lanes);
    } else {
        for (int64_t i = 0; i < lanes; ++i) row[i] = i < n ? vector_of(i, count) : vec{};
    }
    detail::exchange<1>(row);
    detail::exchange<2>(row);
    if constexpr (lanes >= 8) detail::exchange<4>(row);
    if constexpr (lanes >= 16) detail::exchange<8>(row);
#pragma GCC unroll 16
    for (int k = 0; k < lanes; ++k)
        if (k < count) store(out + k * width, row[k], all);
}
// Streams whole vectors where `aligned` says that `p` is, else stores.
template <class Type>
EVO_INLINE void stream(Type* p, vec v, int64_t n, bool aligned) {
    if (aligned && n == lanes) stream(p, v);
    else store(p, v, n);
}
// What a scan has after each lane of `x`, from the vector's first lane on: log2(lanes) steps (Hillis and Steele 1986).
template <class Function>
EVO_INLINE vec running(vec x, float start, Function join) {
#pragma GCC unroll 4
    for (int reach = 1; reach < lanes; reach *= 2) {
        const ivec from = iota() - reach;
        const vec before = __builtin_shuffle(x, from & (int32_t)(lanes - 1));
        x = join(from < 0 ? broadcast(start) : before, x);
    }
    return x;
}
EVO_INLINE vec running_sum(vec x) { return running(x, 0, [](vec a, vec b) { return a + b; }); }
EVO_INLINE vec running_prod(vec x) { return running(x, 1, [](vec a, vec b) { return a * b; }); }
EVO_INLINE vec running_max(vec x) { return running(x, -EVO_INF, [](vec a, vec b) { return max(a, b); }); }
EVO_INLINE vec running_min(vec x) { return running(x, EVO_INF, [](vec a, vec b) { return min(a, b); }); }
EVO_INLINE float last(vec x) { return x[lanes - 1]; }

namespace detail {
// Vector k of the elements that lie side by side: lane i of parts[0], of parts[1], …, lane i + 1 of parts[0], ….
template <int k, class Wide, class... Vector>
EVO_INLINE Wide beside(Wide first, Vector... others) {
    constexpr int count = 1 + sizeof...(others);
    const Wide all[count] = {first, others...};
    const ivec flat = iota() + k * (int32_t)lanes, from = flat / count;
    Wide v = __builtin_shuffle(first, from);
#pragma GCC unroll 4
    for (int part = 1; part < count; ++part) v = select(flat % count == part, __builtin_shuffle(all[part], from), v);
    return v;
}
}  // namespace detail

// Stores p[i · count + k] = lane i of the k-th of `count` vectors, for i < n.
template <class Type, class... Vector>
EVO_INLINE void store_beside(Type* p, int64_t n, Vector... parts) {
    constexpr int64_t count = sizeof...(parts);
    store(p, detail::beside<0>(parts...), min(n * count, lanes));
    store(p + lanes, detail::beside<1>(parts...), max(min(n * count - lanes, lanes), int64_t(0)));
    if constexpr (count > 2)
        store(p + 2 * lanes, detail::beside<2>(parts...), max(min(n * count - 2 * lanes, lanes), int64_t(0)));
    if constexpr (count > 3)
        store(p + 3 * lanes, detail::beside<3>(parts...), max(min(n * count - 3 * lanes, lanes), int64_t(0)));
}
// The same, streamed where all take part and `aligned` says that `p` is.
template <class Type, class... Vector>
EVO_INLINE void stream_beside(Type* p, int64_t n, bool aligned, Vector... parts) {
    if (!aligned || n != lanes) {
        store_beside(p, n, parts...);
        return;
    }
    stream(p, detail::beside<0>(parts...));
    stream(p + lanes, detail::beside<1>(parts...));
    if constexpr (sizeof...(parts) > 2) stream(p + 2 * lanes, detail::beside<2>(parts...));
    if constexpr (sizeof...(parts) > 3) stream(p + 3 * lanes, detail::beside<3>(parts...));
}
// How many lanes take part when `left` elements are left; `whole` promises that none will be missing.
EVO_INLINE int64_t part(int64_t left, bool whole) {
    return whole ? lanes : left < 0 ? 0 : left < lanes ? left : lanes;
}

template <class Type>
EVO_INLINE void prefetch(const Type* p) { __builtin_prefetch((const void*)p, 0, 3); }
template <class Type>
EVO_INLINE void prefetch_to_write(const Type* p) { __builtin_prefetch((const void*)p, 1, 3); }

// In the body of a loop: keeps the compiler from vectorising it.
EVO_INLINE void one_by_one() { __asm__ volatile(""); }

// ---- workspace ----

// Bytes of `count` elements, rounded up to whole lines of 64.
template <class Type>
EVO_INLINE int64_t padded(int64_t count) { return (count * (int64_t)sizeof(Type) + 63) / 64 * 64; }
// Hands out 64-byte aligned pieces of the workspace.
struct arena {
    char* next;
    template <class Type>
    Type* take(int64_t count) {
        Type* piece = (Type*)next;
        next += padded<Type>(count);
        return piece;
    }
};
extern "C" int omp_get_thread_num(void) noexcept;

// As long as it lives, results below the smallest normal number are 0 in the threads that a call is given: some
// processors take a hundred times as long for them. What was set before comes back.
class flushed {
    static constexpr int most = 256;  // of more threads the others do without
    const int threads;
    unsigned modes[most];

public:
    explicit flushed(int64_t count) : threads((int)count) {
#ifdef __SSE__
        #pragma omp parallel num_threads(threads)
        if (omp_get_thread_num() < most) {
            modes[omp_get_thread_num()] = __builtin_ia32_stmxcsr();
            __builtin_ia32_ldmxcsr(modes[omp_get_thread_num()] | 0x8040);
        }
#endif
    }
    ~flushed() {
#ifdef __SSE__
        #pragma omp parallel num_threads(threads)
        if (omp_get_thread_num() < most) __builtin_ia32_ldmxcsr(modes[omp_get_thread_num()]);
#endif
    }
};

}  // namespace evo
