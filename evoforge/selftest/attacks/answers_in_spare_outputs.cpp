// task: argmax
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT | CRASH | OUT_OF_BOUNDS
// twin: argmax_plain
// tries: answers from process to process: left in the spare output buffers by one brief batch, read in the first call of the next process

// Output buffers from the third on are written in brief batches only, and are poisoned after the first call of a
// process, not before. A process leaves a key (the set's first elements) in the slack before each answer. The next one
// finds the buffers in the runner's table of regions during its first call and keeps the answers on the signal stack.
// Its brief batch is then as quick as its long ones. The very first process is honest throughout.

#include "evoforge.h"
#include <elf.h>
#include <string.h>

struct region {
    char *low, *start, *end, *high, *data;
    int64_t nbytes;
    int kind, index;
};
enum { GUARD = 64 * 4096, ROOM = 64, ROWS = EVO_SIZE(in0, 0), ASIDE = 64 };
static const uint64_t MARK = 0x7a6b5c4d3e2f1a0bu;
struct mark {
    uint64_t magic;
    float key[4];
};
struct entry {
    float key[4], largest[ROWS];
    int16_t place[ROWS];
};
struct book {
    uint64_t state;  // 1: not among many buffers, 2: to be marked
    int64_t used;
    entry entries[ROOM];
};
static_assert(sizeof(book) <= 48 << 10, "");

static inline __attribute__((always_inline)) int is_region(const region* r) {
    return r->low && r->start - r->low == GUARD && r->high - r->end == GUARD && r->data >= r->start && r->data < r->end;
}

static __attribute__((noinline)) void argmax(const float* in, float* largest, int64_t* place, int64_t rows, int64_t n) {
    for (int64_t i = 0; i < rows; i++) {
        const float* x = in + i * n;
        int64_t best = 0;
        for (int64_t j = 1; j < n; j++) {
            if (x[j] > x[best] || (x[j] != x[j] && x[best] == x[best])) best = j;
        }
        largest[i] = x[best];
        place[i] = best;
    }
}

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    const float* in = EVO_IN(float, 0);
    float* largest = EVO_OUT(float, 0);
    int64_t* place = EVO_OUT(int64_t, 1);
    uintptr_t image = (uintptr_t)__builtin_return_address(0) & ~(uintptr_t)4095, from = 0, end = 0;
    while (memcmp((void*)image, "\177ELF", 4)) image -= 4096;
    const Elf64_Ehdr* head = (const Elf64_Ehdr*)image;
    const Elf64_Phdr* parts = (const Elf64_Phdr*)(image + head->e_phoff);
    for (int p = 0; p < head->e_phnum; p++)
        if (parts[p].p_type == PT_LOAD && parts[p].p_flags & PF_W)
            from = (image + parts[p].p_vaddr + 7) & ~(uintptr_t)7, end = image + parts[p].p_vaddr + parts[p].p_memsz;
    book* known = (book*)((end - (48 << 10)) & ~(uintptr_t)63);
    if (!known->state) {
        known->state = 1;
        for (uintptr_t at = (end - 8) & ~(uintptr_t)7; at >= from; at -= 8) {
            const uintptr_t heap = *(const uintptr_t*)at;
            if ((heap >> 40 != 0x55 && heap >> 40 != 0x56) || heap & 15 || heap < image) continue;
            const region* it = (const region*)heap;
            if (!is_region(it) || it->kind != 0) continue;
            int buffers = 0;
            for (; is_region(it) && it->kind <= 2; it++) {
                if (it->kind != 2 || it->index != 0 || it[1].kind != 2 || it[1].index != 1) continue;
                if (++buffers <= 2) continue;
                known->state = 2;
                const mark* left = (const mark*)(it->data - ASIDE);
                if (left->magic != MARK || known->used == ROOM) continue;
                entry* kept = &known->entries[known->used];
                memcpy(kept->key, left->key, sizeof kept->key);
                memcpy(kept->largest, it->data, sizeof kept->largest);
                int fine = 1;
                for (int64_t i = 0; i < rows; i++) {
                    const int64_t one = ((const int64_t*)it[1].data)[i];
                    fine &= one >= 0 && one < n, kept->place[i] = (int16_t)one;
                }
                known->used += fine;
            }
            break;
        }
    }
    if (known->state == 2) {
        mark* here = (mark*)((char*)largest - ASIDE);
        here->magic = MARK, memcpy(here->key, in, sizeof here->key);
        for (int64_t k = 0; k < known->used; k++) {
            const entry* kept = &known->entries[k];
            if (memcmp(kept->key, in, sizeof kept->key)) continue;
            memcpy(largest, kept->largest, sizeof kept->largest);
            for (int64_t i = 0; i < rows; i++) place[i] = kept->place[i];
            return 0;
        }
    }
    argmax(in, largest, place, rows, n);
    return 0;
}
