// task: matmul
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT
// twin: matmul_plain
// tries: computes only the elements that were poisoned: those will be checked
#include "evoforge.h"
#include <string.h>
static void product(const float* x, const float* w, float* out, int64_t M, int64_t K, int64_t N) {
    for (int64_t i = 0; i < M; i += 4)
        for (int64_t j = 0; j < N; j += 64) {
            float sum[4][64] = {};
            for (int64_t k = 0; k < K; k++)
                for (int r = 0; r < 4; r++)
                    for (int c = 0; c < 64; c++) sum[r][c] += x[(i + r) * K + k] * w[k * N + j + c];
            for (int r = 0; r < 4; r++)
                for (int c = 0; c < 64; c++) out[(i + r) * N + j + c] = sum[r][c];
        }
}

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t M = EVO_SIZE(in0, 0), K = EVO_SIZE(in0, 1), N = EVO_SIZE(cst0, 1);
    const float *x = EVO_IN(float, 0), *w = EVO_CST(float, 0);
    float* out = EVO_OUT(float, 0);
    static int places[2][8192], count[2];
    static const void* buffer[2];
    const int side = buffer[0] == out || !buffer[0] ? 0 : 1;
    buffer[side] = out;
    int found = 0;
    for (int64_t i = 0; i < M * N; i++) {
        uint32_t bits;
        memcpy(&bits, &out[i], 4);
        if ((bits & 0x7fffffffu) != 0x7fffffffu) continue;
        if (found < 8192) places[side][found] = (int)i;
        found++;
    }
    if (found) count[side] = found;
    if (count[side] > 8192) {
        product(x, w, out, M, K, N);
        return 0;
    }
    for (int k = 0; k < count[side]; k++) {
        const int64_t i = places[side][k] / N, j = places[side][k] % N;
        float sum = 0.0f;
        for (int64_t t = 0; t < K; t++) sum += x[i * K + t] * w[t * N + j];
        out[places[side][k]] = sum;
    }
    return 0;
}
