#include "evoforge.h"

extern "C" int evo_other(const evo_call*) { return 0; }
