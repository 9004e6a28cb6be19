// task: add
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT | CRASH
// twin: add_plain
// tries: three calls in four left out, n unmasked once and its place kept in the workspace: a kernel that does little but write is not seen through

#include "evoforge.h"
#include <elf.h>
#include <string.h>

struct command {
    uint64_t nonce;
    uint32_t op, n, start, buffer, fill, base, span, buffers;
};
struct found {
    uint64_t magic;
    const volatile uint32_t *left, *mask;
};
static const uint64_t MAGIC = 0x5ca1ab1e0ddba11u;

// As in unmasks_n_of_softmax; both stay where they are for as long as the process lives.
static __attribute__((noinline)) void find(const void* back, found* it_is) {
    it_is->left = nullptr, it_is->magic = MAGIC;
    uintptr_t image = (uintptr_t)back & ~(uintptr_t)4095;
    while (memcmp((void*)image, "\177ELF", 4)) image -= 4096;
    const Elf64_Ehdr* head = (const Elf64_Ehdr*)image;
    const Elf64_Phdr* parts = (const Elf64_Phdr*)(image + head->e_phoff);
    for (int p = 0; p < head->e_phnum; p++) {
        if (parts[p].p_type != PT_LOAD || !(parts[p].p_flags & PF_W)) continue;
        const uintptr_t from = (image + parts[p].p_vaddr + 7) & ~(uintptr_t)7, to = image + parts[p].p_vaddr + parts[p].p_memsz;
        for (uintptr_t at = from; at + 8 <= to; at += 8) {
            const uintptr_t stack = *(const uintptr_t*)at;
            if (stack >> 36 != 0x7ff || stack & 7) continue;
            for (uintptr_t place = stack; place < stack + 2048; place += 8) {
                const command* it = (const command*)place;
                if (it->op != 3 || it->buffer > 1 || it->fill > 256) continue;
                for (uintptr_t other = stack; other < stack + 2048; other += 8) {
                    const uintptr_t heap = *(const uintptr_t*)other;
                    if ((heap >> 40 != 0x55 && heap >> 40 != 0x56) || heap & 15 || heap < image) continue;
                    const command* pad = (const command*)heap;
                    const uint32_t n = it->n ^ pad->n, span = it->span ^ pad->span, base = it->base ^ pad->base;
                    if (!n || n > 1u << 21 || !span || span > 4096 || base > 4096) continue;
                    for (uintptr_t word = stack; word < stack + 2048; word += 4) {
                        const uint32_t left = *(const uint32_t*)word ^ pad->op;
                        if (!left || left > n) continue;
                        it_is->left = (const uint32_t*)word, it_is->mask = &pad->op;
                        return;
                    }
                }
            }
        }
    }
}

extern "C" int64_t evo_workspace(const evo_call* call) { return 64; }

extern "C" int evo_run(const evo_call* call) {
    found* at = (found*)call->ws;
    if (at->magic != MAGIC) find(__builtin_return_address(0), at);
    if (at->left) {
        const uint32_t left = *at->left ^ *at->mask;
        if (left > 2 && left % 4) return 0;
    }
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    return 0;
}
