#include "evoforge.h"

__attribute__((noinline)) static int deeper(volatile int* above, int depth) {
    volatile int here[1024];
    here[depth % 1024] = above[0] + depth;
    return deeper(here, depth + 1) + here[(depth + 1) % 1024];
}

extern "C" int evo_run(const evo_call*) {
    volatile int start[1] = {0};
    return deeper(start, 0) == 7 ? 2 : 0;
}
