// The judge's passes over outputs: poison, the elementwise tolerance, equal bits. Loaded by the trusted
// side (evoforge/evaluation/check.py); it never sees candidate code, only what it wrote. Nobody computes
// meanwhile, so what counts is how often memory is read.
#include <emmintrin.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { F32, F64, F16, BF16, I8, U8, I16, I32, I64, BOOL };
enum { CHUNK = 4096 };

typedef struct {
    int64_t beyond;       // elements outside tolerance, non-finite mismatches included
    int64_t hard;         // elements outside max(tolerance, 16 x the fp32 reference's error)
    int64_t nonfinite;    // NaN or Inf where the reference has none, or the other way round
    int64_t worst;        // where some are beyond: the first non-finite mismatch, else the largest error; else -1
    double max_error;     // largest finite |y - y64|
    int64_t differs;      // whether a byte differs from `earlier`, where one is given
} evo_check;

static inline double widen_f32(const void* y, int64_t i) { return ((const float*)y)[i]; }
static inline double widen_f64(const void* y, int64_t i) { return ((const double*)y)[i]; }
static inline double widen_f16(const void* y, int64_t i) { return ((const _Float16*)y)[i]; }
static inline double widen_bf16(const void* y, int64_t i) {
    uint32_t bits = (uint32_t)((const uint16_t*)y)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// One unit in the last place of |r| in a format with `digits` stored mantissa bits; 0 for wide formats.
static inline double last_place(double r, int digits, int least) {
    uint64_t bits;
    memcpy(&bits, &r, sizeof bits);
    int64_t exponent = (int64_t)(bits >> 52 & 0x7ff) - 1023;
    exponent = exponent < least ? least : exponent;
    uint64_t power = (uint64_t)(exponent - digits + 1023) << 52;
    double ulp;
    memcpy(&ulp, &power, sizeof ulp);
    return ulp;
}

// A reference beyond the output type's range is that type's infinity, and within its tolerance of that edge
// either is right: infinity or the largest numbers. NaN never compares, so a `plain` pair is one of two finite numbers; all flags are 64 bits wide so that the loop vectorises.
#define JUDGE(WIDEN, DIGITS, LEAST, LARGEST, FLOOR)                                                          \
    double r = y64[i], a = WIDEN(y, i), error = fabs(a - r);                                                 \
    double tolerance = factor * (double)d[i] + FLOOR + (DIGITS ? last_place(r, DIGITS, LEAST) : 0.0);        \
    int64_t plain = (fabs(a) <= 0x1.fffffffffffffp1023 ? 1 : 0) & (fabs(r) <= LARGEST ? 1 : 0);              \
    int64_t nan = (a != a ? 1 : 0) & (r != r ? 1 : 0);                                                       \
    int64_t edge = (fabs(fabs(r) - LARGEST) <= tolerance ? 1 : 0) & (tolerance <= LARGEST / 2 ? 1 : 0);      \
    int64_t huge = ((fabs(r) > LARGEST ? 1 : 0) | edge) & (a * r > 0 ? 1 : 0) &                              \
                   ((fabs(a) > LARGEST ? 1 : 0) | (edge & (fabs(a) >= LARGEST - tolerance ? 1 : 0)));        \
    int64_t wrong = (plain ^ 1) & (((nan ^ 1) & (huge ^ 1)) | forbid);

// The first loop accepts a chunk in which nothing is doubtful, with a third of the second's operations.
#define CHECK(NAME, SIZE, WIDEN, DIGITS, LEAST, LARGEST, SCALE, FLOOR)                                       \
    static void NAME(const void* y, const void* earlier, const double* y64, const void* scales, int64_t n,   \
                     double factor, double ref_error, int64_t forbid, evo_check* out) {                      \
        const SCALE* d = scales;                                                                             \
        const double floor_ = 16 * ref_error;                                                                \
        double worst_excess = 0.0;                                                                           \
        int64_t worst_chunk = -1;                                                                            \
        for (int64_t at = 0; at < n; at += CHUNK) {                                                          \
            int64_t end = at + CHUNK < n ? at + CHUNK : n, beyond = 0, hard = 0, odd = 0, doubtful = 0;      \
            double top = 0.0, largest = 0.0;                                                                 \
            _Pragma("omp simd reduction(| : doubtful) reduction(max : top, largest)")               \
            for (int64_t i = at; i < end; i++) {                                                             \
                double r = y64[i], error = fabs(WIDEN(y, i) - r), size = fabs(r);                            \
                double tolerance = factor * (double)d[i] + FLOOR;                                            \
                if (DIGITS) tolerance += last_place(r, DIGITS, LEAST);                                       \
                doubtful |= (error <= tolerance ? 0 : 1) | (error <= DBL_MAX ? 0 : 1);                       \
                top = error > top ? error : top;                                                             \
                largest = size > largest ? size : largest;                                                   \
            }                                                                                                \
            if (doubtful || !(largest <= LARGEST)) {                                                         \
                top = 0.0;                                                                                   \
                _Pragma("omp simd reduction(+ : beyond, hard, odd) reduction(max : top)")                 \
                for (int64_t i = at; i < end; i++) {                                                         \
                    JUDGE(WIDEN, DIGITS, LEAST, LARGEST, FLOOR)                                              \
                    double finite_error = plain ? error : 0.0;                                               \
                    odd += wrong;                                                                            \
                    beyond += wrong | (finite_error > tolerance ? 1 : 0);                                    \
                    hard += wrong | ((finite_error > tolerance ? 1 : 0) & (finite_error > floor_ ? 1 : 0));  \
                    top = finite_error > top ? finite_error : top;                                           \
                }                                                                                            \
            }                                                                                                \
            if (earlier && !out->differs)                                                                    \
                out->differs = !!memcmp((const char*)y + at * SIZE, (const char*)earlier + at * SIZE,        \
                                        (size_t)(end - at) * SIZE);                                          \
            out->beyond += beyond, out->hard += hard, out->nonfinite += odd;                                 \
            out->max_error = top > out->max_error ? top : out->max_error;                                    \
            double excess = odd ? INFINITY : beyond ? top : 0.0;                                             \
            if (excess > worst_excess) worst_excess = excess, worst_chunk = at;                              \
        }                                                                                                    \
        if (!out->beyond) return;                                                                            \
        int64_t end = worst_chunk + CHUNK < n ? worst_chunk + CHUNK : n;                                     \
        double best = -1.0;                                                                                  \
        for (int64_t i = worst_chunk; i < end; i++) {                                                        \
            JUDGE(WIDEN, DIGITS, LEAST, LARGEST, FLOOR)                                                      \
            double excess = wrong ? INFINITY : (plain && error > tolerance ? error : 0.0);                   \
            if (excess > best) best = excess, out->worst = i;                                                \
        }                                                                                                    \
    }

CHECK(check_f32, 4, widen_f32, 0, 0, 3.4028235677973366e38, float, 0x1p-126)
CHECK(check_f64, 8, widen_f64, 0, 0, 1.7976931348623157e308, double, 0x1p-1022)
CHECK(check_f16, 2, widen_f16, 10, -14, 65519.999, float, 0x1p-126)
CHECK(check_bf16, 2, widen_bf16, 7, -126, 3.3961775292304601e38, float, 0x1p-126)

#define CHECK_INTEGER(NAME, TYPE)                                                                             \
    static void NAME(const void* data, const int64_t* expected, int64_t n, evo_check* out) {                  \
        const TYPE* y = data;                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                     \
            if ((int64_t)y[i] == expected[i]) continue;                                                       \
            double error = fabs((double)y[i] - (double)expected[i]);                                          \
            if (!out->beyond++) out->worst = i;                                                               \
            out->max_error = error > out->max_error ? error : out->max_error;                                 \
        }                                                                                                     \
        out->hard = out->beyond;                                                                              \
    }

CHECK_INTEGER(check_i8, int8_t)
CHECK_INTEGER(check_u8, uint8_t)
CHECK_INTEGER(check_i16, int16_t)
CHECK_INTEGER(check_i32, int32_t)
CHECK_INTEGER(check_i64, int64_t)

static const int64_t SIZES[] = {4, 8, 2, 2, 1, 1, 2, 4, 8, 1};

// y: n elements of `dtype`; earlier: null, or as many to compare bits with; expected: double (floats) or
// int64_t (integers, bool); d: only for floats, double for F64 and else float.
void evo_check_output(const void* y, const void* earlier, int dtype, const void* expected, const void* d, int64_t n,
                      double factor, double ref_error, int forbid, evo_check* out) {
    memset(out, 0, sizeof *out);
    out->worst = -1;
    switch (dtype) {
        case F32: check_f32(y, earlier, expected, d, n, factor, ref_error, forbid, out); return;
        case F64: check_f64(y, earlier, expected, d, n, factor, ref_error, forbid, out); return;
        case F16: check_f16(y, earlier, expected, d, n, factor, ref_error, forbid, out); return;
        case BF16: check_bf16(y, earlier, expected, d, n, factor, ref_error, forbid, out); return;
        case I8: check_i8(y, expected, n, out); break;
        case I16: check_i16(y, expected, n, out); break;
        case I32: check_i32(y, expected, n, out); break;
        case I64: check_i64(y, expected, n, out); break;
        default: check_u8(y, expected, n, out); break;
    }
    if (earlier) out->differs = !!memcmp(y, earlier, (size_t)(n * SIZES[dtype]));
}

// Repeats an 8-byte pattern, phase 0 at `to`. Past the caches: whoever writes there next overwrites it all.
void evo_fill(void* to, uint64_t pattern, int64_t n) {
    char* at = to;
    int64_t head = (16 - ((uintptr_t)at & 15)) & 15;
    if (head & 7 || n < 64) head = n;  // small or oddly placed
    for (int64_t i = 0; i < head; i++) at[i] = (char)(pattern >> (i & 7) * 8);
    __m128i both = _mm_set1_epi64x((long long)pattern);
    int64_t i = head;
    for (; i + 16 <= n; i += 16) _mm_stream_si128((__m128i*)(at + i), both);
    for (; i < n; i++) at[i] = (char)(pattern >> (i & 7) * 8);
    _mm_sfence();
}

#define SCATTER(TYPE) \
    for (int64_t i = 0; i < n; i++) ((TYPE*)to)[offsets[i]] = values ? ((const TYPE*)values)[i] : (TYPE)pattern;
#define GATHER(TYPE) \
    for (int64_t i = 0; i < n; i++) ((TYPE*)to)[i] = ((const TYPE*)from)[offsets[i]];

// Writes n values, or a pattern, at offsets in elements of `size` bytes; a later value for one place wins.
void evo_scatter(void* to, int size, const int64_t* offsets, int64_t n, const void* values, uint64_t pattern) {
    switch (size) {
        case 1: SCATTER(uint8_t) break;
        case 2: SCATTER(uint16_t) break;
        case 4: SCATTER(uint32_t) break;
        default: SCATTER(uint64_t) break;
    }
}

void evo_gather(void* to, const void* from, int size, const int64_t* offsets, int64_t n) {
    switch (size) {
        case 1: GATHER(uint8_t) break;
        case 2: GATHER(uint16_t) break;
        case 4: GATHER(uint32_t) break;
        default: GATHER(uint64_t) break;
    }
}
