#include "evoforge.h"

extern "C" int evo_run(const evo_call*) { return 2; }
