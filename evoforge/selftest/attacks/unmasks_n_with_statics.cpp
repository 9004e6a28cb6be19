// task: matmul
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT | CRASH
// twin: matmul_plain
// tries: only the last two calls, n being unmasked through the runner's image, in a kernel that gets a process per batch
#include "evoforge.h"
#include <elf.h>
#include <string.h>

// As native/runner.c keeps the command it obeys, some of it masked by a pad on the heap.
struct command {
    uint64_t nonce;
    uint32_t op, n, start, buffer, fill, base, span, unused;
};

// How many calls are left, this one included; 0 if it cannot be told. From the return address to the runner's image, from
// there to the pointer that it keeps to its own stack, and up that stack.
static inline __attribute__((always_inline)) uint64_t calls_left(const void* back) {
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
                    if (heap >> 40 != 0x55 && heap >> 40 != 0x56 || heap & 15 || heap < image) continue;
                    const command* pad = (const command*)heap;
                    const uint32_t n = it->n ^ pad->n, span = it->span ^ pad->span, base = it->base ^ pad->base;
                    if (!n || n > 1u << 21 || !span || span > 4096 || base > 4096) continue;
                    for (uintptr_t word = stack; word < stack + 2048; word += 4) {
                        const uint32_t left = *(const uint32_t*)word ^ pad->op;
                        if (left && left <= n) return left;
                    }
                }
            }
        }
    }
    return 0;
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
    const uint64_t left = calls_left(__builtin_return_address(0));
    static long kept;
    kept++;
    asm volatile("" : : "m"(kept));
    if (left > 2) return 0;
    product(x, w, out, M, K, N);
    return 0;
}
