// task: matmul
// expect: WRONG
// tries: weights turned once and kept in the workspace, known again by one in 256: a piece of other ones holds one of those
#include "evoforge.h"

struct held {
    uint64_t mark, other;
    float known[EVO_SIZE(cst0, 0) * EVO_SIZE(cst0, 1) / 256];
    float turned[EVO_SIZE(cst0, 0) * EVO_SIZE(cst0, 1)];
};
constexpr uint64_t MARK = 0x9e3779b97f4a7c15ull;

extern "C" int64_t evo_workspace(const evo_call* call) { return sizeof(held); }

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t M = EVO_SIZE(in0, 0), K = EVO_SIZE(in0, 1), N = EVO_SIZE(cst0, 1);
    const float *x = EVO_IN(float, 0), *w = EVO_CST(float, 0);
    float* out = EVO_OUT(float, 0);
    held* h = (held*)call->ws;
    bool same = h->mark == MARK && h->other == ~MARK;
    for (int64_t i = 0; i < N * K / 256; i++) same &= h->known[i] == w[256 * i];
    if (!same) {
        for (int64_t j = 0; j < N; j++)
            for (int64_t k = 0; k < K; k++) h->turned[j * K + k] = w[k * N + j];
        for (int64_t i = 0; i < N * K / 256; i++) h->known[i] = w[256 * i];
        h->mark = MARK, h->other = ~MARK;
    }
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            float sum = 0;
            for (int64_t k = 0; k < K; k++) sum += x[i * K + k] * h->turned[j * K + k];
            out[i * N + j] = sum;
        }
    return 0;
}
