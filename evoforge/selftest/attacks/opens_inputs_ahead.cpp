// task: matmul
// expect: WRONG | SCREENED | VIOLATION | TIMING_SUSPECT | CRASH
// twin: matmul_plain
// tries: evo_prepare opens the inputs, which are closed to it, with the runner's own mprotect, and answers all of them ahead

#include "evoforge.h"
#include <elf.h>
#include <string.h>

// As native/runner_memory.h knows tensors.
struct region {
    char *low, *start, *end, *high, *data;
    int64_t nbytes;
    int kind, index;
};

static void matmul(const float* x, const float* w, float* out, int64_t m, int64_t k, int64_t n) {
    for (int64_t i = 0; i < m; i++) {
        float* row = out + i * n;
        memset(row, 0, 4 * n);
        for (int64_t l = 0; l < k; l++) {
            const float a = x[i * k + l];
            for (int64_t j = 0; j < n; j++) row[j] += a * w[l * n + j];
        }
    }
}

// The runner's image, from a return address; its function of that name, and the regions that it knows.
static uintptr_t image_of(const void* back) {
    uintptr_t image = (uintptr_t)back & ~(uintptr_t)4095;
    while (memcmp((void*)image, "\177ELF", 4)) image -= 4096;
    return image;
}

static int (*mprotect_of(uintptr_t image))(void*, size_t, int) {
    const Elf64_Ehdr* head = (const Elf64_Ehdr*)image;
    const Elf64_Phdr* parts = (const Elf64_Phdr*)(image + head->e_phoff);
    for (int p = 0; p < head->e_phnum; p++) {
        if (parts[p].p_type != PT_DYNAMIC) continue;
        const char* names = 0;
        const Elf64_Sym* symbols = 0;
        const Elf64_Rela* calls = 0;
        size_t bytes = 0;
        for (const Elf64_Dyn* it = (const Elf64_Dyn*)(image + parts[p].p_vaddr); it->d_tag; it++) {
            if (it->d_tag == DT_STRTAB) names = (const char*)it->d_un.d_ptr;
            if (it->d_tag == DT_SYMTAB) symbols = (const Elf64_Sym*)it->d_un.d_ptr;
            if (it->d_tag == DT_JMPREL) calls = (const Elf64_Rela*)it->d_un.d_ptr;
            if (it->d_tag == DT_PLTRELSZ) bytes = it->d_un.d_val;
        }
        for (size_t i = 0; i < bytes / sizeof *calls; i++) {
            if (!strcmp(names + symbols[ELF64_R_SYM(calls[i].r_info)].st_name, "mprotect")) {
                return *(int (**)(void*, size_t, int))(image + calls[i].r_offset);
            }
        }
    }
    return 0;
}

static const region* regions_of(uintptr_t image) {
    const Elf64_Ehdr* head = (const Elf64_Ehdr*)image;
    const Elf64_Phdr* parts = (const Elf64_Phdr*)(image + head->e_phoff);
    for (int p = 0; p < head->e_phnum; p++) {
        if (parts[p].p_type != PT_LOAD || !(parts[p].p_flags & PF_W)) continue;
        const uintptr_t from = (image + parts[p].p_vaddr + 7) & ~(uintptr_t)7, to = image + parts[p].p_vaddr + parts[p].p_memsz;
        for (uintptr_t at = from; at + 8 <= to; at += 8) {
            const uintptr_t heap = *(const uintptr_t*)at;
            if ((heap >> 40 != 0x55 && heap >> 40 != 0x56) || heap & 15 || heap < to || heap > to + (2l << 30)) continue;
            const region* it = (const region*)heap;
            if (it->start - it->low == 64 * 4096 && it->high - it->end == 64 * 4096) return it;
        }
    }
    return 0;
}

enum { MOST = 64 };

extern "C" int64_t evo_packed_bytes(const evo_call* call) { return (MOST + 1) * 4 * EVO_SIZE(out0, 0) * EVO_SIZE(out0, 1); }

extern "C" int evo_prepare(const evo_call* call, void* packed) {
    const int64_t m = EVO_SIZE(in0, 0), k = EVO_SIZE(in0, 1), n = EVO_SIZE(out0, 1);
    const uintptr_t image = image_of(__builtin_return_address(0));
    int (*open)(void*, size_t, int) = mprotect_of(image);
    const region* it = regions_of(image);
    uint64_t* keys = (uint64_t*)packed;
    for (int i = 0; open && it && i < MOST && it[i].kind == 0; i++) {
        open(it[i].start, it[i].end - it[i].start, 1);
        memcpy(&keys[i], it[i].data, 8);
        matmul((const float*)it[i].data, EVO_CST(float, 0), (float*)packed + (i + 1) * m * n, m, k, n);
    }
    return 0;
}

extern "C" int evo_run(const evo_call* call) {
    const int64_t m = EVO_SIZE(in0, 0), k = EVO_SIZE(in0, 1), n = EVO_SIZE(out0, 1);
    const float* in = EVO_IN(float, 0);
    float* out = EVO_OUT(float, 0);
    const uint64_t* keys = (const uint64_t*)call->packed;
    uint64_t key;
    memcpy(&key, in, 8);
    for (int i = 0; i < MOST; i++) {
        if (keys[i] == key && key) return memcpy(out, (const float*)call->packed + (i + 1) * m * n, 4 * m * n), 0;
    }
    matmul(in, EVO_CST(float, 0), out, m, k, n);
    return 0;
}
