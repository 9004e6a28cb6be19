// 16-bit floats in memory: values are computed in float.
#pragma once
#include "evoforge_vec.h"

namespace evo {

struct bf16 {
    uint16_t bits;
    bf16() = default;
    explicit bf16(float x) {
        uint32_t u;
        __builtin_memcpy(&u, &x, 4);
        bits = x != x ? 0x7fc0 : (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);  // to nearest, ties to even
    }
    operator float() const {
        uint32_t u = (uint32_t)bits << 16;
        float x;
        __builtin_memcpy(&x, &u, 4);
        return x;
    }
};

struct f16 {
    uint16_t bits;
    f16() = default;
#ifdef __F16C__
    explicit f16(float x) : bits((uint16_t)_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), 0), 0)) {}
    operator float() const { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits))); }
#else
    explicit f16(float x) {
        uint32_t u;
        __builtin_memcpy(&u, &x, 4);
        uint32_t sign = (u >> 16) & 0x8000, a = u & 0x7fffffff;
        if (a > 0x7f800000) bits = (uint16_t)(sign | 0x7e00);
        else if (a >= 0x477ff000) bits = (uint16_t)(sign | 0x7c00);
        else if (a < 0x38800000) {  // a denormal half: let a float addition round it
            float y, magic = 0.5f;
            __builtin_memcpy(&y, &a, 4);
            y = detail::keep(y + magic);
            __builtin_memcpy(&a, &y, 4);
            bits = (uint16_t)(sign | (a - 0x3f000000));
        } else bits = (uint16_t)(sign | ((a - 0x38000000 + 0xfff + ((a >> 13) & 1)) >> 13));
    }
    operator float() const {
        uint32_t sign = (uint32_t)(bits & 0x8000) << 16, e = (bits >> 10) & 31, m = bits & 0x3ff, u;
        float x;
        if (e == 0) {
            x = (float)m * 0x1p-24f;
            __builtin_memcpy(&u, &x, 4);
            u |= sign;
        } else u = sign | (e == 31 ? 0x7f800000 | (m << 13) : ((e + 112) << 23) | (m << 13));
        __builtin_memcpy(&x, &u, 4);
        return x;
    }
#endif
};

}  // namespace evo
