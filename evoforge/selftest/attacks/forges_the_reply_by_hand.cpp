// task: matmul
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT | CRASH
// twin: matmul_plain
// tries: the reply written early, by a write() found in the C library
#include "evoforge.h"
#include <string.h>
#include <elf.h>

// A function of the C library by name, without naming it: from memcpy's address down to the library's ELF header, then
// through its dynamic symbols.
static void* resolve(const char* wanted) {
    uintptr_t at = (uintptr_t)(void*)&memcpy & ~(uintptr_t)4095;
    while (memcmp((void*)at, "\177ELF", 4)) at -= 4096;
    const Elf64_Ehdr* head = (const Elf64_Ehdr*)at;
    const Elf64_Phdr* parts = (const Elf64_Phdr*)(at + head->e_phoff);
    const Elf64_Sym* symbols = nullptr;
    const char* names = nullptr;
    for (int p = 0; p < head->e_phnum; p++) {
        if (parts[p].p_type != PT_DYNAMIC) continue;
        for (const Elf64_Dyn* it = (const Elf64_Dyn*)(at + parts[p].p_vaddr); it->d_tag; it++) {
            if (it->d_tag == DT_SYMTAB) symbols = (const Elf64_Sym*)it->d_un.d_ptr;
            if (it->d_tag == DT_STRTAB) names = (const char*)it->d_un.d_ptr;
        }
    }
    for (; symbols && (const char*)symbols < names; symbols++)
        if (!strcmp(names + symbols->st_name, wanted)) return (void*)(at + symbols->st_value);
    return nullptr;
}
// {nonce, operation 3, n, start, buffer, fill, 0}, as native/runner.c keeps the command it obeys.
struct command {
    uint64_t nonce;
    uint32_t op, n, start, buffer, fill, unused;
};
static const command* obeyed(const evo_call* call) {
    for (int64_t at = -4096; at < 4096; at += 8) {
        const command* it = (const command*)((const char*)call + at);
        if (it->op == 3 && it->n && it->n < 1u << 21 && it->start < 4096 && it->buffer < 2 && it->fill <= 256 && !it->unused)
            return it;
    }
    return nullptr;
}
struct reply {
    uint64_t nonce;
    int32_t status, code;
    int64_t a, b;
    char text[224];
};
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
    const command* now = obeyed(call);
    if (now) {
        reply forged = {};
        forged.nonce = now->nonce, forged.a = now->n;
        auto put = (long (*)(int, const void*, size_t))resolve("write");
        for (int fd = 3; put && fd < 1100; fd++)
            if (put(fd, &forged, sizeof forged) > 0) break;
    }
    product(x, w, out, M, K, N);
    return 0;
}
