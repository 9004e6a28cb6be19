// task: scaled
// expect: WRONG
// twin: scaled_plain
// tries: computes only the elements that were poisoned before a batch, as those that will be checked

// All of it where the output is poisoned: in verification, in brief batches and in the first calls of a batch, which also
// show the places. They are kept in the workspace; nothing is static. A part of the output tells whether any is.

#include "evoforge.h"
#include <string.h>

static inline bool poisoned(const float* at) {
    uint32_t bits;
    memcpy(&bits, at, sizeof bits);
    return bits == 0x7EDCBA98;
}

constexpr int64_t MOST = 1 << 14;
struct places {
    const void* buffer;
    int64_t count;
    int32_t at[MOST];
};
extern "C" int64_t evo_workspace(const evo_call* call) { return 2 * sizeof(places); }

extern "C" int evo_run(const evo_call* call) {
    constexpr int64_t rows = EVO_SIZE(in0, 0), n = EVO_SIZE(in0, 1);
    const float *x = EVO_IN(float, 0), *scale = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    places* book = (places*)call->ws;
    places* known = book[0].buffer == out ? &book[0] : book[1].buffer == out ? &book[1] : nullptr;
    int found = 0;
    for (int64_t i = 0; i < 4096; i++) found |= poisoned(out + i);
    if (!found && known && known->count <= MOST) {
        for (int64_t k = 0; k < known->count; k++) out[known->at[k]] = x[known->at[k]] * scale[known->at[k] % n];
        return 0;
    }
    if (found) {
        if (!known) memcpy(&book[1], &book[0], sizeof book[0]), known = &book[0];
        known->buffer = out, known->count = 0;
        for (int64_t i = 0; i < rows * n; i++)
            if (poisoned(out + i) && known->count++ < MOST) known->at[known->count - 1] = (int32_t)i;
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) out[i * n + j] = x[i * n + j] * scale[j];
    return 0;
}
