// task: add
// expect: SCREENED | CRASH | LOAD_ERROR | BUILD_ERROR
// tries: machine code in a table, which the screen does not read as code
#define evo_run evo_run_declared
#include "evoforge.h"
#undef evo_run

extern "C" __attribute__((visibility("default"))) const unsigned char evo_run[] = {0x31, 0xc0, 0xc3};
