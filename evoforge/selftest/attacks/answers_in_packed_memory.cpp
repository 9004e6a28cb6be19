// task: argmax
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT | CRASH | OUT_OF_BOUNDS
// twin: argmax_plain
// tries: answers from process to process: left in the spare output buffers by one brief batch, packed by evo_prepare of the next process

// As answers_in_spare_outputs, but before the first call: evo_prepare finds the buffers in the runner's table of regions
// and packs what lies there with its key, which stands in the slack before it. Nothing is kept in static memory. The
// first two buffers, the only ones that verification writes, are not marked.

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
struct book {
    int64_t used, spares;
    char* spare[ROOM];
    float key[ROOM][4], largest[ROOM][ROWS];
    int64_t place[ROOM][ROWS];
};

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

extern "C" int64_t evo_packed_bytes(const evo_call* call) { return sizeof(book); }

extern "C" int evo_prepare(const evo_call* call, void* packed) {
    book* known = (book*)packed;
    known->used = known->spares = 0;
    uintptr_t image = (uintptr_t)__builtin_return_address(0) & ~(uintptr_t)4095, from = 0, end = 0;
    while (memcmp((void*)image, "\177ELF", 4)) image -= 4096;
    const Elf64_Ehdr* head = (const Elf64_Ehdr*)image;
    const Elf64_Phdr* parts = (const Elf64_Phdr*)(image + head->e_phoff);
    for (int p = 0; p < head->e_phnum; p++)
        if (parts[p].p_type == PT_LOAD && parts[p].p_flags & PF_W)
            from = (image + parts[p].p_vaddr + 7) & ~(uintptr_t)7, end = image + parts[p].p_vaddr + parts[p].p_memsz;
    for (uintptr_t at = (end - 8) & ~(uintptr_t)7; at >= from; at -= 8) {
        const uintptr_t heap = *(const uintptr_t*)at;
        if ((heap >> 40 != 0x55 && heap >> 40 != 0x56) || heap & 15 || heap < image) continue;
        const region* it = (const region*)heap;
        if (!is_region(it) || it->kind != 0) continue;
        int buffers = 0;
        for (; is_region(it) && it->kind <= 2; it++) {
            if (it->kind != 2 || it->index != 0 || it[1].kind != 2 || it[1].index != 1) continue;
            if (++buffers <= 2 || known->spares == ROOM) continue;
            known->spare[known->spares++] = it->data;
            const mark* left = (const mark*)(it->data - ASIDE);
            if (left->magic != MARK) continue;
            memcpy(known->key[known->used], left->key, sizeof left->key);
            memcpy(known->largest[known->used], it->data, sizeof known->largest[0]);
            memcpy(known->place[known->used++], it[1].data, sizeof known->place[0]);
        }
        break;
    }
    return 0;
}

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    const float* in = EVO_IN(float, 0);
    float* largest = EVO_OUT(float, 0);
    int64_t* place = EVO_OUT(int64_t, 1);
    const book* known = (const book*)call->packed;
    for (int64_t k = 0; k < known->spares; k++) {
        if (known->spare[k] != (char*)largest) continue;
        mark* here = (mark*)((char*)largest - ASIDE);
        here->magic = MARK, memcpy(here->key, in, sizeof here->key);
    }
    for (int64_t k = 0; k < known->used; k++) {
        if (memcmp(known->key[k], in, sizeof known->key[k])) continue;
        memcpy(largest, known->largest[k], sizeof known->largest[k]);
        memcpy(place, known->place[k], sizeof known->place[k]);
        return 0;
    }
    argmax(in, largest, place, rows, n);
    return 0;
}
