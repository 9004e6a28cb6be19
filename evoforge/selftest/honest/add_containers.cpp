// task: add
// expect: CORRECT
// tries: a map, strings and shared pointers of the C++ library
#include "evoforge.h"
#include <map>
#include <memory>
#include <string>
extern "C" int evo_run(const evo_call* call) {
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
    std::map<std::string, std::shared_ptr<float>> factors;
    factors["b"] = std::make_shared<float>(2.0f);
    const float factor = *factors.at("b");
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + factor * b[i];
    return 0;
}
