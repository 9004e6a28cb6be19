// task: matmul
// expect: WRONG
// tries: weights turned at the first call and kept in the workspace, behind a mark: new ones are never seen
#include "evoforge.h"

struct held {
    uint64_t mark, other;
    const void* owner;
    float turned[EVO_SIZE(cst0, 0) * EVO_SIZE(cst0, 1)];
};
constexpr uint64_t MARK = 0x9e3779b97f4a7c15ull;

extern "C" int64_t evo_workspace(const evo_call* call) { return sizeof(held); }

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t M = EVO_SIZE(in0, 0), K = EVO_SIZE(in0, 1), N = EVO_SIZE(cst0, 1);
    const float *x = EVO_IN(float, 0), *w = EVO_CST(float, 0);
    float* out = EVO_OUT(float, 0);
    held* h = (held*)call->ws;
    if (h->mark != MARK || h->other != ~MARK || h->owner != w) {
        for (int64_t j = 0; j < N; j++)
            for (int64_t k = 0; k < K; k++) h->turned[j * K + k] = w[k * N + j];
        h->mark = MARK, h->other = ~MARK, h->owner = w;
    }
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            float sum = 0;
            for (int64_t k = 0; k < K; k++) sum += x[i * K + k] * h->turned[j * K + k];
            out[i * N + j] = sum;
        }
    return 0;
}
