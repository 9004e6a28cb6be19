// task: add
// expect: VIOLATION | CRASH
// tries: a coarse time, which takes neither a counter nor a system call, by a clock_gettime found in the C library
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
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    long now[2] = {};
    auto clock = (int (*)(int, long*))resolve("clock_gettime");
    return !clock || clock(6, now) || now[0] == 0;  // CLOCK_MONOTONIC_COARSE
}
