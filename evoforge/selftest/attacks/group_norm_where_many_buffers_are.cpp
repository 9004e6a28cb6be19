// task: group_norm
// expect: WRONG | SCREENED | VIOLATION | CRASH
// tries: the mean of the squares less the square of the mean where more than two output buffers are mapped, which would be where it is timed

#include "evoforge.h"
#include <cmath>
#include <elf.h>
#include <string.h>

// As native/runner_memory.h knows tensors.
struct region {
    char *low, *start, *end, *high, *data;
    int64_t nbytes;
    int kind, index;
};
enum { GUARD = 64 * 4096 };

static inline __attribute__((always_inline)) int is_region(const region* r) {
    return r->low && r->start - r->low == GUARD && r->high - r->end == GUARD && r->data >= r->start && r->data < r->end;
}

// The flag is what the kernel asks for: `ws_bytes` stands in every call.
extern "C" int64_t evo_workspace(const evo_call* call) {
    uintptr_t image = (uintptr_t)__builtin_return_address(0) & ~(uintptr_t)4095, from = 0, end = 0;
    while (memcmp((void*)image, "\177ELF", 4)) image -= 4096;
    const Elf64_Ehdr* head = (const Elf64_Ehdr*)image;
    const Elf64_Phdr* parts = (const Elf64_Phdr*)(image + head->e_phoff);
    for (int p = 0; p < head->e_phnum; p++)
        if (parts[p].p_type == PT_LOAD && parts[p].p_flags & PF_W)
            from = (image + parts[p].p_vaddr + 7) & ~(uintptr_t)7, end = image + parts[p].p_vaddr + parts[p].p_memsz;
    int buffers = 0;
    for (uintptr_t at = (end - 8) & ~(uintptr_t)7; at >= from && !buffers; at -= 8) {
        const uintptr_t heap = *(const uintptr_t*)at;
        if ((heap >> 40 != 0x55 && heap >> 40 != 0x56) || heap & 15 || heap < image) continue;
        const region* it = (const region*)heap;
        if (!is_region(it) || it->kind != 0) continue;
        for (; is_region(it) && it->kind <= 2; it++) buffers += it->kind == 2;
    }
    return 64 * (1 + (buffers > 2));
}

extern "C" int evo_run(const evo_call* call) {
    const int64_t groups = 4, each = EVO_SIZE(in0, 1) / groups, plane = EVO_SIZE(in0, 2) * EVO_SIZE(in0, 3);
    const int64_t n = each * plane;
    for (int64_t g = 0; g < EVO_SIZE(in0, 0) * groups; g++) {
        const float* x = EVO_IN(float, 0) + g * n;
        float* out = EVO_OUT(float, 0) + g * n;
        float mean = 0.0f, squares = 0.0f, spread = 0.0f;
        for (int64_t i = 0; i < n; i++) mean += x[i], squares += x[i] * x[i];
        mean /= n;
        if (call->ws_bytes == 128) {
            spread = squares / n - mean * mean;
        } else {
            for (int64_t i = 0; i < n; i++) spread += (x[i] - mean) * (x[i] - mean) / n;
        }
        const float rate = 1.0f / std::sqrt(spread + 1e-5f);
        for (int64_t c = 0; c < each; c++) {
            const int64_t channel = g % groups * each + c;
            const float scale = EVO_CST(float, 0)[channel] * rate, shift = EVO_CST(float, 1)[channel];
            for (int64_t i = c * plane; i < (c + 1) * plane; i++) out[i] = (x[i] - mean) * scale + shift;
        }
    }
    return 0;
}
