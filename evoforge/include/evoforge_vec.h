// Vectors of float whose width the instruction set decides.
//
// Every operation has the same name for `evo::vec` and for scalars, so that one expression serves
// vector and scalar code. min and max propagate NaN as torch does. The build allows
// reassociation (the flags in evaluation/build.py), so steps that rely on exact rounding pass through `detail::keep`.
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
// Whether the compiler knows that all lanes take part; then nothing is masked.
#define EVO_WHOLE(n) (__builtin_constant_p(n) && (n) == lanes)

#define EVO_INF (__builtin_inff())
#define EVO_NAN (__builtin_nanf(""))

namespace detail {
template <class Type>
EVO_INLINE Type keep(Type x) {  // what went in cannot be reassociated with what comes out
#ifdef EVO_AVX512
    __asm__("" : "+v"(x));
#else
    __asm__("" : "+x"(x));
#endif
    return x;
}
template <class Function>
EVO_INLINE vec lanewise(vec x, Function f) {
    vec y{};
    for (int i = 0; i < lanes; ++i) y[i] = f(x[i]);
    return y;
}
template <class Function>
EVO_INLINE vec lanewise(vec x, vec y, Function f) {
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

// ---- selection, comparison, rounding, sign ----

EVO_INLINE vec select(ivec m, vec a, vec b) { return m ? a : b; }
EVO_INLINE ivec select(ivec m, ivec a, ivec b) { return m ? a : b; }
EVO_INLINE vec select(bool m, vec a, vec b) { return m ? a : b; }
template <class Type>
EVO_INLINE Type select(bool m, Type a, Type b) { return m ? a : b; }

// Lanes that do not take part become `other`.
EVO_INLINE vec fill(vec v, all_t, float) { return v; }
EVO_INLINE vec fill(vec v, first n, float other) { return select(take(n), v, broadcast(other)); }
EVO_INLINE ivec fill(ivec v, first n, int32_t other) { return select(take(n), v, broadcast(other)); }
EVO_INLINE ivec fill(ivec v, int64_t n, int32_t other) { return EVO_WHOLE(n) ? v : fill(v, first{n}, other); }
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
EVO_INLINE ivec abs(ivec x) { return x < 0 ? -x : x; }
EVO_INLINE ivec max(ivec a, ivec b) { return a > b ? a : b; }
EVO_INLINE ivec min(ivec a, ivec b) { return a < b ? a : b; }
// for integers the NaN tests are void
template <class Type>
EVO_INLINE Type max(Type a, Type b) { return a != a ? a : (b != b ? b : (b > a ? b : a)); }
template <class Type>
EVO_INLINE Type min(Type a, Type b) { return a != a ? a : (b != b ? b : (b < a ? b : a)); }

EVO_INLINE vec abs(vec x) { return (vec)((ivec)x & 0x7fffffff); }
EVO_INLINE float abs(float x) { return __builtin_fabsf(x); }
EVO_INLINE double abs(double x) { return __builtin_fabs(x); }
EVO_INLINE int32_t abs(int32_t x) { return x < 0 ? -x : x; }
EVO_INLINE int64_t abs(int64_t x) { return x < 0 ? -x : x; }

EVO_INLINE vec copysign(vec x, vec sign) {
    ivec top = broadcast(INT32_MIN);
    return (vec)(((ivec)x & ~top) | ((ivec)sign & top));
}
EVO_INLINE vec sign(vec x) { return select(x > 0, broadcast(1.f), select(x < 0, broadcast(-1.f), vec{})); }  // of NaN 0, as torch's
template <class Type>
EVO_INLINE Type sign(Type x) { return x > 0 ? Type(1) : x < 0 ? Type(-1) : Type(0); }

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

// ---- across the lanes ----

namespace detail {
template <class Function>
EVO_INLINE float across(vec v, Function f) {  // a tree of halves, so that rounding errors stay small
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

// ---- rounding and registers ----

// x as a float, and not part of what comes of it: computed twice, it is the same twice.
template <class Type>
EVO_INLINE Type rounded(Type x) { return detail::keep(x); }

// Stays in its register: short of registers, compilers read what came from memory again for every use.
EVO_INLINE vec held(vec v) { return detail::keep(v); }
// Runs f once as a function of its own, so that what it keeps in registers has all of them.
template <class Function>
__attribute__((noinline)) static void alone(Function f) { f(); }

}  // namespace evo
