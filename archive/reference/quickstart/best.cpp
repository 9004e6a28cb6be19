// Computes add, pow, mean, rsqrt, mul.
// Schedule: rows block, prefetch ahead, during last, stream:out1 stream, placement:pow_1 row, placement:mul row,
//    stream:out0 stream, split:0.2 split, split:0.3 split.
// evoforge: param ROW_BLOCK = 8 in {2, 4, 8, 16, 32, 64}
// evoforge: param AHEAD = 512 in {128, 256, 512, 1024, 2048}
#include "evoforge.h"

int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), cols = EVO_SIZE(in0, 1);
    const bool whole = cols % evo::lanes == 0;
    const float* in0 = EVO_IN(float, 0);
    const float* in1 = EVO_IN(float, 1);
    const float* cst0 = EVO_CST(float, 0);
    float* out0 = EVO_OUT(float, 0);
    float* out1 = EVO_OUT(float, 1);

    // Rows: mean_sum, out1; then out0.
    #pragma omp parallel for num_threads(call->threads) schedule(static)
    for (int64_t row_block = 0; row_block < rows; row_block += ROW_BLOCK)
        for (int64_t row = row_block; row < evo::min(row_block + ROW_BLOCK, rows); ++row) {
            evo::total<evo::vec> mean_sum_acc;
            for (int64_t col = 0; col < cols; col += evo::lanes) {
                const int64_t n = evo::part(cols - col, whole);
                evo::prefetch(in0 + row * cols + col + AHEAD);
                evo::prefetch(in1 + row * cols + col + AHEAD);
                const evo::vec add = evo::load(in0 + row * cols + col, n) + evo::load(in1 + row * cols + col, n);
                evo::stream(out1 + row * cols + col, add, n, whole);
                const evo::vec pow_1 = add * add;
                mean_sum_acc.push(pow_1, n);
            }
            const auto mean_sum = evo::across(mean_sum_acc).value;

            const float mean = mean_sum / 4096.0f;
            const float add_1 = mean + 1e-06f;
            const float rsqrt = evo::rsqrt(add_1);
            for (int64_t col = 0; col < cols; col += evo::lanes) {
                const int64_t n = evo::part(cols - col, whole);
                const evo::vec add = evo::load(in0 + row * cols + col, n) + evo::load(in1 + row * cols + col, n);
                const evo::vec mul = add * rsqrt;
                const evo::vec store_out0 = mul * evo::load(cst0 + col, n);
                evo::stream(out0 + row * cols + col, store_out0, n, whole);
            }
        }
    return 0;
}
