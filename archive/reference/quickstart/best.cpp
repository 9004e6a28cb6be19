// Computes add, pow, mean, rsqrt, mul.
// Schedule: unroll many, stream:out1 stream, stream:out0 stream.
// evoforge: param UNROLL = 4 in {2, 4, 8}
#include "evoforge.h"

int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), cols = EVO_SIZE(in0, 1);
    const bool whole = cols % (UNROLL * evo::lanes) == 0;
    const bool aligned = cols % evo::lanes == 0;
    const float* in0 = EVO_IN(float, 0);
    const float* in1 = EVO_IN(float, 1);
    const float* cst0 = EVO_CST(float, 0);
    float* out0 = EVO_OUT(float, 0);
    float* out1 = EVO_OUT(float, 1);

    // Rows: mean_sum, out1; then out0.
    #pragma omp parallel for num_threads(call->threads) schedule(static)
    for (int64_t row = 0; row < rows; ++row) {
        evo::total<evo::vec> mean_sum_acc[UNROLL];
        for (int64_t col = 0; col < cols; col += UNROLL * evo::lanes)
            #pragma GCC unroll 8
            for (int64_t u = 0; u < UNROLL; ++u) {
                const int64_t at = col + u * evo::lanes, n = evo::part(cols - at, whole);
                const evo::vec add = evo::load(in0 + row * cols + at, n) + evo::load(in1 + row * cols + at, n);
                evo::stream(out1 + row * cols + at, add, n, aligned);
                const evo::vec pow_1 = add * add;
                mean_sum_acc[u].push(pow_1, n);
            }
        const auto mean_sum = evo::across(mean_sum_acc).value;

        const float mean = mean_sum / 4096.0f;
        const float add_1 = mean + 1e-06f;
        const float rsqrt = evo::rsqrt(add_1);
        for (int64_t col = 0; col < cols; col += UNROLL * evo::lanes)
            #pragma GCC unroll 8
            for (int64_t u = 0; u < UNROLL; ++u) {
                const int64_t at = col + u * evo::lanes, n = evo::part(cols - at, whole);
                const evo::vec add = evo::load(in0 + row * cols + at, n) + evo::load(in1 + row * cols + at, n);
                const evo::vec mul = add * rsqrt;
                const evo::vec store_out0 = mul * evo::load(cst0 + at, n);
                evo::stream(out0 + row * cols + at, store_out0, n, aligned);
            }
    }
    return 0;
}
