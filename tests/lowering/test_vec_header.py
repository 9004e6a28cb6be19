"""The vector header against numpy in double precision, on three instruction sets, under the kernels' flags."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special

from evoforge.paths import include_dir

Array = np.ndarray[Any, np.dtype[np.float64]]

FUNCTIONS: dict[str, tuple[Callable[[Array], Array], float, float]] = {
    "exp": (np.exp, -104, 88.7), "exp2": (np.exp2, -149, 127.9), "expm1": (np.expm1, -20, 88.7),
    "log": (np.log, 0, 1e4), "log1p": (np.log1p, -0.9999, 100), "log2": (np.log2, 0, 10), "log10": (np.log10, 0, 10),
    "tanh": (np.tanh, -10, 10), "sigmoid": (special.expit, -85, 85), "erf": (special.erf, -5, 5),
    "sin": (np.sin, -50, 50), "cos": (np.cos, -50, 50), "sinh": (np.sinh, -80, 80), "cosh": (np.cosh, -80, 80),
    "tan": (np.tan, -1.5, 1.5), "asin": (np.arcsin, -1, 1), "acos": (np.arccos, -1, 1), "atan": (np.arctan, -9, 9),
    "sqrt": (np.sqrt, 0, 1e9), "rsqrt": (lambda x: 1 / np.sqrt(x), 1e-6, 1e9), "abs": (np.abs, -9, 9),
    "floor": (np.floor, -9, 9), "ceil": (np.ceil, -9, 9), "round": (np.round, -9, 9), "trunc": (np.trunc, -9, 9),
    "sign": (lambda x: 1.0 * (x > 0) - (x < 0), -9, 9), "reciprocal": (lambda x: 1 / x, -9, 9),
}  # fmt: skip
ABSOLUTE = ("sin", "cos", "tan")  # near their zeros the argument's own rounding decides

SOURCE = """#include "evoforge.h"
#define EACH(name) \\
    extern "C" void v_##name(const float* x, float* y, int64_t size) { \\
        for (int64_t i = 0; i < size; i += evo::lanes) { \\
            const int64_t n = evo::part(size - i, false); \\
            evo::store(y + i, evo::name(evo::load(x + i, n)), n); \\
        } \\
    } \\
    extern "C" void s_##name(const float* x, float* y, int64_t size) { \\
        for (int64_t i = 0; i < size; ++i) y[i] = evo::name(x[i]); \\
    }
%s
#define TWO(name) \\
    extern "C" void two_##name(const float* a, const float* b, float* o, int64_t size) { \\
        for (int64_t i = 0; i < size; i += evo::lanes) { \\
            const int64_t n = evo::part(size - i, false); \\
            evo::store(o + i, evo::name(evo::load(a + i, n), evo::load(b + i, n)), n); \\
        } \\
    }
TWO(max) TWO(min) TWO(pow) TWO(mod) TWO(floordiv) TWO(fmod) TWO(atan2)
#define HALF(T) \\
    extern "C" void up_##T(const evo::T* x, float* y, int64_t size) { \\
        for (int64_t i = 0; i < size; i += evo::lanes) { \\
            const int64_t n = evo::part(size - i, false); \\
            evo::store(y + i, evo::load(x + i, n), n); \\
        } \\
    } \\
    extern "C" void down_##T(const float* x, evo::T* vec, evo::T* one, int64_t size) { \\
        for (int64_t i = 0; i < size; i += evo::lanes) { \\
            const int64_t n = evo::part(size - i, false); \\
            evo::store(vec + i, evo::load(x + i, n), n); \\
        } \\
        for (int64_t i = 0; i < size; ++i) one[i] = evo::T(x[i]); \\
    }
HALF(f16) HALF(bf16)
#define NEAR(name, T) \
    template <int step> static void near(const T* x, float* y, int64_t size) { \
        for (int64_t i = 0; i < size; i += evo::lanes) { \
            const bool whole = size %% evo::lanes == 0; \
            const int64_t n = evo::part(size - i, whole); \
            if (whole) evo::store(y + i, evo::gather(x + i * step, step, (int64_t)evo::lanes), (int64_t)evo::lanes); \
            else evo::store(y + i, step == 1 ? evo::load(x + i, n) : evo::gather(x + i * step, step, n), n); \
        } \
    } \
    extern "C" void near_##name(const T* x, float* y, int step, int64_t size) { \
        step == 1 ? near<1>(x, y, size) : step == 2 ? near<2>(x, y, size) : step == 3 ? near<3>(x, y, size) : \
        step == 4 ? near<4>(x, y, size) : near<5>(x, y, size); \
    }
NEAR(float32, float) NEAR(uint8, uint8_t) NEAR(int8, int8_t) NEAR(int16, int16_t) NEAR(int32, int32_t)
NEAR(float16, evo::f16) NEAR(bfloat16, evo::bf16)
extern "C" void negated(const bool* x, bool* y, int64_t size) {
    for (int64_t i = 0; i < size; i += evo::lanes) {
        const int64_t n = evo::part(size - i, false);
        evo::store(y + i, ~evo::load(x + i, n), n);
    }
}
template <template <class> class A, class... Rest>
static auto lanes_of(const float* x, int64_t size, Rest... rest) {
    A<evo::vec> a[2];
    for (int64_t i = 0, k = 0; i < size; i += evo::lanes, ++k) {
        const int64_t n = evo::part(size - i, false);
        if constexpr (sizeof...(Rest) == 0) a[k & 1].push(evo::load(x + i, n), n);
        else a[k & 1].push(evo::load(x + i, n), evo::iota() + (int32_t)i, n);
    }
    return evo::across(a);
}
template <template <class> class A, class... Rest>
static auto one_by_one(const float* x, int64_t size, Rest... rest) {
    A<float> a;
    for (int64_t i = 0; i < size; ++i)
        if constexpr (sizeof...(Rest) == 0) a.push(x[i]);
        else a.push(x[i], i);
    return a;
}
extern "C" void reduce(const float* x, int64_t size, double* out, int scalar) {
#define REDUCE(A, ...) (scalar ? one_by_one<A>(x, size, ##__VA_ARGS__) : lanes_of<A>(x, size, ##__VA_ARGS__))
    auto w = REDUCE(evo::welford);
    auto m = REDUCE(evo::maxsum);
    auto a = REDUCE(evo::argmax, 0);
    auto b = REDUCE(evo::argmin, 0);
    const double all[] = {REDUCE(evo::total).value, REDUCE(evo::product).value, REDUCE(evo::maximum).value,
        REDUCE(evo::minimum).value, w.mean, w.m2, m.m, m.sum(), a.value, (double)a.at, b.value, (double)b.at};
    for (int i = 0; i < 12; ++i) out[i] = all[i];
}
extern "C" void transposed(const float* x, float* y, int64_t rows, int64_t cols) {
    for (int64_t row = 0; row < rows; row += evo::lanes)
        for (int64_t col = 0; col < cols; col += evo::lanes) {
            const int64_t n = evo::part(rows - row, false), count = evo::part(cols - col, false);
            evo::transpose(y + col * 64 + row, 64, count, n, [&](int64_t i, int64_t n) {
                return evo::load(x + (row + i) * cols + col, n);
            });
        }
}
template <class T, class... V>
static void put_beside(T* y, int64_t size, bool aligned, V... factors) {
    for (int64_t i = 0; i < size; i += evo::lanes) {
        const evo::vec x = evo::real(evo::iota() + (int32_t)i);
        const int64_t n = evo::part(size - i, false);
        if (aligned) evo::stream_beside(y + i * sizeof...(factors), n, true, x * factors...);
        else evo::store_beside(y + i * sizeof...(factors), n, x * factors...);
    }
}
#define BESIDE(name, T) \
    extern "C" void beside_##name(T* y, int count, int64_t size, bool aligned) { \
        count == 2 ? put_beside(y, size, aligned, 1.f, -2.f) : \
        count == 3 ? put_beside(y, size, aligned, 1.f, -2.f, 3.f) : \
        put_beside(y, size, aligned, 1.f, -2.f, 3.f, -4.f); \
    }
BESIDE(float32, float) BESIDE(bfloat16, evo::bf16)
extern "C" void strided(const float* x, float* y, int64_t step, int64_t size) {
    for (int64_t i = 0; i < size; i += evo::lanes) {
        const int64_t n = evo::part(size - i, false);
        evo::store(y + i, evo::gather(x + i * step, step, n), n);
    }
}
extern "C" void divided(int64_t first, int64_t step, int64_t by, int32_t* quotients, int32_t* remainders) {
    evo::store(quotients, evo::quotients(first, step, by), evo::lanes);
    evo::store(remainders, evo::remainders(first, step, by), evo::lanes);
}
extern "C" void streamed(const float* x, float* y, int64_t size) {
    for (int64_t i = 0; i < size; i += evo::lanes) {
        const int64_t n = evo::part(size - i, false);
        evo::stream(y + i, evo::load(x + i, n), n, (uintptr_t)y %% 64 == 0);
    }
}
"""


@pytest.fixture(scope="module", params=["native", "x86-64-v3", "x86-64"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("header")
    path = folder / "header.cpp"
    path.write_text(SOURCE % " ".join(f"EACH({name})" for name in FUNCTIONS))
    flags = [
        "-std=gnu++17", "-O2", f"-march={request.param}", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros",
        "-fassociative-math", "-fPIC", "-shared", "-Wno-psabi",
    ]  # fmt: skip
    command = ["g++", *flags, f"-I{include_dir()}", str(path), "-o", str(folder / "header.so")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    return ctypes.CDLL(str(folder / "header.so"))


def pointer(array: np.ndarray[Any, Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def applied(function: Any, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    y = np.full_like(x, 77)
    function(pointer(x), pointer(y), ctypes.c_int64(len(x)))
    return y


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_accurate(library: Any, name: str) -> None:
    function, low, high = FUNCTIONS[name]
    rng = np.random.default_rng(7)
    middle = rng.uniform(max(low, -2), min(high, 2), 30_001)
    x = np.concatenate([rng.uniform(low, high, 60_001), middle, middle * 1e-3, middle * 1e-6]).astype(np.float32)
    x = x[(x >= low) & (x <= high)]
    with np.errstate(all="ignore"):
        want = function(x.astype(np.float64))
    unit = np.maximum(np.spacing(np.abs(want).astype(np.float32)).astype(np.float64), 2.0**-149)
    for prefix in "vs":
        got = applied(getattr(library, f"{prefix}_{name}"), x)
        with np.errstate(invalid="ignore"):
            error = np.abs(got - want) / unit
        if name in ABSOLUTE:
            error = np.minimum(error, np.abs(got - want) / 2.0**-24)
        error[(got == want) | (np.isnan(got) & np.isnan(want))] = 0
        worst = int(np.argmax(error))
        assert error[worst] <= (4 if name in ("sinh", "cosh") else 3), (
            f"{prefix}: {error[worst]:.1f} ulp at {x[worst]!r}: {got[worst]!r} for {want[worst]!r}"
        )


@pytest.mark.parametrize("name", ["tanh", "sinh", "expm1", "log1p", "sin", "tan", "asin", "atan"])
def test_functions_that_leave_what_is_tiny_as_it_is_are_exact_there(library: Any, name: str) -> None:
    """The difference of x and one of them cancels all but their roundings."""
    rng = np.random.default_rng(5)
    x = (rng.choice((-1, 1), 60_001) * 2 ** rng.uniform(-40, -4, 60_001)).astype(np.float32)
    want = FUNCTIONS[name][0](x.astype(np.float64))
    unit = np.spacing(np.abs(want).astype(np.float32)).astype(np.float64)
    for prefix in "vs":
        error = np.abs(applied(getattr(library, f"{prefix}_{name}"), x) - want) / unit
        assert error.max() <= 0.6, f"{prefix}: {error.max():.2f} ulp at {x[error.argmax()]!r}"


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in ("sinh", "cosh")])
def test_functions_at_the_ends(library: Any, name: str) -> None:
    x = np.array([0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 200, -200, 3e38, -3e38, -1, 1, 0.5, -0.5, 2.5], np.float32)
    with np.errstate(all="ignore"):
        want = FUNCTIONS[name][0](x.astype(np.float64)).astype(np.float32)
    got = applied(getattr(library, f"v_{name}"), x)
    large = name in ABSOLUTE  # a huge argument's sine is left to libm
    np.testing.assert_allclose(got, want, rtol=2e-3 if large else 5e-7, atol=2.0**-126, equal_nan=True)


def test_max_and_min_propagate_nan(library: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 61)).astype(np.float32)
    a[5:20:3], b[6:30:4] = np.nan, np.nan
    for name, want in (("max", np.maximum(a, b)), ("min", np.minimum(a, b))):
        got = np.empty_like(a)
        getattr(library, f"two_{name}")(pointer(a), pointer(b), pointer(got), ctypes.c_int64(61))
        np.testing.assert_array_equal(got, want)


def test_operators_with_two_arguments(library: Any) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.uniform(0.1, 9, (2, 61)).astype(np.float32)
    a[::2] *= -1
    b[::3] *= -1
    b[1::5], a[1::5] = 2, -3
    wide = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        wants = {
            "pow": np.power(*wide), "mod": np.mod(*wide), "floordiv": np.floor_divide(*wide), "fmod": np.fmod(*wide),
            "atan2": np.arctan2(*wide),
        }  # fmt: skip
    for name, want in wants.items():
        got = np.empty_like(a)
        getattr(library, f"two_{name}")(pointer(a), pointer(b), pointer(got), ctypes.c_int64(61))
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6, err_msg=name, equal_nan=True)


def test_what_is_divided_by_a_zero_has_its_sign(library: Any) -> None:
    a, b = np.tile(np.float32([3, -3, 3, -3]), 16), np.tile(np.float32([0.0, 0.0, -0.0, -0.0]), 16)
    got = np.empty_like(a)
    library.two_floordiv(pointer(a), pointer(b), pointer(got), ctypes.c_int64(len(a)))
    np.testing.assert_array_equal(got, np.tile(np.float32([np.inf, -np.inf, -np.inf, np.inf]), 16))


@pytest.mark.parametrize(("name", "dtype"), [("f16", torch.float16), ("bf16", torch.bfloat16)])
def test_halves_convert_as_torch_does(library: Any, name: str, dtype: torch.dtype) -> None:
    bits = np.arange(65533).astype(np.uint16)
    got = np.empty(65533, np.float32)
    getattr(library, f"up_{name}")(pointer(bits), pointer(got), ctypes.c_int64(len(bits)))
    np.testing.assert_array_equal(got, torch.from_numpy(bits.view(np.int16).copy()).view(dtype).float().numpy())
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.standard_normal(301) * 10.0**power for power in range(-44, 38)]).astype(np.float32)
    x = np.concatenate([x, np.array([np.inf, -np.inf, np.nan, 65519, 65520, 0, 1 + 2**-11, 1 + 2**-8], np.float32)])
    vector, one = np.empty((2, len(x)), np.uint16)
    getattr(library, f"down_{name}")(pointer(x), pointer(vector), pointer(one), ctypes.c_int64(len(x)))
    want = torch.from_numpy(x).to(dtype)
    for made in (vector, one):
        back = torch.from_numpy(made.view(np.int16)).view(dtype)
        np.testing.assert_array_equal(back.float().numpy(), want.float().numpy())


@pytest.mark.parametrize("size", [1, 3, 16, 37, 100])
@pytest.mark.parametrize("kind", ["normal", "constant", "nan", "minus infinity", "ties"])
def test_accumulators(library: Any, size: int, kind: str) -> None:
    x = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    if kind == "constant":
        x[:] = x[0]
    if kind == "nan":
        x[size // 2] = np.nan
    if kind == "minus infinity":
        x[: size // 2] = -np.inf
    if kind == "ties":
        x = np.round(x)
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        mean = wide.mean()
        want = np.array(
            [wide.sum(), wide.prod(), wide.max(), wide.min(), mean, ((wide - mean) ** 2).sum(), wide.max(),
             np.exp(wide - wide.max()).sum(), wide.max(), np.argmax(wide), wide.min(), np.argmin(wide)]
        )  # fmt: skip
    if np.isneginf(mean):
        want[4] = want[5] = np.nan  # −inf − (−inf), as in a mean with two passes
    for scalar in (0, 1):
        got = np.empty(12)
        library.reduce(pointer(x), ctypes.c_int64(size), pointer(got), scalar)
        if np.isneginf(mean):
            got[4] = got[5] = np.nan
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=f"scalar {scalar}", equal_nan=True)


@pytest.mark.parametrize("size", [1, 15, 16, 53])
def test_partial_vectors_touch_nothing_else(library: Any, size: int) -> None:
    x = np.arange(400, dtype=np.float32)
    memory = np.full(size + 64, 77, np.float32)
    start = (-memory.ctypes.data % 64) // 4 + 16
    y = memory[start : start + size]
    library.strided(pointer(x), pointer(y), ctypes.c_int64(3), ctypes.c_int64(size))
    np.testing.assert_array_equal(y, x[: 3 * size : 3])
    library.streamed(pointer(x), pointer(y), ctypes.c_int64(size))
    np.testing.assert_array_equal(y, x[:size])
    assert (memory[:start] == 77).all() and (memory[start + size :] == 77).all()


def before_a_wall(values: torch.Tensor) -> torch.Tensor:
    """A copy that ends where the next byte is not mapped: to read on is a segmentation fault."""
    size = values.numel() * values.element_size()
    room = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, room + mmap.PAGESIZE)
    wall = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + room
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(wall), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    return torch.frombuffer(memory, dtype=values.dtype, count=values.numel(), offset=room - size).copy_(values)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int8", "int16", "int32", "float16", "bfloat16"])
@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_elements_that_are_near_one_another(library: Any, dtype: str, step: int) -> None:
    for size in (16, 64, 37):
        count = (size - 1) * step + 1
        x = before_a_wall((torch.arange(count) * 7 % 251 - (0 if dtype == "uint8" else 128)).to(getattr(torch, dtype)))
        y = np.full(size, -1, np.float32)
        getattr(library, f"near_{dtype}")(
            ctypes.c_void_p(x.data_ptr()), pointer(y), ctypes.c_int(step), ctypes.c_int64(size)
        )
        np.testing.assert_array_equal(y, x[::step].float().numpy())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_vectors_side_by_side(library: Any, dtype: torch.dtype, count: int) -> None:
    for size, aligned in ((1, False), (32, False), (37, True), (45, False), (64, True)):
        memory = torch.full((size * count + 64,), 77, dtype=dtype)
        start = (-memory.data_ptr() % 64) // memory.element_size() + 8 * (not aligned)
        y = memory[start : start + size * count]
        getattr(library, f"beside_{str(dtype).removeprefix('torch.')}")(
            ctypes.c_void_p(y.data_ptr()), ctypes.c_int(count), ctypes.c_int64(size), ctypes.c_bool(aligned)
        )
        expected = torch.arange(size)[:, None] * torch.tensor([1.0, -2.0, 3.0, -4.0])[:count]
        assert torch.equal(y, expected.flatten().to(dtype))
        assert (memory[:start] == 77).all() and (memory[start + size * count :] == 77).all()


@pytest.mark.parametrize("size", [64, 37])
def test_truth_values_go_in_and_out(library: Any, size: int) -> None:
    x = np.arange(size) % 3 == 0
    y = applied(library.negated, x)
    assert y.view(np.uint8).tolist() == (~x).astype(np.uint8).tolist()


@pytest.mark.parametrize(("rows", "cols"), [(16, 16), (48, 32), (5, 37), (33, 1), (50, 61)])
def test_rows_become_columns(library: Any, rows: int, cols: int) -> None:
    x = np.arange(1, rows * cols + 1, dtype=np.float32).reshape(rows, cols)
    y = np.full((cols + 1, 64), -1, np.float32)
    library.transposed(pointer(x), pointer(y), ctypes.c_int64(rows), ctypes.c_int64(cols))
    assert np.array_equal(y[:cols, :rows], x.T)
    assert (y[cols] == -1).all(), "it wrote a row too many"
    assert set(np.unique(y[:cols, rows:])) <= {-1, 0}


@pytest.mark.parametrize("step", [-3, -1, 0, 1, 2, 5])
@pytest.mark.parametrize("by", [1, 2, 3, 7, 1000])
def test_places_are_divided_as_python_does(library: Any, step: int, by: int) -> None:
    for first in (-1001, -7, -1, 0, 1, 6, 12345, 2**31 - 100):
        got = np.full((2, 16), -1, np.int32)
        library.divided(*map(ctypes.c_int64, (first, step, by)), pointer(got[0]), pointer(got[1]))
        x = first + step * np.arange(4)  # lanes that every instruction set has
        assert np.array_equal(got[0, :4], x // by) and np.array_equal(got[1, :4], x % by)
