// task: add
// expect: BUILD_ERROR
// tries: a compiler's message that looks as if the machine were at fault
#include "evoforge.h"
#error No space left on device
