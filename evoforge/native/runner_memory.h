// The memory that a kernel sees: every tensor between inaccessible pages at a random place, so that the address of
// one does not tell the others'; its stack; and above that the argument of the call under way.
#pragma once
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, GUARD = 64 * PAGE, ALIGN = 64, POPULATE_READ = 22, POPULATE_WRITE = 23 };
enum { STACK = 8 << 20, STACK_GUARD = 64 << 20, STACK_KEPT = 16 << 10 };
enum { INPUT, CONSTANT, OUTPUT, WORKSPACE, PACKED };
static const uint64_t SPREAD = 1ull << 36;  // wide enough to guess wrong, narrow enough for the page tables' cache

typedef struct {
    void* data;
    int64_t size[8], stride[8];
    int32_t rank, dtype;
} evo_tensor;

typedef struct {
    int32_t abi, n_in, n_const, n_out, threads;
    const evo_tensor *in, *cst, *out;
    const void* packed;
    void* ws;
    int64_t ws_bytes;
} evo_call;

struct layout {  // one tensor: where its segment lies in its memfd
    int32_t rank, dtype;
    int64_t size[8], stride[8], start, length, data, nbytes;
};
struct region {
    char *low, *start, *end, *high, *data;  // guard | segment | guard
    int64_t nbytes;
    int kind, index;
};
struct argument {
    evo_call call;
    evo_tensor tensors[];  // copies of the call's own: inputs, then outputs
};

static struct region* regions;
static int n_regions;

// By a system call: libc's function may read pages that `forget_time` takes away.
static int fill_with_random(void* into, size_t bytes) {
    return syscall(SYS_getrandom, into, bytes, 0) == (long)bytes;
}

static uint64_t random_bits(void) {
    uint64_t bits = 0;
    return fill_with_random(&bits, sizeof bits) ? bits : 0;
}

static int64_t whole_pages(int64_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

// Where the closed zone begins, or the open one; below the closed one there is another that nothing lies in.
static uint64_t zone(int closed) {
    static uint64_t base;
    if (!base) base = (1ull << 44) + random_bits() % (1ull << 45) / (8 * SPREAD) * (8 * SPREAD);
    return base + (closed ? 4 * SPREAD : 0);
}

// Inaccessible pages at a random place. What lies in the closed zone can be opened with the judge's key only.
static char* somewhere(int64_t bytes, int closed) {
    for (int tries = 16;; tries--) {
        char* wish = tries ? (char*)(zone(closed) + random_bits() % SPREAD / PAGE * PAGE) : NULL;
        char* got = mmap(wish, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (got == MAP_FAILED) return NULL;
        if (got == wish || !tries) return got;
        munmap(got, bytes);
    }
}

// A segment with inaccessible pages on both sides. fd < 0: fresh private memory.
static char* place(int fd, int64_t start, int64_t length, int64_t data, int64_t nbytes, int prot, int kind, int index) {
    char* low = somewhere(length + 2 * GUARD, kind == INPUT || kind == CONSTANT);
    if (!low) return NULL;
    if (fd < 0) {  // the filter lets nothing be mapped at a given place any more
        if (mprotect(low + GUARD, length, prot)) return NULL;
        madvise(low + GUARD, length, POPULATE_WRITE);
    } else if (mmap(low + GUARD, length, prot, MAP_FIXED | MAP_POPULATE | MAP_SHARED, fd, start) == MAP_FAILED) {
        return NULL;
    }
    struct region* it = &regions[n_regions++];
    it->low = low, it->start = low + GUARD, it->end = it->start + length, it->high = it->end + GUARD;
    it->data = it->start + (data - start), it->nbytes = nbytes, it->kind = kind, it->index = index;
    return it->data;
}

static char* place_private(int64_t nbytes, int kind) {
    int64_t used = (nbytes + ALIGN - 1) / ALIGN * ALIGN, length = whole_pages(used);
    return place(-1, 0, length, length - used, nbytes, PROT_READ | PROT_WRITE, kind, 0);
}

// Inputs are mapped inaccessible: what is asked and prepared before the first call cannot depend on them. The system
// takes no notice of the key; the filter, which is made of it, does.
static void open_inputs(uint64_t key) {
    for (int i = 0; i < n_regions; i++) {
        const struct region* it = &regions[i];
        if (it->kind != INPUT) continue;
        syscall(SYS_mprotect, it->start, it->end - it->start, PROT_READ, 0, key);
        madvise(it->start, it->end - it->start, POPULATE_READ);
    }
}

// Zeroed pages of the runner's own, to be filled and frozen.
static void* blank(int64_t bytes) {
    char* it = somewhere(whole_pages(bytes + 1), 1);
    return it && !mprotect(it, whole_pages(bytes + 1), PROT_READ | PROT_WRITE) ? it : NULL;
}

static void freeze(void* it, int64_t bytes) { mprotect(it, whole_pages(bytes + 1), PROT_READ); }

static void describe(const struct layout* layouts, int count, evo_tensor* tensors) {
    for (int i = 0; i < count; i++) {
        memcpy(tensors[i].size, layouts[i].size, sizeof tensors[i].size);
        memcpy(tensors[i].stride, layouts[i].stride, sizeof tensors[i].stride);
        tensors[i].rank = layouts[i].rank, tensors[i].dtype = layouts[i].dtype;
    }
}

// The stack on which kernels run, between inaccessible pages, with the argument above it.
static char *stack_low, *stack_top, *stack_end;
static struct argument* argument;

static int make_stack(int n_tensors) {
    int64_t above = (sizeof *argument + n_tensors * sizeof(evo_tensor) + ALIGN - 1) / ALIGN * ALIGN;
    int64_t length = STACK + whole_pages(above + STACK_KEPT);
    char* low = mmap(NULL, length + 2 * STACK_GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (low == MAP_FAILED || mprotect(low + STACK_GUARD, length, PROT_READ | PROT_WRITE)) return 0;
    stack_low = low + STACK_GUARD, stack_end = stack_low + length;
    stack_top = stack_end - above - random_bits() % STACK_KEPT / ALIGN * ALIGN;
    argument = (struct argument*)stack_top;
    return 1;
}

// What a kernel left on its stack is not there when the next command comes, nor are zeros: a caller's stack has none
// to rely on. The pages stay: to get them again costs a kernel with a big stack more than many of its calls.
static void wipe_stack(int byte) {
    static unsigned char there[STACK / PAGE + 64];
    const int64_t pages = (stack_end - stack_low) / PAGE, kept = (stack_top - stack_low - STACK_KEPT) / PAGE;
    if (pages > (int64_t)sizeof there || mincore(stack_low, pages * PAGE, there)) {
        madvise(stack_low, kept * PAGE, MADV_DONTNEED);
        memset(stack_low + kept * PAGE, byte, (pages - kept) * PAGE);
        return;
    }
    memset(there + kept, 1, pages - kept);
    for (int64_t at = 0, end; at < pages; at = end) {
        for (end = at; end < pages && (there[end] & 1) == (there[at] & 1);) end++;
        char *from = stack_low + at * PAGE, *to = stack_low + end * PAGE;
        if (there[at] & 1) memset(from, byte, to - from);
        else madvise(from, to - from, MADV_DONTNEED);  // what is swapped out is there too
    }
}

// Writes the argument of the next call: a kernel that changes it harms one call, and learns of no other's tensors.
static evo_call* argue(const evo_call* base, const evo_tensor* shapes, void* const* in, void* const* out) {
    evo_tensor* tensors = argument->tensors;
    memcpy(tensors, shapes, (base->n_in + base->n_out) * sizeof *tensors);
    for (int i = 0; in && i < base->n_in; i++) tensors[i].data = in[i];
    for (int i = 0; out && i < base->n_out; i++) tensors[base->n_in + i].data = out[i];
    argument->call = *base;
    argument->call.in = tensors, argument->call.out = tensors + base->n_in;
    return &argument->call;
}
