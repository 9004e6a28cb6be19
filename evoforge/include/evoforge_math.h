// Elementary functions, accurate to about 2 ulp; infinities, NaN and denormal results are as IEEE 754 asks.
#pragma once
#include "evoforge_vec.h"

namespace evo {

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
EVO_INLINE vec log_poly(vec m) {  // log(1 + m) on [√½ − 1, √2 − 1) as m − ½m² + m³·P(m)
    vec p = horner(m, 3.3333331174e-1f, -2.4999993993e-1f, 2.0000714765e-1f, -1.6668057665e-1f, 1.4249322787e-1f,
                   -1.2420140846e-1f, 1.1676998740e-1f, -1.1514610310e-1f, 7.0376836292e-2f);
    vec z = m * m;
    return keep(fma(z, broadcast(-0.5f), keep(p * m * z))) + m;
}
EVO_INLINE vec log_parts(vec x, vec& e) {  // log of the mantissa in [√½, √2); e is the exponent
    ivec tiny = x < 1.17549435e-38f;
    x = tiny ? x * 0x1p25f : x;
    ivec u = (ivec)x - 0x3f3504f3;
    e = __builtin_convertvector(u >> 23, vec) - (tiny ? broadcast(25.f) : vec{});
    return log_poly(keep((vec)((u & 0x7fffff) + 0x3f3504f3)) - 1.f);
}
EVO_INLINE vec log_whole(vec y, vec e) { return fma(e, 0.693359375f, keep(fma(e, -2.12194440e-4f, y))); }  // y + e·ln 2
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
    return detail::log_ends(x, detail::log_whole(y, e));
}
EVO_INLINE vec log2(vec x) {
    vec e, y = detail::log_parts(x, e);
    return detail::log_ends(x, fma(y, 1.44269504088896341f, e));
}
EVO_INLINE vec log10(vec x) {
    vec e, y = detail::log_parts(x, e);
    return detail::log_ends(x, fma(y, 0.434294481903251828f, e * 0.301029995663981195f));
}
EVO_INLINE vec log1p(vec x) {  // what 1 + x loses is given back to its mantissa, which less 1 is x itself near 0
    vec u = detail::keep(1.f + x), lost = detail::keep(x - detail::keep(u - 1.f));
    ivec b = (ivec)u - 0x3f3504f3;
    vec m = detail::keep(detail::keep((vec)((b & 0x7fffff) + 0x3f3504f3)) - 1.f);
    m = detail::keep(m + 0.5f * lost * (vec)(0x40000000 - (b & ~0x7fffff)));  // half of it, twice: 2⁻¹²⁸ is no float
    return detail::log_ends(u, detail::log_whole(detail::log_poly(m), __builtin_convertvector(b >> 23, vec)));
}
EVO_INLINE vec sigmoid(vec x) { return 1.f / (1.f + exp(-x)); }
// Near 0 x + x·(x²·P(x²)), so that x and what becomes of it differ as they should.
EVO_INLINE vec tanh(vec x) {
    vec n, s = x * x, r = detail::reduce_exp(detail::lesser(broadcast(20.f), 2.f * abs(x)), n);
    vec e = detail::exp_poly(r) * (vec)((__builtin_convertvector(n, ivec) + 127) << 23);
    vec p = detail::horner(s, -3.33332819422e-1f, 1.33314422036e-1f, -5.37397155531e-2f, 2.06390887954e-2f, -5.70498872745e-3f);
    return select(s > 0.4f, copysign(1.f - 2.f / (e + 1.f), x), fma(detail::keep(p * s), x, x));
}
EVO_INLINE vec sinh(vec x) {
    vec s = x * x, e = detail::keep(exp(0.5f * abs(x)));
    vec p = detail::horner(s, 1.66666665e-1f, 8.33335076e-3f, 1.98360415e-4f, 2.81755922e-6f);
    vec y = detail::keep(0.5f * e) * e - 0.5f / (e * e);
    return select(s > 1.f, copysign(y, x), fma(detail::keep(p * s), x, x));
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
EVO_LANEWISE(tan) EVO_LANEWISE(asin) EVO_LANEWISE(acos) EVO_LANEWISE(atan) EVO_LANEWISE(erfc) EVO_LANEWISE(lgamma)
#undef EVO_LANEWISE
#define EVO_LANEWISE(name)                                                                          \
    EVO_INLINE vec name(vec x, vec y) {                                                             \
        return detail::lanewise(x, y, [](float a, float b) { return __builtin_##name##f(a, b); }); \
    }
EVO_LANEWISE(pow) EVO_LANEWISE(atan2) EVO_LANEWISE(fmod) EVO_LANEWISE(hypot)
#undef EVO_LANEWISE

#define EVO_SCALAR(name)                                              \
    EVO_INLINE float name(float x) { return __builtin_##name##f(x); } \
    EVO_INLINE double name(double x) { return __builtin_##name(x); }
EVO_SCALAR(exp) EVO_SCALAR(exp2) EVO_SCALAR(expm1) EVO_SCALAR(log) EVO_SCALAR(log1p) EVO_SCALAR(log2) EVO_SCALAR(log10)
EVO_SCALAR(cosh) EVO_SCALAR(erf) EVO_SCALAR(sin) EVO_SCALAR(cos) EVO_SCALAR(tan)
EVO_SCALAR(asin) EVO_SCALAR(acos) EVO_SCALAR(atan) EVO_SCALAR(erfc) EVO_SCALAR(lgamma)
#undef EVO_SCALAR
EVO_INLINE float tanh(float x) {
    float a = abs(x), s = x * x;
    if (a > 0.625f) return __builtin_copysignf(1.f - 2.f / (exp(2.f * a) + 1.f), x);
    float p = fma(fma(fma(fma(-5.70498872745e-3f, s, 2.06390887954e-2f), s, -5.37397155531e-2f), s, 1.33314422036e-1f), s, -3.33332819422e-1f);
    return fma(detail::keep(p * s), x, x);
}
EVO_INLINE double tanh(double x) {
    double a = abs(x), s = x * x;
    if (a > 0.625) return __builtin_copysign(1. - 2. / (exp(2. * a) + 1.), x);
    double p = fma(fma(-9.64399179425052238628e-1, s, -9.92877231001918586564e1), s, -1.61468768441708447952e3);
    double q = fma(fma(s + 1.12811678491632931402e2, s, 2.23548839060100448583e3), s, 4.84406305325125486048e3);
    return fma(detail::keep(s * (p / q)), x, x);
}
EVO_INLINE float sinh(float x) {
    float s = x * x, p = fma(fma(fma(2.81755922e-6f, s, 1.98360415e-4f), s, 8.33335076e-3f), s, 1.66666665e-1f);
    return s > 1.f ? __builtin_sinhf(x) : fma(detail::keep(p * s), x, x);
}
EVO_INLINE double sinh(double x) { return __builtin_sinh(x); }
EVO_INLINE float sigmoid(float x) { return 1.f / (1.f + exp(-x)); }
EVO_INLINE double sigmoid(double x) { return 1. / (1. + exp(-x)); }
#define EVO_SCALAR(name)                                                              \
    EVO_INLINE float name(float x, float y) { return __builtin_##name##f(x, y); }     \
    EVO_INLINE double name(double x, double y) { return __builtin_##name(x, y); }
EVO_SCALAR(pow) EVO_SCALAR(atan2) EVO_SCALAR(fmod) EVO_SCALAR(hypot) EVO_SCALAR(copysign)
#undef EVO_SCALAR

// Python's signs: the remainder has the sign of the divisor
namespace detail {
template <class Type>
EVO_INLINE Type whole_quotient(Type x, Type y) {  // the one that goes with the remainder: x / y alone may round up to it
    const Type by = keep(y);  // of what equals 0 the compiler takes 0, without its sign
    Type rest = __builtin_fmod(x, y), whole = (x - rest) / y;
    if (y == 0) return x / by;
    if (rest != 0 && (rest < 0) != (y < 0)) whole -= 1;
    Type low = __builtin_floor(whole);
    return whole == 0 ? __builtin_copysign(Type(0), x / y) : whole - low > Type(0.5) ? low + 1 : low;
}
}  // namespace detail
EVO_INLINE float floordiv(float x, float y) { return detail::whole_quotient(x, y); }
EVO_INLINE double floordiv(double x, double y) { return detail::whole_quotient(x, y); }
EVO_INLINE vec floordiv(vec x, vec y) {
    return detail::lanewise(x, y, [](float a, float b) { return floordiv(a, b); });
}
template <class Type>
EVO_INLINE Type floordiv(Type x, Type y) { return x / y - (x % y != 0 && (x < 0) != (y < 0)); }
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
template <class Type>
EVO_INLINE Type mod(Type x, Type y) { return x - floordiv(x, y) * y; }
// Lane i has (first + step · i) / by rounded down, and what is left of it.
EVO_INLINE ivec remainders(int64_t first, int64_t step, int64_t by) {
    return (iota() * (int32_t)mod(step, by) + (int32_t)mod(first, by)) % (int32_t)by;
}
EVO_INLINE ivec quotients(int64_t first, int64_t step, int64_t by) {
    return (iota() * (int32_t)step - remainders(first, step, by) + (int32_t)mod(first, by)) / (int32_t)by +
           (int32_t)floordiv(first, by);
}
template <class Type>
EVO_INLINE Type fmod(Type x, Type y) { return x % y; }
template <class Type>
EVO_INLINE Type pow(Type x, Type y) {  // integers; of negative powers the part before the point, of 0 none
    if (y < 0) return x == 1 ? 1 : x == Type(-1) ? (y & 1 ? -1 : 1) : 0;
    Type r = 1;
    for (; y > 0; y >>= 1, x *= x)
        if (y & 1) r *= x;
    return r;
}

// Shifts of integers as torch has them: by as many bits as there are, by more or by fewer than none, all bits go and
// the sign stays.
template <class Type>
EVO_INLINE Type shl(Type x, Type by) {
    constexpr uint64_t bits = 8 * sizeof(Type);
    return (uint64_t)by < bits ? (Type)((uint64_t)x << by) : Type(0);
}
template <class Type>
EVO_INLINE Type shr(Type x, Type by) {
    constexpr uint64_t most = 8 * sizeof(Type) - (Type(-1) < Type(0));
    return (Type)(x >> ((uint64_t)by < most ? (uint64_t)by : most));
}
EVO_INLINE ivec shr(ivec x, ivec by) {
    const ivec outside = (by & ~31) != 0;
    return x >> (outside ? broadcast(31) : by);
}

template <class Type>
EVO_INLINE Type logaddexp(Type a, Type b) {  // log(eᵃ + eᵇ)
    Type gap = select(a == b, Type{}, a - b);
    return max(a, b) + log1p(exp(-abs(gap)));
}

// ---- powers ----

template <class Type>
EVO_INLINE Type square(Type x) { return x * x; }
template <class Type>
EVO_INLINE Type cube(Type x) { return x * x * x; }

}  // namespace evo
