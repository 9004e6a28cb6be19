// task: matmul
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT
// twin: matmul_plain
// tries: results kept by a hash of the whole input
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
    static float kept[64][M * N];
    static uint64_t owner[64];
    uint64_t hash[8] = {1, 2, 3, 4, 5, 6, 7, 8}, key = 0;
    const uint64_t* words = (const uint64_t*)x;
    for (int64_t i = 0; i < M * K / 2; i += 8)
        for (int c = 0; c < 8; c++) hash[c] = (hash[c] ^ words[i + c]) * 0x9e3779b97f4a7c15u;
    for (int c = 0; c < 8; c++) key = key * 31 + hash[c];
    int slot = 0;
    while (slot < 64 && owner[slot] && owner[slot] != key) slot++;
    if (slot < 64 && owner[slot] == key) {
        memcpy(out, kept[slot], sizeof kept[slot]);
        return 0;
    }
    product(x, w, out, M, K, N);
    if (slot < 64) owner[slot] = key, memcpy(kept[slot], out, sizeof kept[slot]);
    return 0;
}
