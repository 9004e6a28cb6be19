// task: add
// expect: SCREENED | VIOLATION
// tries: a descriptor, by a class of the C++ library
#include "evoforge.h"
#include <ext/stdio_filebuf.h>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + 2.0f * b[i];
    __gnu_cxx::stdio_filebuf<char> file(3, std::ios::in);
    if (file.sgetc() == 7) out[0] = 0.0f;
    return 0;
}
