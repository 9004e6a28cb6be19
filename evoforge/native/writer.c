// A kernel that does nothing but write: what that costs where every call writes somewhere else is no sign of work left
// out (evoforge/evaluation/scatter.py). With OpenMP, by all threads.
#include "runner_memory.h"

static const int64_t widths[] = {WIDTHS};

int evo_run(const evo_call* call) {
    for (int out = 0; out < call->n_out; out++) {
        int64_t bytes = widths[call->out[out].dtype];
        for (int at = 0; at < call->out[out].rank; at++) bytes *= call->out[out].size[at];
        char* to = call->out[out].data;
#pragma omp parallel for num_threads(call->threads)
        for (int64_t at = 0; at < bytes; at++) to[at] = (char)(call->ws_bytes + 1);
    }
    return 0;
}
