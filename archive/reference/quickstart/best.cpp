// Computes add, pow, mean, rsqrt, mul.
// Schedule: unroll many, during last, math reciprocal, placement:add row, stream:out1 stream, stream:out0 stream.
// evoforge: param UNROLL = 4 in {2, 4, 8}
#include "evoforge.h"

int64_t evo_workspace(const evo_call* call) {
    return evo::padded<float>(call->threads * (EVO_SIZE(in0, 1)));
}

int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), cols = EVO_SIZE(in0, 1);
    const bool whole = cols % (UNROLL * evo::lanes) == 0;
    const bool aligned = cols % evo::lanes == 0;
    const float* in0 = EVO_IN(float, 0);
    const float* in1 = EVO_IN(float, 1);
    const float* cst0 = EVO_CST(float, 0);
    float* out0 = EVO_OUT(float, 0);
    float* out1 = EVO_OUT(float, 1);
    evo::arena space{(char*)call->ws};
    float* add_rows = space.take<float>(call->threads * (EVO_SIZE(in0, 1)));  // one row of aten.add.Tensor per thread

    // Rows: mean_sum, out1, add; then out0.
    #pragma omp parallel for num_threads(call->threads) schedule(static)
    for (int64_t row = 0; row < rows; ++row) {
        float* add_row = add_rows + evo::omp_get_thread_num() * (EVO_SIZE(in0, 1));
        evo::total<evo::vec> mean_sum_acc[UNROLL];
        for (int64_t col = 0; col < cols; col += UNROLL * evo::lanes)
            #pragma GCC unroll 8
            for (int64_t u = 0; u < UNROLL; ++u) {
                const int64_t at = col + u * evo::lanes, n = evo::part(cols - at, whole);
                const evo::vec add = evo::load(in0 + row * cols + at, n) + evo::load(in1 + row * cols + at, n);
                evo::stream(out1 + row * cols + at, add, n, aligned);
                evo::store(add_row + at, add, n);
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
                const evo::vec mul = evo::load(add_row + at, n) * rsqrt;
                const evo::vec store_out0 = mul * evo::load(cst0 + at, n);
                evo::stream(out0 + row * cols + at, store_out0, n, aligned);
            }
    }
    return 0;
}
