// Products of matrices in tiles of 16-bit brain floats, on the processor's matrix unit where it has one (AMX).
//
// A float becomes the sum of PARTS brain floats of eight bits each: one where it is exact, two or three for an
// accuracy between tf32 and float32 (Henry, Tang and Heinecke 2019, ARITH: "Leveraging the bfloat16 artificial
// intelligence datatype for higher-precision computations"). Of the products of parts, those that are too small to
// matter are left out; sums are floats. Denormal parts count as 0.
//
// The left operand lies packed as [step / deep][part][row][step % deep], the right one as
// [step / deep][part][vector][pair of steps][lane][step % 2] for every two vectors; both end with whole groups of
// `deep` steps.
#pragma once
#include "evoforge_memory.h"
#include "evoforge_vec.h"

namespace evo {

#if defined(__AMX_BF16__) && defined(__AVX512BF16__) && !defined(EVO_TRACED) && !defined(__SANITIZE_ADDRESS__)
#define EVO_AMX 1
#endif

constexpr int64_t deep = 32;  // steps of a sum in a tile

// How many rows and vectors of a block of that many are multiplied at a time.
constexpr int64_t tall(int64_t rows) { return rows < 32 ? 16 : 32; }
constexpr int64_t broad(int64_t vectors) { return vectors < 2 ? 1 : 2; }

namespace detail {
// The bits of the nearest brain floats, in the lower halves.
EVO_INLINE ivec brain(vec v) {
#if defined(EVO_AVX512) && defined(__AVX512BF16__)
    return (ivec)_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)v));
#else
    ivec u = (ivec)v;
    return v != v ? broadcast((int32_t)0x7fc0) : (u + 0x7fff + ((u >> 16) & 1)) >> 16 & 0xffff;
#endif
}
// The bits of v's first part, of which v keeps the rest: nothing of infinities and NaN. What would round up to infinity
// is cut instead.
EVO_INLINE ivec split(vec& v) {
    const ivec bits = select(abs(v) > 3.38e38f, (ivec)v >> 16 & 0xffff, brain(v));
    const vec top = keep((vec)(bits << 16));
    v = select(abs(top) < EVO_INF, keep(v - top), vec{});
    return bits;
}
}  // namespace detail

// Zeros where the last group of steps of each of `blocks` is not whole: `each` elements for every step.
EVO_INLINE void end_with_zeros(bf16* packed, int64_t blocks, int64_t each, int64_t steps) {
    const int64_t whole = steps / deep * deep, block = (whole + deep) * each;
    for (int64_t b = 0; steps != whole && b < blocks; ++b)
        __builtin_memset(packed + b * block + whole * each, 0, deep * each * sizeof(bf16));
}

namespace detail {
EVO_INLINE void put_steps(bf16* at, int parts, int64_t rows, vec v) {
    for (int part = 0; part < parts; ++part, at += rows * deep) {
        const ivec bits = part + 1 < parts ? split(v) : brain(v);
        store_half(at, narrow(bits), all);
    }
}
}  // namespace detail

// A row's group of `deep` steps, of which `steps` are left, from vectors along them: `vector_of(i, n)` holds n steps
// from i on. `at` is where the row starts in the first part of a block of `rows`.
template <class Function>
EVO_INLINE void put_left(bf16* at, int parts, int64_t rows, int64_t steps, Function vector_of) {
    for (int64_t i = 0; i < deep; i += lanes)
        detail::put_steps(at + i, parts, rows, fill(vector_of(i, part(steps - i, false)), part(steps - i, false), 0.f));
}
// The same for `lanes` rows, from vectors across them: `vector_of(i, n)` holds step i of n rows.
template <class Function>
EVO_INLINE void put_left_across(bf16* at, int parts, int64_t rows, int64_t steps, Function vector_of) {
    alignas(64) float square[lanes * lanes];
    for (int64_t i = 0; i < deep; i += lanes) {
        vec row[lanes];
        for (int64_t j = 0; j < lanes; ++j) row[j] = i + j < steps ? vector_of(i + j, lanes) : vec{};
        transpose(square, lanes, lanes, lanes, [&](int64_t j, int64_t) { return row[j]; });
        for (int64_t r = 0; r < lanes; ++r)
            detail::put_steps(at + r * deep + i, parts, rows, load(square + r * lanes, all));
    }
}
// Step k of row r of a block.
EVO_INLINE void put_step(bf16* block, int parts, int64_t rows, int64_t r, int64_t k, float x) {
    bf16* at = block + k / deep * deep * parts * rows + r * deep + k % deep;
    vec v = broadcast(x);
    for (int part = 0; part < parts; ++part, at += rows * deep)
        at->bits = (uint16_t)(part + 1 < parts ? detail::split(v) : detail::brain(v))[0];
}

// Step k of vector u of `vectors`, beside its neighbour, in any order.
EVO_INLINE void put_right(bf16* packed, int parts, int64_t vectors, int64_t u, int64_t k, vec v) {
    bf16* at = packed + (k / deep * parts * vectors + u) * (deep * lanes) + k % deep / 2 * (2 * lanes);
    for (int part = 0; part < parts; ++part, at += vectors * (deep * lanes)) {
        const ivec bits = part + 1 < parts ? detail::split(v) : detail::brain(v);
        const ivec pair = (ivec)load((const float*)at, all);
        store((float*)at, (vec)(k & 1 ? (pair & 0xffff) | bits << 16 : (pair & ~0xffff) | bits), all);
    }
}
// Steps k, k + 1, …, from vectors along them: `vector_of(i, count)` is that of lane i, for i < n.
template <class Function>
EVO_INLINE void put_right(
    bf16* packed, int parts, int64_t vectors, int64_t u, int64_t k, int64_t count, int64_t n, Function vector_of
) {
    alignas(64) float square[lanes * lanes];
    transpose(square, lanes, count, n, vector_of);
    for (int64_t i = 0; i < count; ++i) put_right(packed, parts, vectors, u, k + i, load(square + i * lanes, all));
}

// The tiles' shapes, for as long as it lives: every thread that multiplies needs one.
struct matrix_unit {
#ifdef EVO_AMX
    matrix_unit() {
        struct {
            uint8_t palette, start, unused[14];
            uint16_t bytes[16];
            uint8_t rows[16];
        } shapes{};
        shapes.palette = 1;
        for (int i = 0; i < 8; ++i) shapes.bytes[i] = 64, shapes.rows[i] = 16;
        __asm__ volatile("ldtilecfg\t%0" ::"m"(shapes));  // the intrinsic says that it reads no more than eight bytes
    }
    ~matrix_unit() { _tile_release(); }
#endif
};

// Sums of products of one part of a block: tall(Rows) rows by broad(Vectors) vectors of operands that are packed for
// Rows rows and Vectors vectors. There is one at a time in a thread.
template <int Rows, int Vectors, int Left, int Right>
struct products {
    static constexpr int most = Left > Right ? Left : Right;  // parts i and j count where i + j < most
    static constexpr int64_t left_part = Rows * deep, right_part = Vectors * lanes * deep;
#ifdef EVO_AMX
    static constexpr int height = tall(Rows) / 16, width = broad(Vectors);
    products() {
        __asm__ volatile("" ::: "memory");  // the intrinsics do not say that they read memory
        _tile_zero(0);
        if (width == 2) _tile_zero(1);
        if (height == 2) _tile_zero(2);
        if (height == 2 && width == 2) _tile_zero(3);
    }
    // One tile of each operand at a time: hyperthreads seem to share what tiles are renamed to. Beside a neighbour that
    // has tiles in use, products with six of them take two thirds of the time that they take with eight.
    EVO_MEMBER void add(const bf16* left, const bf16* right) {
        int there = -1;
#pragma GCC unroll 6
        for (int own = 0; own < Left * height; ++own) {
            const int i = own / height, row = own % height, count = (Right < most - i ? Right : most - i) * width;
            _tile_loadd(4, left + i * left_part + row * 16 * deep, 64);
#pragma GCC unroll 6
            for (int step = 0; step < count; ++step) {  // to and fro: the tile that is there is used first
                const int other = (height == 2 ? row : 1 - i % 2) ? count - 1 - step : step, u = other % width;
                if (other != there) _tile_loadd(5, right + other / width * right_part + u * lanes * deep, 64);
                there = other;
                if (row == 0 && u == 0) _tile_dpbf16ps(0, 4, 5);
                if (row == 0 && u == 1) _tile_dpbf16ps(1, 4, 5);
                if (row == 1 && u == 0) _tile_dpbf16ps(2, 4, 5);
                if (row == 1 && u == 1) _tile_dpbf16ps(3, 4, 5);
            }
        }
    }
    EVO_MEMBER void put(float* out, int64_t stride) const {
        _tile_stored(0, out, stride * 4);
        if (width == 2) _tile_stored(1, out + lanes, stride * 4);
        if (height == 2) _tile_stored(2, out + 16 * stride, stride * 4);
        if (height == 2 && width == 2) _tile_stored(3, out + 16 * stride + lanes, stride * 4);
        __asm__ volatile("" ::: "memory");
    }
#else
    vec sums[tall(Rows)][broad(Vectors)] = {};
    EVO_MEMBER void add(const bf16* left, const bf16* right) {
        for (int i = 0; i < Left; ++i)
            for (int j = 0; j < Right && i + j < most; ++j)
                for (int64_t pair = 0; pair < deep / 2; ++pair)
                    for (int64_t u = 0; u < broad(Vectors); ++u) {
                        const bf16* at = right + j * right_part + (u * deep + 2 * pair) * lanes;
                        const ivec both = (ivec)load((const float*)at, all);
                        const vec even = (vec)(both << 16), odd = (vec)(both & (int32_t)0xffff0000);
                        for (int64_t r = 0; r < tall(Rows); ++r) {
                            const bf16* own = left + i * left_part + r * deep + 2 * pair;
                            sums[r][u] += (float)own[0] * even + (float)own[1] * odd;
                        }
                    }
    }
    EVO_MEMBER void put(float* out, int64_t stride) const {
        for (int64_t r = 0; r < tall(Rows); ++r)
            for (int64_t u = 0; u < broad(Vectors); ++u) store(out + r * stride + u * lanes, sums[r][u], all);
    }
#endif
};

// Adds a group of `deep` steps.
template <class Products>
EVO_INLINE void multiply(Products& sums, const bf16* left, const bf16* right) { sums.add(left, right); }
template <class Products>
EVO_INLINE void put_sums(const Products& sums, float* out, int64_t stride) { sums.put(out, stride); }

}  // namespace evo
