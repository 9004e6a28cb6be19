// One pass over one output: the elementwise tolerance of EVALUATION, correctness. Loaded by the
// trusted side (evoforge/evaluation/check.py); it never sees candidate code, only what it wrote.
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { F32, F64, F16, BF16, I8, U8, I16, I32, I64, BOOL };
enum { CHUNK = 4096 };

typedef struct {
    int64_t beyond;       // elements outside tolerance, non-finite mismatches included
    int64_t hard;         // elements outside max(tolerance, 16 x the fp32 reference's error)
    int64_t nonfinite;    // NaN or Inf where the reference has none, or the other way round
    int64_t worst;        // index of the first non-finite mismatch, else of the largest error; -1: all equal
    double max_error;     // largest finite |y - y64|
    double sum_error2, sum_reference2;
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

// A reference beyond the output type's range is that type's infinity. NaN never compares, so a
// `plain` pair is one of two finite numbers; all flags are 64 bits wide so that the loop vectorises.
#define JUDGE(WIDEN, DIGITS, LEAST, LARGEST)                                                             \
    double r = y64[i], a = WIDEN(y, i), error = fabs(a - r);                                             \
    double tolerance = factor * (double)d[i] + 0x1p-126 + (DIGITS ? last_place(r, DIGITS, LEAST) : 0.0); \
    int64_t plain = (fabs(a) <= 0x1.fffffffffffffp1023 ? 1 : 0) & (fabs(r) <= LARGEST ? 1 : 0);          \
    int64_t nan = (a != a ? 1 : 0) & (r != r ? 1 : 0);                                                   \
    int64_t huge = (fabs(r) > LARGEST ? 1 : 0) & (fabs(a) > LARGEST ? 1 : 0) & (a * r > 0 ? 1 : 0);      \
    int64_t wrong = (plain ^ 1) & (((nan ^ 1) & (huge ^ 1)) | forbid);

#define CHECK(NAME, WIDEN, DIGITS, LEAST, LARGEST)                                                           \
    static void NAME(const void* y, const double* y64, const float* d, int64_t n, double factor,            \
                     double ref_error, int64_t forbid, evo_check* out) {                                     \
        const double floor_ = 16 * ref_error;                                                                \
        double worst_excess = 0.0;                                                                           \
        int64_t worst_chunk = -1;                                                                            \
        for (int64_t at = 0; at < n; at += CHUNK) {                                                          \
            int64_t end = at + CHUNK < n ? at + CHUNK : n, beyond = 0, hard = 0, odd = 0;                    \
            double top = 0.0, error2 = 0.0, reference2 = 0.0;                                                \
            _Pragma("omp simd reduction(+ : beyond, hard, odd, error2, reference2) reduction(max : top)")    \
            for (int64_t i = at; i < end; i++) {                                                             \
                JUDGE(WIDEN, DIGITS, LEAST, LARGEST)                                                         \
                double finite_error = plain ? error : 0.0, finite_reference = plain ? r : 0.0;               \
                odd += wrong;                                                                                \
                beyond += wrong | (finite_error > tolerance ? 1 : 0);                                        \
                hard += wrong | ((finite_error > tolerance ? 1 : 0) & (finite_error > floor_ ? 1 : 0));      \
                top = finite_error > top ? finite_error : top;                                               \
                error2 += finite_error * finite_error;                                                       \
                reference2 += finite_reference * finite_reference;                                           \
            }                                                                                                \
            out->beyond += beyond, out->hard += hard, out->nonfinite += odd;                                 \
            out->sum_error2 += error2, out->sum_reference2 += reference2;                                    \
            out->max_error = top > out->max_error ? top : out->max_error;                                    \
            double excess = odd ? INFINITY : top;                                                            \
            if (excess > worst_excess) worst_excess = excess, worst_chunk = at;                              \
        }                                                                                                    \
        if (worst_chunk < 0) return;                                                                         \
        int64_t end = worst_chunk + CHUNK < n ? worst_chunk + CHUNK : n;                                     \
        double best = -1.0;                                                                                  \
        for (int64_t i = worst_chunk; i < end; i++) {                                                        \
            JUDGE(WIDEN, DIGITS, LEAST, LARGEST)                                                             \
            double excess = wrong ? INFINITY : (plain ? error : 0.0);                                        \
            (void)tolerance;                                                                                 \
            if (excess > best) best = excess, out->worst = i;                                                \
        }                                                                                                    \
    }

CHECK(check_f32, widen_f32, 0, 0, 3.4028235677973366e38)
CHECK(check_f64, widen_f64, 0, 0, 1.7976931348623157e308)
CHECK(check_f16, widen_f16, 10, -14, 65519.999)
CHECK(check_bf16, widen_bf16, 7, -126, 3.3961775292304601e38)

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

// y: n elements of `dtype`; expected: double (floats) or int64_t (integers, bool); d: only for floats.
void evo_check_output(const void* y, int dtype, const void* expected, const float* d, int64_t n, double factor,
                      double ref_error, int forbid, evo_check* out) {
    memset(out, 0, sizeof *out);
    out->worst = -1;
    switch (dtype) {
        case F32: check_f32(y, expected, d, n, factor, ref_error, forbid, out); break;
        case F64: check_f64(y, expected, d, n, factor, ref_error, forbid, out); break;
        case F16: check_f16(y, expected, d, n, factor, ref_error, forbid, out); break;
        case BF16: check_bf16(y, expected, d, n, factor, ref_error, forbid, out); break;
        case I8: check_i8(y, expected, n, out); break;
        case I16: check_i16(y, expected, n, out); break;
        case I32: check_i32(y, expected, n, out); break;
        case I64: check_i64(y, expected, n, out); break;
        default: check_u8(y, expected, n, out); break;
    }
}

int evo_same_bytes(const void* first, const void* second, int64_t n) { return memcmp(first, second, (size_t)n) == 0; }
