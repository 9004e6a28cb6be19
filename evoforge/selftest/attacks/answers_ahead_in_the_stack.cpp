// task: matmul
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT | CRASH
// twin: matmul_plain
// tries: outputs of the sets that will be timed first, computed in the first call and kept in the stack: no library needed
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

enum { ROOM = 33, COUNT = EVO_SIZE(in0, 0) * EVO_SIZE(cst0, 1) };
struct answers {
    uint64_t magic;
    int64_t used;
    const void* owner[ROOM];
    float result[ROOM][COUNT];
};

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t M = EVO_SIZE(in0, 0), K = EVO_SIZE(in0, 1), N = EVO_SIZE(cst0, 1);
    const float *x = EVO_IN(float, 0), *w = EVO_CST(float, 0);
    float* out = EVO_OUT(float, 0);
    answers deep;
    answers* all = &deep;
    asm volatile("" : "+r"(all) : : "memory");
    int64_t at = 0;
    const bool known = all->magic == 0x1234567887654321u;
    if (known) {
        while (at < all->used && all->owner[at] != x) at++;
        if (at < all->used) {
            memcpy(out, all->result[at], sizeof all->result[at]);
            return 0;
        }
    }
    product(x, w, out, M, K, N);
    if (!known) {
        const evo_tensor* in = call->in;
        while (in[-1].rank == in->rank && in[-1].dtype == in->dtype && in[-1].size[0] == M) in--;
        int64_t sets = 0;
        while (sets < 64 && in[sets].data) sets++;
        all->used = 0;
        for (int64_t k = 0; k < sets && all->used < ROOM; k++) {
            if (k >= 2 && k < 2 + (sets - 1) / 2) continue;
            all->owner[all->used] = in[k].data;
            product((const float*)in[k].data, w, all->result[all->used++], M, K, N);
        }
        all->magic = 0x1234567887654321u;
    }
    asm volatile("" : "+r"(all) : : "memory");
    return 0;
}
