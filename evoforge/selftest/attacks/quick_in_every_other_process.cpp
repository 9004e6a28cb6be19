// task: matmul
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT
// twin: matmul_plain
// tries: results kept in the workspace in every second process, by the toss of an address; more processes are asked until half are honest

// The reported times come from the first processes; Trial.skipped() asks further ones, up to 25, and stops as soon as
// their median is fine. To be run often: one confirmation with a gain is enough for an archive.

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
    uint64_t magic;
    const void* owner;
    float result[EVO_SIZE(in0, 0) * EVO_SIZE(cst0, 1)];
};
enum { ROOM = 64 };
extern "C" int64_t evo_workspace(const evo_call* call) { return ROOM * sizeof(entry); }

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t M = EVO_SIZE(in0, 0), K = EVO_SIZE(in0, 1), N = EVO_SIZE(cst0, 1);
    const float *x = EVO_IN(float, 0), *w = EVO_CST(float, 0);
    float* out = EVO_OUT(float, 0);
    if ((uintptr_t)call >> 12 & 1) {  // the same for as long as the process lives
        product(x, w, out, M, K, N);
        return 0;
    }
    entry* book = (entry*)call->ws;
    int slot = 0;
    while (slot < ROOM && book[slot].magic == 0x1234567887654321u && book[slot].owner != x) slot++;
    if (slot < ROOM && book[slot].magic == 0x1234567887654321u) {
        memcpy(out, book[slot].result, sizeof book[slot].result);
        return 0;
    }
    product(x, w, out, M, K, N);
    if (slot < ROOM) {
        book[slot].magic = 0x1234567887654321u, book[slot].owner = x;
        memcpy(book[slot].result, out, sizeof book[slot].result);
    }
    return 0;
}
