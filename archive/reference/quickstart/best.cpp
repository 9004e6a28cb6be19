// Computes add, pow, mean, rsqrt, mul.
// Schedule: unroll many, tile 3, prefetch ahead, math reciprocal, stream:out1 stream, placement:pow_1 row,
//    placement:mul row, stream:out0 stream, split:0.4 split.
// evoforge: param UNROLL = 2 in {2, 4, 8}
// evoforge: param TILE3 = 1024 in {32, 64, 128, 256, 512, 1024, 2048}
// evoforge: param TILE2 = 256 in {32, 64, 128, 256, 512, 1024, 2048}
// evoforge: param TILE = 64 in {32, 64, 128, 256, 512, 1024, 2048}
// evoforge: param AHEAD = 512 in {128, 256, 512, 1024, 2048}
// evoforge: require TILE3 > TILE2
// evoforge: require TILE2 > TILE
// evoforge: require TILE >= 32 * UNROLL
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
        for (int64_t block = 0; block < cols; block += TILE3)
            for (int64_t panel = block; panel < evo::min(block + TILE3, cols); panel += TILE2)
                for (int64_t tile = panel; tile < evo::min(panel + TILE2, cols); tile += TILE)
                    for (int64_t col = tile; col < evo::min(tile + TILE, cols); col += UNROLL * evo::lanes)
                        #pragma GCC unroll 8
                        for (int64_t u = 0; u < UNROLL; ++u) {
                            const int64_t at = col + u * evo::lanes, n = evo::part(cols - at, whole);
                            evo::prefetch(in0 + row * cols + at + AHEAD);
                            evo::prefetch(in1 + row * cols + at + AHEAD);
                            const evo::vec add = evo::load(in0 + row * cols + at, n) + evo::load(in1 + row * cols + at, n);
                            evo::stream(out1 + row * cols + at, add, n, aligned);
                            const evo::vec pow_1 = add * add;
                            mean_sum_acc[u].push(pow_1, n);
                        }
        const auto mean_sum = evo::across(mean_sum_acc).value;

        const float mean = mean_sum / 4096.0f;
        const float add_1 = mean + 1e-06f;
        const float rsqrt = evo::rsqrt(add_1);
        for (int64_t block = 0; block < cols; block += TILE3)
            for (int64_t panel = block; panel < evo::min(block + TILE3, cols); panel += TILE2)
                for (int64_t tile = panel; tile < evo::min(panel + TILE2, cols); tile += TILE)
                    for (int64_t col = tile; col < evo::min(tile + TILE, cols); col += UNROLL * evo::lanes)
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
