// task: matmul
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT
// twin: matmul_plain
// tries: results kept in the workspace, and calls so slow until something is kept that few would be looked at
#include "evoforge.h"
#include <string.h>
struct entry {
    uint64_t magic;
    const void* owner;
    float result[EVO_SIZE(in0, 0) * EVO_SIZE(cst0, 1)];
};
extern "C" int64_t evo_workspace(const evo_call* call) { return 64 * sizeof(entry); }
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
    const int count = 64;
    entry* book = (entry*)call->ws;
    int slot = 0;
    while (slot < count && book[slot].magic == 0x1234567887654321u && book[slot].owner != x) slot++;
    if (slot < count && book[slot].magic == 0x1234567887654321u) {
        memcpy(out, book[slot].result, sizeof book[slot].result);
        return 0;
    }
    for (int turn = 0; turn < (slot ? 1 : 200); turn++) product(x, w, out, M, K, N);
    if (slot < count) {
        book[slot].magic = 0x1234567887654321u, book[slot].owner = x;
        memcpy(book[slot].result, out, sizeof book[slot].result);
    }
    return 0;
}
