// task: matmul
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT | CRASH
// twin: matmul_plain
// tries: the outputs of every set of the ring computed in the first call, the sets found in the runner's own table of regions

// The runner's table of regions names every input; the first call, which is not timed, can answer all of them.

#include "evoforge.h"
#include <elf.h>
#include <string.h>

struct region {
    char *low, *start, *end, *high, *data;
    int64_t nbytes;
    int kind, index;
};
enum { GUARD = 64 * 4096, ROOM = 64, COUNT = EVO_SIZE(in0, 0) * EVO_SIZE(cst0, 1) };
static const void* owner[ROOM];
static float kept[ROOM][COUNT];
static int used;

static inline __attribute__((always_inline)) int is_input(const region* r) {
    return r->start - r->low == GUARD && r->high - r->end == GUARD && r->kind == 0 && r->index == 0 && r->data >= r->start &&
           r->data < r->end;
}

// The runner's table of regions, from an address inside of the runner's image.
static const region* table(const void* inside) {
    uintptr_t image = (uintptr_t)inside & ~(uintptr_t)4095;
    while (memcmp((void*)image, "\177ELF", 4)) image -= 4096;
    const Elf64_Ehdr* head = (const Elf64_Ehdr*)image;
    const Elf64_Phdr* parts = (const Elf64_Phdr*)(image + head->e_phoff);
    for (int p = 0; p < head->e_phnum; p++) {
        if (parts[p].p_type != PT_LOAD || !(parts[p].p_flags & PF_W)) continue;
        const uintptr_t from = (image + parts[p].p_vaddr + 7) & ~(uintptr_t)7, to = image + parts[p].p_vaddr + parts[p].p_memsz;
        for (uintptr_t at = to - 8 & ~(uintptr_t)7; at >= from; at -= 8) {
            const uintptr_t heap = *(const uintptr_t*)at;
            if ((heap >> 40 != 0x55 && heap >> 40 != 0x56) || heap & 15 || heap < image) continue;
            if (is_input((const region*)heap)) return (const region*)heap;
        }
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
    if (!used)
        for (const region* it = table(__builtin_return_address(0)); it && is_input(it) && used < ROOM; it++) {
            owner[used] = it->data;
            product((const float*)it->data, w, kept[used++], M, K, N);
        }
    for (int at = 0; at < used; at++)
        if (owner[at] == x) {
            memcpy(out, kept[at], sizeof kept[at]);
            return 0;
        }
    product(x, w, out, M, K, N);
    return 0;
}
