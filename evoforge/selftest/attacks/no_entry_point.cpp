// task: add
// expect: LOAD_ERROR | SCREENED | BUILD_ERROR
// tries: nothing to run
#include "evoforge.h"

extern "C" int evo_go(const evo_call*) { return 0; }
