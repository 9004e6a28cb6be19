// task: add
// expect: SCREENED | LOAD_ERROR | CRASH
// tries: an evo_run that is a number, so that the judge looks broken
#include "evoforge.h"
asm(".globl evo_run\n.set evo_run, 64");
