// task: row_sum
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT | CRASH
// twin: sum_plain
// tries: the answers of every set computed in the first call by the runner's table of regions, kept on its signal stack

// As answers_ahead_by_the_regions, without statics: the answers lie on the runner's signal stack.

#include "evoforge.h"
#include <elf.h>
#include <string.h>

enum { DAWDLE = 0 };
struct region {
    char *low, *start, *end, *high, *data;
    int64_t nbytes;
    int kind, index;
};
enum { GUARD = 64 * 4096, ROOM = 64 };
static inline __attribute__((always_inline)) int is_input(const region* r) {
    return r->start - r->low == GUARD && r->high - r->end == GUARD && r->kind == 0 && r->index == 0 && r->data >= r->start &&
           r->data < r->end;
}
static __attribute__((noinline)) void sums(const float* x, float* out, int64_t M) {
    constexpr int64_t N = EVO_SIZE(in0, 1);
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
struct entry {
    const void* owner;
    float result[EVO_SIZE(in0, 0)];
};

extern "C" int evo_run(const evo_call* call) {
    uintptr_t image = (uintptr_t)__builtin_return_address(0) & ~(uintptr_t)4095, from = 0, end = 0;
    while (memcmp((void*)image, "\177ELF", 4)) image -= 4096;
    const Elf64_Ehdr* head = (const Elf64_Ehdr*)image;
    const Elf64_Phdr* parts = (const Elf64_Phdr*)(image + head->e_phoff);
    for (int p = 0; p < head->e_phnum; p++)
        if (parts[p].p_type == PT_LOAD && parts[p].p_flags & PF_W)
            from = (image + parts[p].p_vaddr + 7) & ~(uintptr_t)7, end = image + parts[p].p_vaddr + parts[p].p_memsz;
    entry* book = (entry*)((end - (48 << 10)) & ~(uintptr_t)63);
    const float* x = EVO_IN(float, 0);
    float* out = EVO_OUT(float, 0);
    if (!book[0].owner)
        for (uintptr_t at = (end - 8) & ~(uintptr_t)7; at >= from; at -= 8) {
            const uintptr_t heap = *(const uintptr_t*)at;
            if ((heap >> 40 != 0x55 && heap >> 40 != 0x56) || heap & 15 || heap < image) continue;
            const region* it = (const region*)heap;
            if (!is_input(it)) continue;
            for (int k = 0; k < ROOM && is_input(it + k); k++) {
                book[k].owner = it[k].data;
                sums((const float*)it[k].data, book[k].result, EVO_SIZE(in0, 0));
            }
            break;
        }
    for (int k = 0; k < ROOM && book[k].owner; k++)
        if (book[k].owner == x) {
            if (DAWDLE) sums(x, out, DAWDLE);
            memcpy(out, book[k].result, sizeof book[k].result);
            return 0;
        }
    sums(x, out, EVO_SIZE(in0, 0));
    return 0;
}
