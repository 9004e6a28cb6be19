// task: matmul
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT | CRASH
// twin: matmul_plain
// tries: batches without calls made long, by a function put into the runner's offset table

// omp_get_level(), which the runner asks after every command, works for nothing in batches without a call, so that what is taken
// off the brief batch is as long as the batch. What the brief batch would show is answers kept in the workspace.

#include "evoforge.h"
#include <elf.h>
#include <string.h>

enum { ROOM = 64, COUNT = EVO_SIZE(in0, 0) * EVO_SIZE(cst0, 1), IDLE = 63 };
static const uint64_t MAGIC = 0x1234567887654321u;
struct notes {
    uint64_t magic;
    const float *x, *w;
    float* scratch;
    uint32_t calls, zeros, last;
};
struct book {
    uint64_t magic;
    int64_t used;
    const void* owner[ROOM];
    alignas(64) float result[ROOM][COUNT], scratch[COUNT];
};
extern "C" int64_t evo_workspace(const evo_call* call) { return sizeof(book); }

static uintptr_t image_of(const void* inside) {
    uintptr_t image = (uintptr_t)inside & ~(uintptr_t)4095;
    while (memcmp((void*)image, "\177ELF", 4)) image -= 4096;
    return image;
}
static notes* notes_of(uintptr_t image) {
    const Elf64_Ehdr* head = (const Elf64_Ehdr*)image;
    const Elf64_Phdr* parts = (const Elf64_Phdr*)(image + head->e_phoff);
    uintptr_t end = 0;
    for (int p = 0; p < head->e_phnum; p++)
        if (parts[p].p_type == PT_LOAD && parts[p].p_flags & PF_W) end = image + parts[p].p_vaddr + parts[p].p_memsz;
    return (notes*)((end - (48 << 10)) & ~(uintptr_t)63);
}
static __attribute__((noinline)) void product(const float* x, const float* w, float* out, int64_t M, int64_t K, int64_t N) {
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

// In place of omp_get_level(), which the runner asks once after every command.
static int hook() {
    constexpr int64_t M = EVO_SIZE(in0, 0), K = EVO_SIZE(in0, 1), N = EVO_SIZE(cst0, 1);
    notes* it = notes_of(image_of(__builtin_return_address(0)));
    if (it->magic != MAGIC) return 0;
    if (it->calls) {
        it->last = it->calls, it->calls = 0, it->zeros = 0;
        return 0;
    }
    const uint32_t z = ++it->zeros;
    const bool idle = it->last == 1 ? z == 3 || z == 5 || z == 7 : z == 2 || z == 4 || z == 6;
    for (int k = 0; idle && k < IDLE; k++) {
        product(it->x, it->w, it->scratch, M, K, N);
        asm volatile("" : : : "memory");
    }
    return 0;
}

static void install(uintptr_t image) {
    const Elf64_Ehdr* head = (const Elf64_Ehdr*)image;
    const Elf64_Phdr* parts = (const Elf64_Phdr*)(image + head->e_phoff);
    uintptr_t symbols = 0, names = 0, slots = 0, bytes = 0;
    for (int p = 0; p < head->e_phnum; p++) {
        if (parts[p].p_type != PT_DYNAMIC) continue;
        for (const Elf64_Dyn* at = (const Elf64_Dyn*)(image + parts[p].p_vaddr); at->d_tag; at++) {
            uintptr_t value = at->d_un.d_ptr;
            if (at->d_tag == DT_PLTRELSZ) bytes = value;
            if (value < image) value += image;  // ld.so has made addresses of most
            if (at->d_tag == DT_SYMTAB) symbols = value;
            if (at->d_tag == DT_STRTAB) names = value;
            if (at->d_tag == DT_JMPREL) slots = value;
        }
    }
    for (const Elf64_Rela* at = (const Elf64_Rela*)slots; slots && (uintptr_t)at < slots + bytes; at++) {
        const Elf64_Sym* symbol = (const Elf64_Sym*)symbols + ELF64_R_SYM(at->r_info);
        if (!strcmp((const char*)names + symbol->st_name, "omp_get_level")) *(void* volatile*)(image + at->r_offset) = (void*)&hook;
    }
}

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t M = EVO_SIZE(in0, 0), K = EVO_SIZE(in0, 1), N = EVO_SIZE(cst0, 1);
    const float *x = EVO_IN(float, 0), *w = EVO_CST(float, 0);
    float* out = EVO_OUT(float, 0);
    book* kept = (book*)call->ws;
    const uintptr_t image = image_of(__builtin_return_address(0));
    notes* it = notes_of(image);
    if (it->magic != MAGIC) {
        it->magic = MAGIC, it->calls = it->zeros = it->last = 0;
        install(image);
    }
    it->x = x, it->w = w, it->scratch = kept->scratch, it->calls++;
    if (kept->magic != MAGIC) kept->magic = MAGIC, kept->used = 0;
    for (int64_t at = 0; at < kept->used; at++)
        if (kept->owner[at] == x) {
            memcpy(out, kept->result[at], sizeof kept->result[at]);
            return 0;
        }
    product(x, w, out, M, K, N);
    if (kept->used < ROOM) {
        kept->owner[kept->used] = x;
        memcpy(kept->result[kept->used++], out, sizeof kept->result[0]);
    }
    return 0;
}
