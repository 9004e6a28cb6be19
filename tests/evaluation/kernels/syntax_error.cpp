#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) { return 0 }
