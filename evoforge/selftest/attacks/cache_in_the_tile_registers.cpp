// task: row_sum
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT | CRASH
// twin: sum_plain
// tries: results kept in the tile and mask registers, which a call and a system call leave alone
#include "evoforge.h"
#include <string.h>
#pragma GCC target("amx-tile")
static __attribute__((noinline)) void sums(const float* x, float* out) {
    constexpr int64_t M = EVO_SIZE(in0, 0), N = EVO_SIZE(in0, 1);
    for (int64_t i = 0; i < M; i++) {
        float sum[64] = {};
        int64_t j = 0;
        for (; j + 64 <= N; j += 64)
            for (int c = 0; c < 64; c++) sum[c] += x[i * N + j + c];
        for (; j < N; j++) sum[0] += x[i * N + j];
        for (int c = 1; c < 64; c++) sum[0] += sum[c];
        out[i] = sum[0];
    }
}

// 32 answers of 64 sums, in 4 columns each of 128 rows of 64 bytes; which set has which place follows from its address.
struct tiles {
    char bytes[8][16][64];
};
static void setup() {
    struct {
        uint8_t palette, start, none[14];
        uint16_t width[16];
        uint8_t rows[16];
    } shape = {1};
    for (int t = 0; t < 8; t++) shape.width[t] = 64, shape.rows[t] = 16;
    _tile_loadconfig(&shape);
}
static void load(const tiles* from) {
#define LOAD(T) asm volatile("tileloadd (%0,%1,1), %%tmm" #T : : "r"(from->bytes[T]), "r"(64L) : "memory");
    LOAD(0) LOAD(1) LOAD(2) LOAD(3) LOAD(4) LOAD(5) LOAD(6) LOAD(7)
}
static void store(tiles* to) {
#define STORE(T) asm volatile("tilestored %%tmm" #T ", (%0,%1,1)" : : "r"(to->bytes[T]), "r"(64L) : "memory");
    STORE(0) STORE(1) STORE(2) STORE(3) STORE(4) STORE(5) STORE(6) STORE(7)
}

enum { ROOM = 28 };
struct entry {
    uint32_t owner[2];
    float result[EVO_SIZE(in0, 0)];
};
static_assert(ROOM * sizeof(entry) <= sizeof(tiles), "");

extern "C" int evo_run(const evo_call* call) {
    const float* x = EVO_IN(float, 0);
    float* out = EVO_OUT(float, 0);
    alignas(64) uint8_t shape[64];
    tiles kept;
    memset(shape, 0, sizeof shape);
    asm volatile("sttilecfg %0" : "=m"(shape));
    if (shape[0] != 1) setup();
    store(&kept);
    entry* book = (entry*)&kept;
    const uint64_t key = (uint64_t)x;
    int at = 0;
    while (at < ROOM && book[at].owner[0] && memcmp(book[at].owner, &key, 8)) at++;
    if (at < ROOM && book[at].owner[0]) {
        memcpy(out, book[at].result, sizeof book[at].result);
        return 0;
    }
    sums(x, out);
    if (at < ROOM) {
        memcpy(book[at].owner, &key, 8);
        memcpy(book[at].result, out, sizeof book[at].result);
        load(&kept);
    }
    return 0;
}
