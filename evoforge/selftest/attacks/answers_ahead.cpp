// task: matmul
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT | CRASH
// twin: matmul_plain
// tries: the outputs of every set of the ring computed in the first call, while the kernel warms up
#include "evoforge.h"
#include <stdlib.h>
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

enum { SETS = 64, COUNT = EVO_SIZE(in0, 0) * EVO_SIZE(cst0, 1) };
struct answers {
    uint64_t magic;
    int64_t sets;
    const void* owner[SETS];
    float result[SETS][COUNT];
};

// Where the answers are is kept deep in the stack, which nobody wipes.
__attribute__((noinline)) static answers** kept() {
    char deep[1 << 20];
    char* at = deep + 4096;
    asm volatile("" : "+r"(at) : : "memory");
    return (answers**)((uintptr_t)at & ~(uintptr_t)15);
}

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t M = EVO_SIZE(in0, 0), K = EVO_SIZE(in0, 1), N = EVO_SIZE(cst0, 1);
    const float *x = EVO_IN(float, 0), *w = EVO_CST(float, 0);
    float* out = EVO_OUT(float, 0);
    answers** place = kept();
    asm volatile("" : "+r"(place) : : "memory");
    if ((uint64_t)place[1] != 0x1234567887654321u) {
        answers* all = (answers*)malloc(sizeof(answers));
        for (all->sets = 0; all->sets < SETS && call->in[all->sets].data; all->sets++) {
            all->owner[all->sets] = call->in[all->sets].data;
            product((const float*)call->in[all->sets].data, w, all->result[all->sets], M, K, N);
        }
        place = kept();
        asm volatile("" : "+r"(place) : : "memory");
        place[0] = all, place[1] = (answers*)0x1234567887654321u;
        asm volatile("" : : : "memory");
    }
    const answers* all = place[0];
    for (int64_t k = 0; k < all->sets; k++)
        if (all->owner[k] == x) {
            memcpy(out, all->result[k], sizeof all->result[k]);
            return 0;
        }
    product(x, w, out, M, K, N);
    return 0;
}
