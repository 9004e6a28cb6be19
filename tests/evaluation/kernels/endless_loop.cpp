#include "evoforge.h"

extern "C" int evo_run(const evo_call*) {
    for (volatile int i = 0;; i = i + 1) {
    }
    return 0;
}
