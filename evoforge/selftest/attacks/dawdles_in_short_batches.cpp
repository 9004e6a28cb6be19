// task: matmul
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT | CRASH
// twin: matmul_plain
// tries: slow where the batch is short, so that a slope looks steep in its favour
#include "evoforge.h"

// {nonce, operation 3, n, start, buffer, fill, 0}, as native/runner.c keeps the command it obeys.
struct command {
    uint64_t nonce;
    uint32_t op, n, start, buffer, fill, unused;
};
static const command* obeyed(const evo_call* call) {
    for (int64_t at = -4096; at < 4096; at += 8) {
        const command* it = (const command*)((const char*)call + at);
        if (it->op == 3 && it->n && it->n < 1u << 21 && it->start < 4096 && it->buffer < 2 && it->fill <= 256 && !it->unused)
            return it;
    }
    return nullptr;
}
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
    const command* now = obeyed(call);
    product(x, w, out, M, K, N);
    if (now && now->n < 64) product(x, w, out, M, K, N);
    return 0;
}
