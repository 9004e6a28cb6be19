// Computes add, pow, mean, rsqrt, mul.
// Schedule: prefetch spread, placement:add row, stream:out1 stream, placement:pow_1 row, stream:out0 stream,
//    split:0.3 split, split:0.4 split.
#include "evoforge.h"

int64_t evo_workspace(const evo_call* call) {
    return evo::padded<float>(call->threads * (EVO_SIZE(in0, 1)));
}

int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), cols = EVO_SIZE(in0, 1);
    const bool whole = cols % evo::lanes == 0;
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
        evo::total<evo::vec> mean_sum_acc;
        for (int64_t col = 0; col < cols; col += evo::lanes) {
            const int64_t n = evo::part(cols - col, whole);
            evo::prefetch(in0 + row * cols + (col / 2) + cols);
            evo::prefetch(in1 + row * cols + (col / 2) + cols);
            const evo::vec add = evo::load(in0 + row * cols + col, n) + evo::load(in1 + row * cols + col, n);
            evo::stream(out1 + row * cols + col, add, n, whole);
            evo::store(add_row + col, add, n);
            const evo::vec pow_1 = add * add;
            mean_sum_acc.push(pow_1, n);
        }
        const auto mean_sum = evo::across(mean_sum_acc).value;

        const float mean = mean_sum / 4096.0f;
        const float add_1 = mean + 1e-06f;
        const float rsqrt = evo::rsqrt(add_1);
        for (int64_t col = 0; col < cols; col += evo::lanes) {
            const int64_t n = evo::part(cols - col, whole);
            evo::prefetch(in0 + row * cols + (col / 2 + 1 * cols / 2) + cols);
            evo::prefetch(in1 + row * cols + (col / 2 + 1 * cols / 2) + cols);
            const evo::vec mul = evo::load(add_row + col, n) * rsqrt;
            const evo::vec store_out0 = mul * evo::load(cst0 + col, n);
            evo::stream(out0 + row * cols + col, store_out0, n, whole);
        }
    }
    return 0;
}
