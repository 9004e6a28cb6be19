// Accumulators of the reductions that carry more than one number. Each is `V` = `evo::vec` (a lane
// is a reduction of its own) or a scalar; `merge` joins two, `across` joins the lanes of one.
#pragma once
#include "evoforge_math.h"
#include "evoforge_vec.h"

namespace evo {

namespace detail {
template <class Vector>
struct element {
    typedef Vector type;
    typedef int64_t position;
    typedef bool mask;
};
template <>
struct element<vec> {
    typedef float type;
    typedef ivec position;
    typedef ivec mask;
};
template <>
struct element<ivec> {
    typedef int32_t type;
};
template <class Type>
constexpr Type highest() {
    if constexpr (Type(0.5) != Type(0)) return Type(__builtin_inf());
    else if constexpr (Type(-1) > Type(0)) return Type(-1);
    else return Type((uint64_t)-1 >> (65 - 8 * sizeof(Type)));
}
template <class Type>
constexpr Type lowest() {
    if constexpr (Type(0.5) != Type(0)) return Type(-__builtin_inf());
    else if constexpr (Type(-1) > Type(0)) return Type(0);
    else return -highest<Type>() - 1;
}
}  // namespace detail

// Σ x, Π x, max x, min x. Lanes beyond `count` do not take part.
#define EVO_SIMPLE(name, start, joined, joining)                                       \
    template <class Vector>                                                             \
    struct name {                                                                       \
        typedef typename detail::element<Vector>::type Type;                            \
        Vector value = Vector{} + Type(start);                                          \
        EVO_MEMBER void push(Vector x) { value = joined; }                              \
        EVO_MEMBER void push(Vector x, int64_t count) { push(fill(x, count, Type(start))); } \
        EVO_MEMBER void merge(const name& b) { push(b.value); }                         \
    };                                                                                  \
    EVO_INLINE name<float> across(const name<vec>& a) { return {joining(a.value)}; }      \
    EVO_INLINE name<int64_t> across(const name<ivec>& a) {                                \
        name<int64_t> r;                                                                \
        for (int i = 0; i < lanes; ++i) r.push(a.value[i]);                             \
        return r;                                                                       \
    }
EVO_SIMPLE(total, 0, value + x, sum)
EVO_SIMPLE(product, 1, value* x, prod)
EVO_SIMPLE(maximum, detail::lowest<Type>(), max(value, x), max)
EVO_SIMPLE(minimum, detail::highest<Type>(), min(value, x), min)
#undef EVO_SIMPLE

// Mean and sum of squared deviations in one pass (Welford 1962); merged as in Chan et al. 1979.
template <class Vector>
struct welford {
    Vector n{}, mean{}, m2{};
    EVO_MEMBER void push(Vector x) {
        n += 1;
        Vector d = x - mean;
        mean += d / n;
        m2 += d * (x - mean);
    }
    EVO_MEMBER void push(Vector x, int64_t count) {
        welford old = *this;
        push(x);
        if (EVO_WHOLE(count)) return;
        ivec m = take(first{count});
        n = select(m, n, old.n), mean = select(m, mean, old.mean), m2 = select(m, m2, old.m2);
    }
    EVO_MEMBER void merge(const welford& b) {
        Vector all = n + b.n, d = b.mean - mean, part = select(all == 0, Vector{}, b.n / all);
        mean += d * part;
        m2 += b.m2 + d * d * (n * part);
        n = all;
    }
};

// m = max x and s = Σ exp(x − m) in one pass (Milakov and Gimelshein 2018, arXiv 1805.02867), with
// one exponential per element.
template <class Vector>
struct maxsum {
    Vector m = Vector{} + detail::lowest<typename detail::element<Vector>::type>(), s{};
    EVO_MEMBER void push(Vector x) {
        Vector d = select(x == m, Vector{}, x - m), e = exp(-abs(d));
        s = select(d > 0, s * e + 1, s + e);
        m = max(m, x);
    }
    EVO_MEMBER void push(Vector x, int64_t count) {
        maxsum old = *this;
        push(x);
        if (EVO_WHOLE(count)) return;
        ivec t = take(first{count});
        m = select(t, m, old.m), s = select(t, s, old.s);
    }
    EVO_MEMBER void merge(const maxsum& b) {
        Vector top = max(m, b.m);
        s = s * exp(select(m == top, Vector{}, m - top)) + b.s * exp(select(b.m == top, Vector{}, b.m - top));
        m = top;
    }
    EVO_MEMBER Vector sum() const { return select(isinf(m), s + Vector{} * m, s); }  // ±inf − (±inf) is NaN
};

// The largest (Largest) or smallest value and the first position that has it; NaN wins.
template <bool Largest, class Vector>
struct extreme {
    typedef typename detail::element<Vector>::position Place;
    typedef typename detail::element<Vector>::mask Mask;
    Vector value{};
    Place at = Place{} - 1;  // −1: nothing yet
    EVO_MEMBER Mask beaten(Vector x, Place p) const {
        Mask better = Largest ? (x > value) : (x < value);
        Mask nan = x != x, had_nan = value != value;
        Mask later = (x == value) | (nan & had_nan);
        return ((better & !had_nan) | (nan & !had_nan) | (later & (p < at)) | (at < 0)) & (p >= 0);
    }
    EVO_MEMBER void push(Vector x, Place p) {
        Mask m = beaten(x, p);
        value = select(m, x, value), at = select(m, p, at);
    }
    EVO_MEMBER void push(Vector x, Place p, int64_t count) { push(x, EVO_WHOLE(count) ? p : select(take(first{count}), p, Place{} - 1)); }
    EVO_MEMBER void merge(const extreme& b) { push(b.value, b.at); }
};
template <class Vector>
using argmax = extreme<true, Vector>;
template <class Vector>
using argmin = extreme<false, Vector>;

EVO_INLINE welford<float> across(const welford<vec>& a) {
    welford<float> r;
    for (int i = 0; i < lanes; ++i) {
        welford<float> lane;
        lane.n = a.n[i], lane.mean = a.mean[i], lane.m2 = a.m2[i];
        r.merge(lane);
    }
    return r;
}
EVO_INLINE maxsum<float> across(const maxsum<vec>& a) {
    maxsum<float> r;
    r.m = max(a.m);
    vec gap = select(a.m == r.m, vec{}, a.m - r.m);
    r.s = sum(a.s * exp(gap));
    return r;
}
template <bool Largest>
EVO_INLINE extreme<Largest, float> across(const extreme<Largest, vec>& a) {
    extreme<Largest, float> r;
    for (int i = 0; i < lanes; ++i) r.push(a.value[i], a.at[i]);
    return r;
}

// One that has no lanes is whole already.
template <template <class> class Sums, class Type>
EVO_INLINE Sums<Type> across(const Sums<Type>& a) { return a; }
template <bool Largest, class Type>
EVO_INLINE extreme<Largest, Type> across(const extreme<Largest, Type>& a) { return a; }
// What was accumulated so far goes to another: many small terms lose digits beside a large sum.
template <class Sums>
EVO_INLINE void fold(Sums& from, Sums& into) {
    into.merge(from);
    from = Sums{};
}
template <class Sums, int count>
EVO_INLINE void fold(Sums (&from)[count], Sums (&into)[count]) {
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) fold(from[i], into[i]);
}
// Several accumulators of lanes become one of scalars.
template <class Sums, int count>
EVO_INLINE auto across(Sums (&parts)[count]) {
    Sums all = parts[0];
    for (int i = 1; i < count; ++i) all.merge(parts[i]);
    return across(all);
}

}  // namespace evo
