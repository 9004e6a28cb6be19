// Vectors of float whose width the instruction set decides, and the mathematics on them.
//
// Every operation has the same name for `evo::vec` and for scalars, so that one expression serves
// vector and scalar code. Elementary functions are accurate to about 2 ulp and treat infinities, NaN
// and denormal results as IEEE 754 asks; min and max propagate NaN as torch does. The build allows
// reassociation (KERNELS: build), so steps that rely on exact rounding pass through `detail::keep`.
#pragma once
#include <immintrin.h>
#include <stdint.h>

#define EVO_INLINE static inline __attribute__((always_inline, unused))
#define EVO_MEMBER inline __attribute__((always_inline))

namespace evo {

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define EVO_AVX512 1
constexpr int64_t lanes = 16;
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define EVO_AVX2 1
constexpr int64_t lanes = 8;
#else
constexpr int64_t lanes = 4;
#endif

typedef float vec __attribute__((vector_size(4 * lanes)));
typedef int32_t ivec __attribute__((vector_size(4 * lanes)));  // also masks: 0 or -1 per lane

// How many lanes of a vector take part: all of them, or the first n.
struct all_t {};
struct first {
    int64_t n;
};
constexpr all_t all{};

#define EVO_INF (__builtin_inff())
#define EVO_NAN (__builtin_nanf(""))

namespace detail {
template <class T>
EVO_INLINE T keep(T x) {  // what went in cannot be reassociated with what comes out
#ifdef EVO_AVX512
    __asm__("" : "+v"(x));
#else
    __asm__("" : "+x"(x));
#endif
    return x;
}
template <class F>
EVO_INLINE vec lanewise(vec x, F f) {
    vec y{};
    for (int i = 0; i < lanes; ++i) y[i] = f(x[i]);
    return y;
}
template <class F>
EVO_INLINE vec lanewise(vec x, vec y, F f) {
    vec z{};
    for (int i = 0; i < lanes; ++i) z[i] = f(x[i], y[i]);
    return z;
}
EVO_INLINE ivec iota() {
    ivec v{};
    for (int i = 0; i < lanes; ++i) v[i] = i;
    return v;
}
#ifdef EVO_AVX512
EVO_INLINE __mmask16 mask16(int64_t n) { return (__mmask16)_bzhi_u32(0xffffu, (unsigned)n); }
#endif
}  // namespace detail

EVO_INLINE vec broadcast(float x) { return vec{} + x; }
EVO_INLINE ivec broadcast(int32_t x) { return ivec{} + x; }
EVO_INLINE ivec iota() { return detail::iota(); }  // 0, 1, 2, …
EVO_INLINE ivec take(first n) { return detail::iota() < (int32_t)n.n; }

// ---- half-precision storage: values are computed in float ----

struct bf16 {
    uint16_t bits;
    bf16() = default;
    explicit bf16(float x) {
        uint32_t u;
        __builtin_memcpy(&u, &x, 4);
        bits = x != x ? 0x7fc0 : (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);  // to nearest, ties to even
    }
    operator float() const {
        uint32_t u = (uint32_t)bits << 16;
        float x;
        __builtin_memcpy(&x, &u, 4);
        return x;
    }
};

struct f16 {
    uint16_t bits;
    f16() = default;
#ifdef __F16C__
    explicit f16(float x) : bits((uint16_t)_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), 0), 0)) {}
    operator float() const { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits))); }
#else
    explicit f16(float x) {
        uint32_t u;
        __builtin_memcpy(&u, &x, 4);
        uint32_t sign = (u >> 16) & 0x8000, a = u & 0x7fffffff;
        if (a > 0x7f800000) bits = (uint16_t)(sign | 0x7e00);
        else if (a >= 0x477ff000) bits = (uint16_t)(sign | 0x7c00);
        else if (a < 0x38800000) {  // a denormal half: let a float addition round it
            float y, magic = 0.5f;
            __builtin_memcpy(&y, &a, 4);
            y = detail::keep(y + magic);
            __builtin_memcpy(&a, &y, 4);
            bits = (uint16_t)(sign | (a - 0x3f000000));
        } else bits = (uint16_t)(sign | ((a - 0x38000000 + 0xfff + ((a >> 13) & 1)) >> 13));
    }
    operator float() const {
        uint32_t sign = (uint32_t)(bits & 0x8000) << 16, e = (bits >> 10) & 31, m = bits & 0x3ff, u;
        float x;
        if (e == 0) {
            x = (float)m * 0x1p-24f;
            __builtin_memcpy(&u, &x, 4);
            u |= sign;
        } else u = sign | (e == 31 ? 0x7f800000 | (m << 13) : ((e + 112) << 23) | (m << 13));
        __builtin_memcpy(&x, &u, 4);
        return x;
    }
#endif
};

// ---- memory: contiguous, the first n lanes (the others read as 0), strided ----

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

// masks from and to bool tensors (one byte per element)
EVO_INLINE bool load(const bool* p) { return *(const uint8_t*)p != 0; }
EVO_INLINE ivec load(const bool* p, first n) {
    ivec m{};
    for (int64_t i = 0; i < n.n; ++i) m[i] = -(int32_t)(((const uint8_t*)p)[i] != 0);
    return m;
}
EVO_INLINE ivec load(const bool* p, all_t) {
    typedef uint8_t bytes __attribute__((vector_size(lanes)));
    bytes b;
    __builtin_memcpy(&b, p, sizeof b);
    return __builtin_convertvector(b, ivec) != 0;
}
EVO_INLINE void store(bool* p, ivec m, first n) {
    for (int64_t i = 0; i < n.n; ++i) ((uint8_t*)p)[i] = m[i] != 0;
}
EVO_INLINE void store(bool* p, ivec m, all_t) {
    typedef uint8_t bytes __attribute__((vector_size(lanes)));
    bytes b = __builtin_convertvector(m & 1, bytes);
    __builtin_memcpy(p, &b, sizeof b);
}

// integers become floats as they are loaded
#define EVO_CONVERTING(T)                                            \
    EVO_INLINE vec load(const T* p, all_t) {                         \
        typedef T many __attribute__((vector_size(sizeof(T) * lanes))); \
        many v;                                                      \
        __builtin_memcpy(&v, p, sizeof v);                           \
        return __builtin_convertvector(v, vec);                      \
    }                                                                \
    EVO_INLINE vec load(const T* p, first n) {                       \
        vec v{};                                                     \
        for (int64_t i = 0; i < n.n; ++i) v[i] = (float)p[i];        \
        return v;                                                    \
    }
EVO_CONVERTING(int8_t)
EVO_CONVERTING(uint8_t)
EVO_CONVERTING(int16_t)
EVO_CONVERTING(int32_t)
#undef EVO_CONVERTING

// Lane i reads p[i · stride].
template <class T>
EVO_INLINE vec gather(const T* p, int64_t stride, all_t) {
    vec v{};
    for (int i = 0; i < lanes; ++i) v[i] = (float)p[i * stride];
    return v;
}
template <class T>
EVO_INLINE vec gather(const T* p, int64_t stride, first n) {
    vec v{};
    for (int64_t i = 0; i < n.n; ++i) v[i] = (float)p[i * stride];
    return v;
}
#ifdef EVO_AVX512
EVO_INLINE vec gather(const float* p, int64_t stride, all_t) {
    return (vec)_mm512_i32gather_ps((__m512i)(iota() * (int32_t)stride), p, 4);
}
EVO_INLINE vec gather(const float* p, int64_t stride, first n) {
    __m512i index = (__m512i)(iota() * (int32_t)stride);
    return (vec)_mm512_mask_i32gather_ps(_mm512_setzero_ps(), detail::mask16(n.n), index, p, 4);
}
#elif defined(EVO_AVX2)
EVO_INLINE vec gather(const float* p, int64_t stride, all_t) {
    return (vec)_mm256_i32gather_ps(p, (__m256i)(iota() * (int32_t)stride), 4);
}
#endif

// The same with a number of lanes. Where the compiler knows that all take part, nothing is masked.
#define EVO_WHOLE(n) (__builtin_constant_p(n) && (n) == lanes)
// Before AVX-512 a masked store takes tens of cycles on some processors, and other types than float go one by one:
// there it is worth a jump to find out that all lanes take part.
#ifdef EVO_AVX512
#define EVO_FULL(n) EVO_WHOLE(n)
#else
#define EVO_FULL(n) ((n) >= lanes)
#endif
template <class T>
EVO_INLINE auto load(const T* p, int64_t n) { return EVO_FULL(n) ? load(p, all) : load(p, first{n}); }
EVO_INLINE vec load(const float* p, int64_t n) { return EVO_WHOLE(n) ? load(p, all) : load(p, first{n}); }
template <class T, class V>
EVO_INLINE void store(T* p, V v, int64_t n) {
    if (EVO_FULL(n)) store(p, v, all);
    else store(p, v, first{n});
}
template <class T>
EVO_INLINE vec gather(const T* p, int64_t stride, int64_t n) {
    return EVO_FULL(n) ? gather(p, stride, all) : gather(p, stride, first{n});
}
// Lanes i where first + i · step >= 0, and loads of lanes that take part in such a mask; others read as 0.
EVO_INLINE ivec at_least_0(int64_t first, int64_t step) { return iota() * (int32_t)step + (int32_t)first >= 0; }
// Lane i is first + i · step, as a float.
EVO_INLINE vec positions(int64_t first, int64_t step) {
    return __builtin_convertvector(iota() * (int32_t)step + (int32_t)first, vec);
}
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
EVO_INLINE vec gather(const float* p, int64_t stride, int64_t n, ivec mask) {
#ifdef EVO_AVX512
    __mmask16 m = _mm512_movepi32_mask((__m512i)mask) & detail::mask16(n);
    return (vec)_mm512_mask_i32gather_ps(_mm512_setzero_ps(), m, (__m512i)(iota() * (int32_t)stride), p, 4);
#elif defined(EVO_AVX2)
    __m256i m = (__m256i)(mask & take(first{n}));
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
template <class F>
EVO_INLINE void transpose(float* out, int64_t width, int64_t count, int64_t n, F vector_of) {
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
template <class T>
EVO_INLINE void stream(T* p, vec v, int64_t n, bool aligned) {
    if (aligned && n == lanes) stream(p, v);
    else store(p, v, n);
}
// How many lanes take part when `left` elements are left; `whole` promises that none will be missing.
EVO_INLINE int64_t part(int64_t left, bool whole) {
    return whole ? lanes : left < 0 ? 0 : left < lanes ? left : lanes;
}

template <class T>
EVO_INLINE void prefetch(const T* p) { __builtin_prefetch((const void*)p, 0, 3); }

// In the body of a loop: keeps the compiler from vectorising it.
EVO_INLINE void one_by_one() { __asm__ volatile(""); }

// ---- selection, comparison, rounding, sign ----

EVO_INLINE vec select(ivec m, vec a, vec b) { return m ? a : b; }
EVO_INLINE ivec select(ivec m, ivec a, ivec b) { return m ? a : b; }
EVO_INLINE vec select(bool m, vec a, vec b) { return m ? a : b; }
template <class T>
EVO_INLINE T select(bool m, T a, T b) { return m ? a : b; }

// Lanes that do not take part become `other`.
EVO_INLINE vec fill(vec v, all_t, float) { return v; }
EVO_INLINE vec fill(vec v, first n, float other) { return select(take(n), v, broadcast(other)); }
EVO_INLINE vec fill(vec v, int64_t n, float other) { return EVO_WHOLE(n) ? v : fill(v, first{n}, other); }

EVO_INLINE ivec isnan(vec x) { return x != x; }
EVO_INLINE bool isnan(float x) { return x != x; }
EVO_INLINE bool isnan(double x) { return x != x; }

namespace detail {  // the instructions: their second operand where either is NaN
#ifdef EVO_AVX512
EVO_INLINE vec greater(vec a, vec b) { return (vec)_mm512_max_ps((__m512)a, (__m512)b); }
EVO_INLINE vec lesser(vec a, vec b) { return (vec)_mm512_min_ps((__m512)a, (__m512)b); }
#elif defined(EVO_AVX2)
EVO_INLINE vec greater(vec a, vec b) { return (vec)_mm256_max_ps((__m256)a, (__m256)b); }
EVO_INLINE vec lesser(vec a, vec b) { return (vec)_mm256_min_ps((__m256)a, (__m256)b); }
#else
EVO_INLINE vec greater(vec a, vec b) { return (vec)_mm_max_ps((__m128)a, (__m128)b); }
EVO_INLINE vec lesser(vec a, vec b) { return (vec)_mm_min_ps((__m128)a, (__m128)b); }
#endif
}  // namespace detail

EVO_INLINE vec max(vec a, vec b) { return select(isnan(b), b, detail::greater(b, a)); }
EVO_INLINE vec min(vec a, vec b) { return select(isnan(b), b, detail::lesser(b, a)); }
// for integers the NaN tests are void
template <class T>
EVO_INLINE T max(T a, T b) { return a != a ? a : (b != b ? b : (b > a ? b : a)); }
template <class T>
EVO_INLINE T min(T a, T b) { return a != a ? a : (b != b ? b : (b < a ? b : a)); }

EVO_INLINE vec abs(vec x) { return (vec)((ivec)x & 0x7fffffff); }
EVO_INLINE float abs(float x) { return __builtin_fabsf(x); }
EVO_INLINE double abs(double x) { return __builtin_fabs(x); }
EVO_INLINE int32_t abs(int32_t x) { return x < 0 ? -x : x; }
EVO_INLINE int64_t abs(int64_t x) { return x < 0 ? -x : x; }

EVO_INLINE vec copysign(vec x, vec sign) {
    ivec top = broadcast(INT32_MIN);
    return (vec)(((ivec)x & ~top) | ((ivec)sign & top));
}
EVO_INLINE vec sign(vec x) { return select(x > 0, broadcast(1.f), select(x < 0, broadcast(-1.f), select(x == 0, vec{}, x))); }
template <class T>
EVO_INLINE T sign(T x) { return x > 0 ? T(1) : x < 0 ? T(-1) : x; }

EVO_INLINE ivec isinf(vec x) { return abs(x) == EVO_INF; }
EVO_INLINE bool isinf(float x) { return __builtin_fabsf(x) == EVO_INF; }
EVO_INLINE bool isinf(double x) { return __builtin_fabs(x) == __builtin_inf(); }

#ifdef EVO_AVX512
#define EVO_ROUNDING(name, mode, builtin) \
    EVO_INLINE vec name(vec x) { return (vec)_mm512_roundscale_ps((__m512)x, mode | _MM_FROUND_NO_EXC); }
#elif defined(EVO_AVX2)
#define EVO_ROUNDING(name, mode, builtin) \
    EVO_INLINE vec name(vec x) { return (vec)_mm256_round_ps((__m256)x, mode | _MM_FROUND_NO_EXC); }
#else
#define EVO_ROUNDING(name, mode, builtin) \
    EVO_INLINE vec name(vec x) { return detail::lanewise(x, [](float v) { return builtin##f(v); }); }
#endif
#define EVO_ROUNDINGS(name, mode, builtin)                     \
    EVO_ROUNDING(name, mode, builtin)                          \
    EVO_INLINE float name(float x) { return builtin##f(x); }   \
    EVO_INLINE double name(double x) { return builtin(x); }
EVO_ROUNDINGS(floor, _MM_FROUND_TO_NEG_INF, __builtin_floor)
EVO_ROUNDINGS(ceil, _MM_FROUND_TO_POS_INF, __builtin_ceil)
EVO_ROUNDINGS(trunc, _MM_FROUND_TO_ZERO, __builtin_trunc)
EVO_ROUNDINGS(round, _MM_FROUND_TO_NEAREST_INT, __builtin_nearbyint)  // ties to even
#undef EVO_ROUNDING
#undef EVO_ROUNDINGS

EVO_INLINE vec fma(vec a, vec b, vec c) {
#ifdef EVO_AVX512
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(EVO_AVX2)
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return detail::keep(detail::keep(a * b) + c);
#endif
}
EVO_INLINE vec fma(vec a, vec b, float c) { return fma(a, b, broadcast(c)); }
EVO_INLINE vec fma(vec a, float b, vec c) { return fma(a, broadcast(b), c); }
EVO_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
EVO_INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }

EVO_INLINE vec sqrt(vec x) {
#ifdef EVO_AVX512
    return (vec)_mm512_sqrt_ps((__m512)x);
#elif defined(EVO_AVX2)
    return (vec)_mm256_sqrt_ps((__m256)x);
#else
    return (vec)_mm_sqrt_ps((__m128)x);
#endif
}
EVO_INLINE float sqrt(float x) { return __builtin_sqrtf(x); }
EVO_INLINE double sqrt(double x) { return __builtin_sqrt(x); }
EVO_INLINE vec rsqrt(vec x) { return 1.f / sqrt(x); }
EVO_INLINE float rsqrt(float x) { return 1.f / __builtin_sqrtf(x); }
EVO_INLINE double rsqrt(double x) { return 1. / __builtin_sqrt(x); }
EVO_INLINE vec reciprocal(vec x) { return 1.f / x; }
EVO_INLINE float reciprocal(float x) { return 1.f / x; }
EVO_INLINE double reciprocal(double x) { return 1. / x; }

// ---- elementary functions ----

namespace detail {
// p · 2ⁿ for integral n; the detour over two factors keeps denormal results right
EVO_INLINE vec scale(vec p, vec n) {
#ifdef EVO_AVX512
    return (vec)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    ivec whole = __builtin_convertvector(n, ivec), half = whole >> 1;
    return keep(p * (vec)((half + 127) << 23)) * (vec)((whole - half + 127) << 23);
#endif
}
EVO_INLINE vec horner(vec, float c) { return broadcast(c); }
template <class... Rest>
EVO_INLINE vec horner(vec x, float c, Rest... rest) { return fma(horner(x, rest...), x, c); }  // c + x·(…)

// NaN stays NaN.
EVO_INLINE vec clamp(vec x, float low, float high) { return greater(broadcast(low), lesser(broadcast(high), x)); }
// x = n·ln 2 + r with |r| ≤ ln 2 / 2; ln 2 in two parts, the first exact when multiplied by n
EVO_INLINE vec reduce_exp(vec x, vec& n) {
    n = round(x * 1.44269504088896341f);
    return fma(n, -1.42860682030941723e-6f, fma(n, -0.693145751953125f, x));
}
EVO_INLINE vec exp_poly(vec r) {  // exp(r) on |r| ≤ 0.35
    vec q = horner(r, 0.5f, 1.66666657e-1f, 4.16664667e-2f, 8.33345205e-3f, 1.39298265e-3f, 1.9875691500e-4f);
    return fma(fma(q, r, 1.f), r, broadcast(1.f));
}
EVO_INLINE vec expm1_poly(vec r) {
    vec q = horner(r, 0.5f, 1.66666657e-1f, 4.16664667e-2f, 8.33345205e-3f, 1.39298265e-3f, 1.9875691500e-4f);
    return fma(q, r * r, r);
}
// log of the mantissa in [√½, √2) as x − ½x² + x³·P(x); e is the exponent
EVO_INLINE vec log_parts(vec x, vec& e) {
    ivec tiny = x < 1.17549435e-38f;
    x = tiny ? x * 0x1p25f : x;
    ivec u = (ivec)x - 0x3f3504f3;
    e = __builtin_convertvector(u >> 23, vec) - (tiny ? broadcast(25.f) : vec{});
    vec m = keep((vec)((u & 0x7fffff) + 0x3f3504f3)) - 1.f;
    vec p = horner(m, 3.3333331174e-1f, -2.4999993993e-1f, 2.0000714765e-1f, -1.6668057665e-1f, 1.4249322787e-1f,
                   -1.2420140846e-1f, 1.1676998740e-1f, -1.1514610310e-1f, 7.0376836292e-2f);
    vec z = m * m;
    return keep(fma(z, broadcast(-0.5f), keep(p * m * z))) + m;
}
EVO_INLINE vec log_ends(vec x, vec y) {  // log at 0, negative numbers, infinity and NaN
    y = select(x == 0, broadcast(-EVO_INF), y);
    y = select(x == EVO_INF, x, y);
    return select(x >= 0, y, broadcast(EVO_NAN));
}
}  // namespace detail

EVO_INLINE vec exp(vec x) {
    vec n, clamped = detail::clamp(x, -130.f, 130.f);
    vec r = detail::reduce_exp(clamped, n);
    return detail::scale(detail::exp_poly(r), n);
}
EVO_INLINE vec exp2(vec x) {
    vec clamped = detail::clamp(x, -200.f, 200.f);
    vec n = round(clamped);
    return detail::scale(detail::exp_poly((clamped - n) * 0.693147180559945309f), n);
}
EVO_INLINE vec expm1(vec x) {
    vec n, clamped = detail::clamp(x, -30.f, 89.f);
    vec p = detail::expm1_poly(detail::reduce_exp(clamped, n));
    vec half = detail::scale(broadcast(0.5f), n);  // ½·2ⁿ: 2¹²⁸ itself would overflow
    return 2.f * detail::keep(fma(half, p, detail::keep(half - 0.5f)));
}
EVO_INLINE vec log(vec x) {
    vec e, y = detail::log_parts(x, e);
    y = fma(e, 0.693359375f, detail::keep(fma(e, -2.12194440e-4f, y)));
    return detail::log_ends(x, y);
}
EVO_INLINE vec log2(vec x) {
    vec e, y = detail::log_parts(x, e);
    return detail::log_ends(x, fma(y, 1.44269504088896341f, e));
}
EVO_INLINE vec log10(vec x) {
    vec e, y = detail::log_parts(x, e);
    return detail::log_ends(x, fma(y, 0.434294481903251828f, e * 0.301029995663981195f));
}
EVO_INLINE vec log1p(vec x) {  // log(u)·x / (u − 1), u = 1 + x rounded (Goldberg 1991, theorem 4)
    vec u = detail::keep(1.f + x), d = detail::keep(u - 1.f);
    vec y = log(u) * (x / d);
    y = select(d == 0, x, y);
    return select(x == EVO_INF, x, y);
}
EVO_INLINE vec sigmoid(vec x) { return 1.f / (1.f + exp(-x)); }
EVO_INLINE vec tanh(vec x) {
    vec a = abs(x), e = expm1(2.f * select(a > 9.5f, broadcast(9.5f), a));
    return copysign(e / (e + 2.f), x);
}
EVO_INLINE vec sinh(vec x) {
    vec a = abs(x), e = expm1(select(a > 88.f, broadcast(88.f), a)), y = 0.5f * (e + e / (e + 1.f));
    vec large = detail::keep(exp(0.5f * a));
    return copysign(select(a > 88.f, detail::keep(0.5f * large) * large, y), x);
}
EVO_INLINE vec cosh(vec x) {
    vec e = detail::keep(exp(0.5f * abs(x)));
    return detail::keep(0.5f * e) * e + 0.5f / (e * e);
}
// x + x·p(x²) below 1.1; above, 1 − q(|x|)⁸, where q is a minimax polynomial for the eighth root of erfc: no exponential, 1.8 ulp
EVO_INLINE vec erf(vec x) {
    vec a = abs(x), s = x * x;
    vec p = detail::horner(s, 1.28379151e-1f, -3.76125991e-1f, 1.12832911e-1f, -2.68414412e-2f, 5.16486587e-3f, -7.80582021e-4f, 7.18805968e-5f);
    vec q = detail::horner(select(a > 4.f, broadcast(4.f), a), 1.00107610f, -1.45957887e-1f, -6.00632615e-2f, -1.24557745e-2f, 1.33991241e-2f, -2.57774186e-3f, 1.59894218e-4f);
    q *= q;
    q *= q;
    return select(a > 1.1f, copysign(fma(-q, q, 1.f), x), fma(p, x, x));
}

namespace detail {
// sin and cos by reduction to |r| ≤ π/4 with π/2 in three parts; beyond 2¹⁴ lane by lane
EVO_INLINE vec trig(vec x, int32_t shift) {
    vec n = round(x * 0.636619772367581343f);
    vec r = fma(n, -1.5703125f, x);
    r = fma(n, -4.837512969970703125e-4f, keep(r));
    r = fma(n, -7.54978995489188216e-8f, keep(r));
    ivec q = __builtin_convertvector(n, ivec) + shift;
    vec s = r * r;
    vec sine = fma(horner(s, -1.6666654611e-1f, 8.3321608736e-3f, -1.9515295891e-4f) * s, r, r);
    vec cosine = fma(horner(s, 4.166664568298827e-2f, -1.388731625493765e-3f, 2.443315711809948e-5f), s * s, fma(s, -0.5f, broadcast(1.f)));
    vec y = (q & 1) != 0 ? cosine : sine;
    return (q & 2) != 0 ? -y : y;
}
EVO_INLINE bool any(ivec m) {
    int32_t found = 0;
    for (int i = 0; i < lanes; ++i) found |= m[i];
    return found != 0;
}
}  // namespace detail

EVO_INLINE vec sin(vec x) {
    if (detail::any(!(abs(x) < 16384.f))) return detail::lanewise(x, [](float v) { return __builtin_sinf(v); });
    return detail::trig(x, 0);
}
EVO_INLINE vec cos(vec x) {
    if (detail::any(!(abs(x) < 16384.f))) return detail::lanewise(x, [](float v) { return __builtin_cosf(v); });
    return detail::trig(x, 1);
}

#define EVO_LANEWISE(name) \
    EVO_INLINE vec name(vec x) { return detail::lanewise(x, [](float v) { return __builtin_##name##f(v); }); }
EVO_LANEWISE(tan) EVO_LANEWISE(asin) EVO_LANEWISE(acos) EVO_LANEWISE(atan)
#undef EVO_LANEWISE
#define EVO_LANEWISE(name)                                                                          \
    EVO_INLINE vec name(vec x, vec y) {                                                             \
        return detail::lanewise(x, y, [](float a, float b) { return __builtin_##name##f(a, b); }); \
    }
EVO_LANEWISE(pow) EVO_LANEWISE(atan2) EVO_LANEWISE(fmod)
#undef EVO_LANEWISE

#define EVO_SCALAR(name)                                              \
    EVO_INLINE float name(float x) { return __builtin_##name##f(x); } \
    EVO_INLINE double name(double x) { return __builtin_##name(x); }
EVO_SCALAR(exp) EVO_SCALAR(exp2) EVO_SCALAR(expm1) EVO_SCALAR(log) EVO_SCALAR(log1p) EVO_SCALAR(log2) EVO_SCALAR(log10)
EVO_SCALAR(tanh) EVO_SCALAR(sinh) EVO_SCALAR(cosh) EVO_SCALAR(erf) EVO_SCALAR(sin) EVO_SCALAR(cos) EVO_SCALAR(tan)
EVO_SCALAR(asin) EVO_SCALAR(acos) EVO_SCALAR(atan)
#undef EVO_SCALAR
EVO_INLINE float sigmoid(float x) { return 1.f / (1.f + exp(-x)); }
EVO_INLINE double sigmoid(double x) { return 1. / (1. + exp(-x)); }
#define EVO_SCALAR(name)                                                              \
    EVO_INLINE float name(float x, float y) { return __builtin_##name##f(x, y); }     \
    EVO_INLINE double name(double x, double y) { return __builtin_##name(x, y); }
EVO_SCALAR(pow) EVO_SCALAR(atan2) EVO_SCALAR(fmod)
#undef EVO_SCALAR

// Python's signs: the remainder has the sign of the divisor
EVO_INLINE vec floordiv(vec x, vec y) { return floor(x / y); }
EVO_INLINE float floordiv(float x, float y) { return __builtin_floorf(x / y); }
EVO_INLINE double floordiv(double x, double y) { return __builtin_floor(x / y); }
template <class T>
EVO_INLINE T floordiv(T x, T y) { return x / y - (x % y != 0 && (x < 0) != (y < 0)); }
EVO_INLINE float mod(float x, float y) {
    float r = __builtin_fmodf(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
EVO_INLINE double mod(double x, double y) {
    double r = __builtin_fmod(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
EVO_INLINE vec mod(vec x, vec y) {
    return detail::lanewise(x, y, [](float a, float b) { return mod(a, b); });
}
template <class T>
EVO_INLINE T mod(T x, T y) { return x - floordiv(x, y) * y; }
template <class T>
EVO_INLINE T fmod(T x, T y) { return x % y; }
template <class T>
EVO_INLINE T pow(T x, T y) {  // integers, y ≥ 0
    T r = 1;
    for (; y > 0; y >>= 1, x *= x)
        if (y & 1) r *= x;
    return r;
}

// ---- across the lanes ----

namespace detail {
template <class F>
EVO_INLINE float across(vec v, F f) {  // a tree of halves, so that rounding errors stay small
    for (int step = lanes / 2; step > 0; step /= 2) v = f(v, __builtin_shuffle(v, (iota() + step) & (int32_t)(lanes - 1)));
    return v[0];
}
}  // namespace detail
EVO_INLINE float sum(vec v) {
    return detail::across(v, [](vec a, vec b) { return a + b; });
}
EVO_INLINE float prod(vec v) {
    return detail::across(v, [](vec a, vec b) { return a * b; });
}
EVO_INLINE float max(vec v) {
    return detail::across(v, [](vec a, vec b) { return max(a, b); });
}
EVO_INLINE float min(vec v) {
    return detail::across(v, [](vec a, vec b) { return min(a, b); });
}

// ---- registers ----

// Stays in its register: short of registers, compilers read what came from memory again for every use.
EVO_INLINE vec held(vec v) { return detail::keep(v); }
// Runs f once as a function of its own, so that what it keeps in registers has all of them.
template <class F>
__attribute__((noinline)) static void alone(F f) { f(); }

// ---- powers and workspace ----

template <class T>
EVO_INLINE T square(T x) { return x * x; }
template <class T>
EVO_INLINE T cube(T x) { return x * x * x; }

// Bytes of `count` elements, rounded up to whole lines of 64.
template <class T>
EVO_INLINE int64_t padded(int64_t count) { return (count * (int64_t)sizeof(T) + 63) / 64 * 64; }
// Hands out 64-byte aligned pieces of the workspace.
struct arena {
    char* next;
    template <class T>
    T* take(int64_t count) {
        T* piece = (T*)next;
        next += padded<T>(count);
        return piece;
    }
};
extern "C" int omp_get_thread_num(void) noexcept;

}  // namespace evo

#include "evoforge_reduce.h"
