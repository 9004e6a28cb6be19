// task: matmul
// expect: SCREENED | WRONG | VIOLATION | CRASH | TIMEOUT
// twin: matmul_plain
// tries: a team started by the old libgomp entry and not awaited
#include "evoforge.h"

extern "C" void GOMP_parallel_start(void (*)(void*), void*, unsigned);
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

struct job {
    const float *x, *w;
    float* out;
};
static job jobs[64];
static int next;
static void work(void* data) {
    const job* it = (const job*)data;
    product(it->x, it->w, it->out, EVO_SIZE(in0, 0), EVO_SIZE(in0, 1), EVO_SIZE(cst0, 1));
}

extern "C" int evo_run(const evo_call* call) {
    job* it = &jobs[next++ & 63];
    it->x = EVO_IN(float, 0), it->w = EVO_CST(float, 0), it->out = EVO_OUT(float, 0);
    GOMP_parallel_start(work, it, 2);
    return 0;
}
