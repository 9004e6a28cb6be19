// task: add
// expect: WRONG
// tries: to be believed for whatever lies in the output
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {
    return 0;
}
