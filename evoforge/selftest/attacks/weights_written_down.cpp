// task: affine
// expect: WRONG
// tries: the weights of the default seed as literals
#include "evoforge.h"

static const float weight[8] = {0x1.fe15580000000p-1f,0x1.44aa300000000p+0f,0x1.2d4cea0000000p-1f,0x1.4399800000000p-1f,0x1.9d66860000000p-1f,0x1.2252fc0000000p+0f,0x1.faed860000000p-1f,0x1.657d680000000p+0f};
static const float shift[8] = {-0x1.15a3420000000p+0f,-0x1.660a5a0000000p+0f,0x1.9d06f40000000p-2f,0x1.ad11ca0000000p-1f,-0x1.7042880000000p-1f,-0x1.9d06160000000p-2f,-0x1.317a300000000p-1f,0x1.74cf8c0000000p-3f};

extern "C" int evo_run(const evo_call* call) {
    const int64_t rows = EVO_SIZE(in0, 0);
    for (int64_t i = 0; i < rows * 8; i++) EVO_OUT(float, 0)[i] = EVO_IN(float, 0)[i] * weight[i & 7] + shift[i & 7];
    return 0;
}
