// task: matmul
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT
// twin: matmul_plain
// tries: results kept in a large common block, whose symbol has a section number of its own
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

struct entry {
    const void* owner;
    float result[EVO_SIZE(in0, 0) * EVO_SIZE(cst0, 1)];
};
asm(".largecomm book, 16777216, 64");
extern "C" entry book[64] __attribute__((visibility("hidden")));

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t M = EVO_SIZE(in0, 0), K = EVO_SIZE(in0, 1), N = EVO_SIZE(cst0, 1);
    const float *x = EVO_IN(float, 0), *w = EVO_CST(float, 0);
    float* out = EVO_OUT(float, 0);
    int at = 0;
    while (at < 64 && book[at].owner && book[at].owner != x) at++;
    if (at < 64 && book[at].owner == x) {
        memcpy(out, book[at].result, sizeof book[at].result);
        return 0;
    }
    product(x, w, out, M, K, N);
    if (at < 64) {
        book[at].owner = x;
        memcpy(book[at].result, out, sizeof book[at].result);
    }
    return 0;
}
