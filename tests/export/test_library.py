"""The exported package, used the way a user does: in a process that cannot import evoforge."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evoforge.core import Candidate, Signature, Target, Task, TensorSpec, Workload
from evoforge.errors import UsageError
from evoforge.evaluation.build import Builder
from evoforge.evaluation.targets import resolve_target
from evoforge.export import ExportedKernel, Library, required_cpu_flags, write_library

TASK = """
import torch
from torch import nn

M, N = 24, 40
ROWS = 24
COLUMNS = 40
EPS = 1e-6


class Model(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(n) + 0.5)
        self.eps = eps

    def forward(self, x, residual):
        total = x + residual
        return {"y": total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight, "sum": total}


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [COLUMNS, EPS]
"""

KERNEL = """
// evoforge: param STEP = 1 in {1, 2}
#include "evoforge.h"
#include <math.h>
extern "C" int64_t evo_workspace(const evo_call* call) { return call->threads * EVO_SIZE(in0, 1) * 4; }
extern "C" int64_t evo_packed_bytes(const evo_call* call) { return EVO_SIZE(cst0, 0) * 4; }
extern "C" int evo_prepare(const evo_call* call, void* packed) {
  for (int64_t j = 0; j < EVO_SIZE(cst0, 0); j++) ((float*)packed)[j] = EVO_CST(float, 0)[j];
  return 0;
}
extern "C" int evo_run(const evo_call* call) {
  const int64_t M = EVO_SIZE(in0, 0), N = EVO_SIZE(in0, 1);
  const float *x = EVO_IN(float, 0), *r = EVO_IN(float, 1), *w = (const float*)call->packed;
  float *sum = EVO_OUT(float, 0 + SUM), *y = EVO_OUT(float, 1 - SUM), *row = (float*)call->ws;
  for (int64_t i = 0; i < M; i += 1) {
    float s = 0;
    for (int64_t j = 0; j < N; j += 1) { row[j] = x[i * N + j] + r[i * N + j]; s += row[j] * row[j]; }
    float scale = 1.0f / sqrtf(s / N + 1e-6f);
    for (int64_t j = 0; j < N; j += 1) { sum[i * N + j] = row[j]; y[i * N + j] = row[j] * scale * w[j] * SCALE; }
  }
  return 0;
}
""".replace("SUM", "1")


def spec(name: str, *shape: int) -> TensorSpec:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return TensorSpec(name, shape, tuple(strides), "f32")


def signature(rows: int) -> Signature:
    return Signature(
        (spec("in0", rows, 40), spec("in1", rows, 40)),
        (spec("cst0", 40),),
        (spec("out0", rows, 40), spec("out1", rows, 40)),
    )


def library(*scales: str, target: Target | None = None, task: str = TASK) -> Library:
    target = target or resolve_target("cpu")
    kernels = [
        ExportedKernel(Candidate("cpp", KERNEL.replace("SCALE", scale)), {"STEP": 1}, (0, at, 3), 0.5 - at, 0.4 - at)
        for at, scale in enumerate(scales)
    ]
    workloads = (Workload("default"), Workload("small", {"ROWS": 8}))
    return Library(
        "trial-1",
        Task("fused norm", task, workloads),
        target,
        {"default": signature(24), "small": signature(8)},
        kernels,
        Builder(target).flags,
    )


def use(folder: Path, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `script` beside the package, without evoforge: -I ignores the working tree and PYTHONPATH."""
    program = (
        "import sys, importlib.abc\n"
        "class Wall(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'evoforge': raise ImportError('evoforge is out of reach')\n"
        "sys.meta_path.insert(0, Wall())\n"
        f"sys.path.insert(0, {str(folder.parent)!r})\n" + textwrap.dedent(script)
    )
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder.parent), "EVOFORGE_KERNEL_CACHE": str(folder.parent / "built")}
    return subprocess.run(
        [sys.executable, "-I", "-c", program], env={**env, **environment}, capture_output=True, text=True, timeout=120
    )


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Niche (0, 0, 3) is right, (0, 1, 3) is wrong by a tenth, (0, 2, 3) does not compile."""
    return write_library(library("1.0f", "1.1f", "nonsense"), tmp_path_factory.mktemp("export") / "fastnorm")


def test_the_kernel_answers_and_is_right(package: Path) -> None:
    done = use(
        package,
        """
        import fastnorm
        assert "torch" not in sys.modules, "importing the package must be light"
        assert fastnorm.niches() == [(0, 0, 3), (0, 1, 3), (0, 2, 3)] and fastnorm.best() == (0, 0, 3)
        import torch
        k = fastnorm.load()
        x, r = torch.randn(24, 40), torch.randn(24, 40)
        with torch.no_grad():
            assert k.why_not(x, r) is None, k.why_not(x, r)
            rsqrt, called = torch.rsqrt, []
            torch.rsqrt = lambda *args: called.append(1) or rsqrt(*args)
            got, wanted = k(x, r), k.reference(x, r)
            assert len(called) == 1, "the reference answered"
            assert list(got) == ["y", "sum"]
            for name in got:
                torch.testing.assert_close(got[name], wanted[name])
            k.reference.weight.mul_(3.0)
            torch.testing.assert_close(k(x, r)["y"], 3 * got["y"])
            k.reference.load_state_dict({"weight": torch.ones(40)})
            torch.testing.assert_close(k(x, r), k.reference(x, r))
            small = torch.randn(8, 40)
            assert k.why_not(small, small) is None
            torch.testing.assert_close(k(small, small), k.reference(small, small))
            torch.testing.assert_close(fastnorm.kernel(x, r)["sum"], x + r)
        assert (k.entry["cell"], fastnorm.manifest()["task"]["name"]) == ([0, 0, 3], "fused norm")
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_tensors_that_are_plain_attributes_reach_the_kernel(tmp_path: Path) -> None:
    task = TASK.replace("nn.Parameter(torch.rand(n) + 0.5)", "torch.rand(n) + 0.5")
    done = use(
        write_library(library("1.0f", task=task), tmp_path / "fastnorm"),
        """
        import fastnorm, torch
        k = fastnorm.load()
        x, r = torch.randn(24, 40), torch.randn(24, 40)
        assert k.why_not(x, r) is None, k.why_not(x, r)
        torch.testing.assert_close(k(x, r), k.reference(x, r))
        before, k.reference.weight = k(x, r), torch.ones(40)
        torch.testing.assert_close(k(x, r), k.reference(x, r))
        assert not torch.equal(before["y"], k(x, r)["y"]) and not k.reference.state_dict()
        """,
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_top_level_tensors_reach_the_kernel(tmp_path: Path) -> None:
    task = TASK.replace("self.weight = nn.Parameter(torch.rand(n) + 0.5)", "pass").replace("self.weight", "WEIGHT")
    task = task.replace("EPS =", "UNREAD, WEIGHT = torch.rand(9), torch.rand(COLUMNS) + 0.5\nEPS =")
    done = use(
        write_library(library("1.0f", task=task), tmp_path / "fastnorm"),
        """
        import fastnorm, torch
        k = fastnorm.load()
        x, r = torch.randn(24, 40), torch.randn(24, 40)
        assert k.why_not(x, r) is None, k.why_not(x, r)
        torch.testing.assert_close(k(x, r), k.reference(x, r))
        """,
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return [torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)]",
         "return {'residual': torch.randn(ROWS, COLUMNS), 'x': torch.randn(ROWS, COLUMNS)}"),
        ("return [COLUMNS, EPS]", "return [[COLUMNS], {'eps': EPS}]"),
        ("n, eps):", "n=40, eps=1e-6):"),
    ],
)  # fmt: skip
def test_arguments_may_have_names_and_be_none(tmp_path: Path, old: str, new: str) -> None:
    task = TASK.replace(old, new)
    task = task.replace("return [COLUMNS, EPS]", "return None") if "40" in new else task
    assert task != TASK
    done = use(
        write_library(library("1.0f", task=task), tmp_path / "fastnorm"),
        """
        import fastnorm, torch
        k = fastnorm.load()
        x, r = torch.randn(24, 40), torch.randn(24, 40)
        with torch.no_grad():
            assert k.why_not(x, r) is None, k.why_not(x, r)
            torch.testing.assert_close(k(x, r), k.reference(x, r))
        """,
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr


@pytest.mark.parametrize("compiler", ["g++", "/no/compiler"])
def test_every_workload_has_the_reference_of_its_own_constants(tmp_path: Path, compiler: str) -> None:
    task = TASK.replace("* self.weight, ", "* self.weight * HEIGHT, ").replace("EPS =", "HEIGHT = float(ROWS)\nEPS =")
    done = use(
        write_library(library("M", task=task), tmp_path / "fastnorm"),
        """
        import fastnorm, torch
        big, small = (torch.randn(2, rows, 40) for rows in (24, 8))
        k = fastnorm.load()
        parts = {name: fastnorm.load(workload=name) for name in ("default", "small")}
        for part in parts.values():
            part.reference.load_state_dict(k.reference.state_dict())
        for inputs, name in ((big, "default"), (small, "small")):
            plain = parts[name].reference(*inputs)
            torch.testing.assert_close(k(*inputs), plain)
            with torch.no_grad():
                reason = k.why_not(*inputs)
                assert reason is None or "no C++ compiler" in reason, reason
                torch.testing.assert_close(k(*inputs), plain)
                torch.testing.assert_close(parts[name](*inputs), plain)
        k(*small)["y"].sum().backward()
        assert k.reference.weight.grad.abs().sum() > 0
        try:
            k(torch.randn(3, 40), torch.randn(3, 40))
        except ValueError as error:
            assert "load(workload=" in str(error)
        else:
            raise AssertionError("whose constants?")
        assert parts["small"](torch.randn(3, 40), torch.randn(3, 40))["y"].shape == (3, 40)
        k.reference.eps = 5.0
        torch.testing.assert_close(k(*big), k.reference(*big))
        try:
            k(*small)
        except ValueError as error:
            assert "reference.eps, which does not reach the reference of workload small" in str(error)
        else:
            raise AssertionError("of which epsilon?")
        """,
        CXX=compiler,
    )
    assert done.returncode == 0, done.stderr


def test_what_was_right_once_is_looked_at_again(package: Path) -> None:
    """After a call that went well less is asked; everything that may send the next one elsewhere is."""
    done = use(
        package,
        """
        import fastnorm, torch
        from torch.nn.utils import parametrize
        x, r = torch.randn(24, 40), torch.randn(24, 40)
        rsqrt, called = torch.rsqrt, []
        torch.rsqrt = lambda *args: called.append(1) or rsqrt(*args)
        def went(k, *args):
            called.clear()
            got = k(*args)
            by = "reference" if called else "kernel"
            torch.testing.assert_close(got, k.reference(*args))
            return by
        def fresh():
            k = fastnorm.load()
            with torch.no_grad():
                k(x, r), k(x, r)
                assert went(k, x, r) == "kernel"
            return k
        with torch.no_grad():
            k = fresh(); k.reference.weight = torch.nn.Parameter(torch.rand(40)); assert went(k, x, r) == "kernel"
            k = fresh(); k.reference.weight.data = torch.rand(40); assert went(k, x, r) == "kernel"
            k = fresh(); k.reference.weight.mul_(2); assert went(k, x, r) == "kernel"
            k = fresh(); k.reference.double(); assert went(k, x.double(), r.double()) == "reference"
            k = fresh(); k.reference.train(); assert went(k, x, r) == "reference"
            k = fresh(); k.reference.register_buffer("more", torch.ones(2)); assert went(k, x, r) == "reference"
            k = fresh(); k.reference.part = torch.nn.Linear(2, 2); assert went(k, x, r) == "reference"
            class Twice(torch.nn.Module):
                def forward(self, w): return 2 * w
            k = fresh(); parametrize.register_parametrization(k.reference, "weight", Twice())
            assert went(k, x, r) == "reference"
            k = fresh()
            assert went(k, x[:, :20].repeat(1, 2), r) == "kernel"
            odd = torch.empty(961)[1:].view(24, 40).copy_(x)
            assert went(k, x.t().contiguous().t(), r) == went(k, odd, r) == "reference"
            k(x[:8], r[:8])  # of another workload, whose kernel is tried first
            assert went(k, torch.nn.Parameter(x), r) == went(k, x[:8], r[:8]) == "kernel"
            small = torch.randn(3, 8, 40)
            mapped = torch.vmap(lambda one: k(one, r[:8])["sum"])(small)
            torch.testing.assert_close(mapped, small + r[:8])
        k = fresh()
        assert went(k, x, r) == "reference", "a gradient may be asked for"
        k = fresh()
        with torch.no_grad(), torch.autocast("cpu"):
            assert went(k, x, r) == "reference"
        """,
    )
    assert done.returncode == 0, done.stderr


def test_a_reference_that_computes_something_else_answers_itself(tmp_path: Path) -> None:
    task = TASK.replace(
        "self.eps = eps",
        "self.eps, self.powers, self.one, self.calls = eps, [1, 2], torch.tensor(1.0), 0\n"
        "        self.act, self.last = torch.positive, nn.Threshold(-1e9, 0.0)",
    )
    task = task.replace("        total = x", "        self.calls += 1  # which says nothing\n        total = x")
    task = task.replace(".pow(2)", ".pow(self.powers[1])").replace(
        " total * torch", " self.last(self.act(total)) * torch"
    )
    task = task.replace("* self.weight,", "* self.weight * self.one,")
    done = use(
        write_library(library("1.0f", task=task), tmp_path / "fastnorm"),
        """
        import fastnorm, torch
        from torch import nn
        from torch.nn.modules.module import register_module_forward_hook
        def seven(*given):
            return given[-1] | {"y": 7 * given[-1]["y"]}
        def patch(reference):
            forward = reference.forward
            reference.forward = lambda *args: seven(forward(*args))
        class Half(nn.Module):
            def forward(self, x, residual=None): return {"y": x, "sum": residual} if residual is not None else x / 2
        def everywhere():
            global hook
            hook = register_module_forward_hook(lambda module, args, y: 2 * y if type(module) is nn.Threshold else None)
        changes = {
            "changed since load(): reference.eps": lambda one: setattr(one, "eps", 5.0),
            "changed since load(): reference.powers": lambda one: one.powers.append(4) or one.powers.pop(0),
            "changed since load(): reference.one": lambda one: one.one.fill_(3.0),
            "changed since load(): reference.act": lambda one: setattr(one, "act", torch.sin),
            "changed since load(): reference.last.value": lambda one: one.__setattr__(
                "last", nn.Threshold(-1e9, 5.0).eval()),
            "changed since load(): the class of reference.last": lambda one: setattr(one, "last", Half().eval()),
            "changed since load(): reference.forward": patch,
            "changed since load(): the hooks of reference": lambda one: one.register_forward_hook(seven),
            "changed since load(): the hooks of reference.last":
                lambda one: one.last.register_forward_pre_hook(lambda module, args: 2 * args[0]),
            "a hook is registered on all modules": lambda _: everywhere(),
            "changed since load(): the class of reference": lambda one: setattr(
                type(one), "forward", lambda _, x, residual: {"y": x, "sum": residual}),
        }
        x, r = torch.randn(24, 40), torch.randn(24, 40)
        with torch.no_grad():
            for said, change in changes.items():
                k = fastnorm.load()
                k.reference(x, r), k(x, r), k(x, r)
                k.reference.last = nn.Threshold(-1e9, 0.0).eval()  # as it was
                assert k.why_not(x, r) is None, k.why_not(x, r)
                k(x, r)
                change(k.reference)
                torch.testing.assert_close(k(x, r), k.reference(x, r), rtol=0, atol=0, msg=said)
                assert k.why_not(x, r) == said, (said, k.why_not(x, r))
                if "all modules" in said:
                    hook.remove()
                    assert k.why_not(x, r) is None
            k.reference = Half().eval()
            torch.testing.assert_close(k(x, r), {"y": x, "sum": r}, rtol=0, atol=0)
        """,
    )
    assert done.returncode == 0, done.stderr


def test_tensors_without_memory_are_not_written_to(package: Path) -> None:
    done = use(
        package,
        """
        import torch, fastnorm
        from torch._subclasses.fake_tensor import FakeTensorMode
        k, x, r = fastnorm.load(), torch.randn(24, 40), torch.randn(24, 40)
        with torch.no_grad():
            k(x, r), k(x, r)
            with FakeTensorMode(allow_non_fake_inputs=True):
                assert "without memory" in k.why_not(x, r), k.why_not(x, r)
                assert k(x, r)["y"].shape == (24, 40)
            assert k.why_not(x, r) is None
        """,
    )
    assert done.returncode == 0, done.stderr


def test_weights_of_other_sizes_need_a_workload(tmp_path: Path) -> None:
    task = TASK.replace("return [COLUMNS, EPS]", "return [ROWS, EPS]")
    done = use(
        write_library(library("1.0f", task=task), tmp_path / "fastnorm"),
        """
        import fastnorm
        try:
            fastnorm.load()
        except ValueError as error:
            assert "default, small" in str(error), error
        else:
            raise AssertionError("which weights?")
        assert fastnorm.load(workload="small").reference.weight.shape == (8,)
        """,
    )
    assert done.returncode == 0, done.stderr


def test_names_cannot_end_a_docstring(tmp_path: Path) -> None:
    odd = 'a"""+print(1)'.replace("\\", "")
    lib = library("1.0f")
    task = Task('t"""x', TASK, (Workload(odd), Workload("small", {"ROWS": 8})))
    lib = replace(lib, campaign="c`|1", task=task, signatures={odd: signature(24), "small": signature(8)})
    done = use(write_library(lib, tmp_path / "fastnorm"), "import fastnorm; assert fastnorm.manifest()")
    assert done.returncode == 0 and done.stdout == "", done.stderr


def test_the_reference_answers_where_the_kernel_may_not(package: Path) -> None:
    done = use(
        package,
        """
        import torch, fastnorm
        k = fastnorm.load()
        x, r = torch.randn(24, 40), torch.randn(24, 40)
        def refused(why, *inputs, **more):
            said = k.why_not(*inputs, **more)
            assert said and why in said, (why, said)
            y, wanted = k(*inputs, **more), k.reference(*inputs, **more)
            torch.testing.assert_close(y, wanted)
            return y
        refused("gradient", x, r)["y"].sum().backward()
        assert k.reference.weight.grad is not None
        with torch.no_grad():
            refused("other sizes", torch.randn(25, 40), torch.randn(25, 40))
            refused("other sizes", x.double(), r.double())
            refused("other sizes", torch.randn(40, 24).t(), r)
            refused("multiple of 64", torch.randn(24 * 40 + 1)[1:].view(24, 40), r)
            refused("negates", torch._neg_view(x), r)
            refused("keyword", x, residual=r)
            k.train()
            refused("training", x, r)
            k.eval()
            assert k.why_not(x, r) is None
            k(x, r)  # it knows the way now
            refused("negates", torch._neg_view(x), r)
            part = k.reference.dropout = torch.nn.Dropout()
            refused("training", x, r)
            part.eval()
            refused("changed since load(): the class of reference.dropout", x, r)
            del k.reference.dropout
            traced = torch.jit.trace(k, (x, r), strict=False, check_trace=False)
            torch.testing.assert_close(traced(2 * x, r)["sum"], 2 * x + r)
            import torch.autograd.forward_ad as forward
            k.reference.weight.requires_grad_(False)
        with forward.dual_level():
            dual = forward.make_dual(x, torch.ones_like(x))
            assert "forward-mode" in k.why_not(dual, r)
            assert forward.unpack_dual(k(dual, r)["sum"]).tangent is not None
        with torch.no_grad(), torch.device("meta"):  # where new tensors go is no matter of the inputs'
            y = k(x, r)
        torch.testing.assert_close(y["sum"], x + r)
        """,
    )
    assert done.returncode == 0, done.stderr


def test_new_weights_are_packed_even_where_they_lie_where_others_lay(package: Path) -> None:
    done = use(
        package,
        """
        import torch, fastnorm
        k = fastnorm.load()
        x, r = torch.randn(24, 40), torch.randn(24, 40)
        with torch.no_grad():
            for turn in range(1, 9):
                fresh = {"reference.weight": torch.full((40,), float(turn))}
                got = torch.func.functional_call(k, fresh, (x, r))
                torch.testing.assert_close(got, torch.func.functional_call(k, fresh, (x, r)))
                wanted = torch.func.functional_call(k.reference, {"weight": fresh["reference.weight"]}, (x, r))
                torch.testing.assert_close(got, wanted)
                del fresh, got, wanted
            for turn in range(1, 9):
                for value in (-1.0, float(turn)):
                    k.reference.load_state_dict({"weight": torch.full((40,), value)}, assign=True)
                torch.testing.assert_close(k(x, r), k.reference(x, r))
        """,
    )
    assert done.returncode == 0, done.stderr


def test_what_cannot_be_loaded_is_built_again_and_never_escapes(package: Path) -> None:
    done = use(
        package,
        """
        import os, pathlib, warnings, torch, fastnorm
        os.environ["EVOFORGE_KERNEL_CACHE"] = cache = os.environ["EVOFORGE_KERNEL_CACHE"] + "-broken"
        x, r = torch.randn(24, 40), torch.randn(24, 40)
        with torch.no_grad():
            assert fastnorm.load().why_not(x, r) is None
            (built,) = pathlib.Path(cache).glob("*.so")
            built.unlink()
            built.write_bytes(b"")
            assert fastnorm.load().why_not(x, r) is None, "cut off by a crash: built again"
            from fastnorm import _runtime
            def full(*_):
                raise OSError(28, "No space left on device")
            _runtime._build = full
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                k = fastnorm.load()
                torch.testing.assert_close(k(x, r), k.reference(x, r), rtol=0, atol=0)
                assert "No space left" in k.why_not(x, r) and len(caught) == 1
        """,
    )
    assert done.returncode == 0, done.stderr


def test_what_is_broken_is_said_once_and_the_reference_answers(package: Path) -> None:
    done = use(
        package,
        """
        import os, pathlib, warnings, torch, fastnorm
        x, r = torch.randn(24, 40), torch.randn(24, 40)
        def said(niche):
            k = fastnorm.load(niche)
            with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for _ in range(3):
                    torch.testing.assert_close(k(x, r), k.reference(x, r), rtol=0, atol=0)
                assert len(caught) == 1 and str(k.why_not(x, r)) in str(caught[0].message), caught
                return k.why_not(x, r)
        assert "output 0 of kernel" in said((0, 1, 3))
        assert "the compiler refused" in said((0, 2, 3))
        (other := pathlib.Path(os.environ["EVOFORGE_KERNEL_CACHE"] + "-compiler")).write_text("#!/bin/sh\\necho clang")
        other.chmod(0o755)
        os.environ["CXX"] = str(other)
        assert "compiler is clang" in said((0, 0, 3))
        os.environ["CXX"] = "/nonexistent/g++"
        assert "no C++ compiler" in said((0, 0, 3))
        """,
    )
    assert done.returncode == 0, done.stderr


def test_a_first_call_that_differs_is_not_the_last_word(tmp_path: Path) -> None:
    """Of constant inputs, or of ties, a kernel that is right may differ."""
    folder = write_library(library("(x[0] == 7.0f ? 1.1f : 1.0f)"), tmp_path / "doubted")
    done = use(
        folder,
        """
        import torch, doubted
        k, x, r = doubted.load(), torch.randn(24, 40), torch.randn(24, 40)
        odd = x.clone().index_put((torch.tensor(0), torch.tensor(0)), torch.tensor(7.0))
        with torch.no_grad():
            for _ in range(2):
                torch.testing.assert_close(k(odd, r), k.reference(odd, r), rtol=0, atol=0)
            assert k.why_not(x, r) is None
        """,
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_another_number_of_threads_is_tried_out_before_it_is_believed(tmp_path: Path) -> None:
    folder = write_library(library("(call->threads == 3 ? 1.1f : 1.0f)"), tmp_path / "threaded")
    done = use(
        folder,
        """
        import torch, warnings, threaded
        k, x, r = threaded.load(), torch.randn(24, 40), torch.randn(24, 40)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for threads, refused in ((1, False), (3, True), (2, False), (3, True), (1, False)):
                torch.set_num_threads(threads)
                for _ in range(3):
                    torch.testing.assert_close(k(x, r), k.reference(x, r))
                assert (k.why_not(x, r) is not None) == refused, threads
        """,
    )
    assert done.returncode == 0, done.stderr


def test_state_that_forward_assigns_does_not_hide_the_kernel(tmp_path: Path) -> None:
    task = TASK.replace("self.eps = eps", "self.eps, self.one, self.two = eps, torch.ones(2), torch.ones(2)")
    task = task.replace("        total = x", "        self.two = self.one.to(x.device)\n        total = x")
    made, more = library("1.0f", task=task), (spec("cst1", 2), spec("cst2", 2))
    wide = {name: replace(one, constants=(*one.constants, *more)) for name, one in made.signatures.items()}
    folder = write_library(replace(made, signatures=wide), tmp_path / "stateful")
    done = use(
        folder,
        """
        import torch, stateful
        k, x = stateful.load(), torch.randn(24, 40)
        with torch.no_grad():
            assert k.why_not(x, x) is None and k.reference(x, x) and k(x, x)
            k.train(), k(x, x), k.eval()
            assert k.why_not(x, x) is None, k.why_not(x, x)
        """,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("at_the_top", [False, True])
def test_weights_that_lie_where_no_kernel_reads_are_moved(tmp_path: Path, at_the_top: bool) -> None:
    """Beside a multiple of 64 bytes, or one number for many elements. They stay the tensors that they are."""
    odd = "torch.frombuffer(bytearray(164), dtype=torch.float32, offset=4).fill_(2.0)"
    if at_the_top:
        task = TASK.replace("self.weight = nn.Parameter(torch.rand(n) + 0.5)", "pass").replace("self.weight", "WEIGHT")
        task, order = task.replace("EPS =", f"WEIGHT = {odd}\nEPS ="), (spec("cst0", 40),)
    else:
        task = TASK.replace("nn.Parameter(torch.rand(n) + 0.5)", f"nn.Parameter({odd})").replace(
            "self.eps = eps",
            "self.tied, self.eps = self.weight, eps\n        self.register_buffer('mask', torch.ones(1).expand(5))",
        )
        order = (spec("cst0", 40), spec("cst1", 5))
    assert odd in task
    made = library("1.0f", task=task)
    signatures = {name: replace(one, constants=order) for name, one in made.signatures.items()}
    folder = write_library(replace(made, signatures=signatures), tmp_path / "moved")
    done = use(
        folder,
        f"""
        import torch, moved
        k, x, r = moved.load(), torch.randn(24, 40), torch.randn(24, 40)
        weight = k.reference.global_WEIGHT if {at_the_top} else k.reference.weight
        with torch.no_grad():
            assert k.why_not(x, r) is None, k.why_not(x, r)
            for _ in range(2):
                torch.testing.assert_close(k(x, r), k.reference(x, r))
                weight.mul_(3.0)
        assert {at_the_top} or k.reference.tied is weight
        """,
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_weights_that_share_memory_stay_there(tmp_path: Path) -> None:
    task = TASK.replace(
        "self.weight = nn.Parameter(torch.rand(n) + 0.5)",
        "self.register_buffer('whole', torch.rand(n + 1))\n        self.weight = nn.Parameter(self.whole[1:])",
    )
    made = library("1.0f", task=task)
    signatures = {
        name: replace(one, constants=(*one.constants, spec("cst1", 41))) for name, one in made.signatures.items()
    }
    folder = write_library(replace(made, signatures=signatures), tmp_path / "shared")
    done = use(
        folder,
        """
        import torch, shared
        k, x, r = shared.load(), torch.randn(24, 40), torch.randn(24, 40)
        with torch.no_grad():
            k.reference.whole.fill_(3.0)
            assert k.reference.weight.eq(3).all() and "multiple of 64" in k.why_not(x, r)
            torch.testing.assert_close(k(x, r), k.reference(x, r))
        """,
    )
    assert done.returncode == 0, done.stderr


LOOKUP_TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 16)

    def forward(self, ids, extra):
        return self.table(ids) + extra

def get_inputs():
    return [torch.tensor([0, 4, 2, 1]), torch.randn(4, 16)]
"""
LOOKUP_KERNEL = """
#include "evoforge.h"
int evo_run(const evo_call* call) {
  for (int64_t i = 0; i < 64; ++i)
    EVO_OUT(float, 0)[i] = EVO_CST(float, 0)[EVO_IN(int64_t, 0)[i / 16] * 16 + i % 16] + EVO_IN(float, 1)[i];
  return 0;
}
"""


def test_an_index_out_of_range_reaches_the_reference(tmp_path: Path) -> None:
    from evoforge.lowering.capture import capture_graph

    names: dict[str, Any] = {}
    exec(LOOKUP_TASK, names)
    graph = capture_graph(names["Model"](), names["get_inputs"]())
    made = library("1.0f")
    sizes = Signature(
        (TensorSpec("in0", (4,), (1,), "i64"), spec("in1", 4, 16)), (spec("cst0", 5, 16),), (spec("out0", 4, 16),)
    )
    kernel = replace(made.kernels[0], candidate=Candidate("cpp", LOOKUP_KERNEL), params={})
    one = replace(
        made, task=Task("lookup", LOOKUP_TASK, (Workload("default"),)), signatures={"default": sizes}, kernels=[kernel],
        graphs={"default": graph},
    )  # fmt: skip
    done = use(
        write_library(one, tmp_path / "lookup"),
        """
        import torch, lookup
        k, extra = lookup.load(), torch.randn(4, 16)
        good = torch.tensor([4, 0, 3, 3])
        def raises(value):
            bad = good.clone()
            bad[1] = value
            said = k.why_not(bad, extra)
            assert said and "in0" in said and "out of range" in said, said
            try:
                k(bad, extra)
            except IndexError:
                return True
            return False
        with torch.no_grad():
            assert raises(5), "before the first call"
            for _ in range(3):
                torch.testing.assert_close(k(good, extra), k.reference(good, extra))
                assert k.why_not(good, extra) is None
                assert raises(-1) and raises(5) and raises(1 << 40)
        """,
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_weights_are_packed_once_for_all_threads(package: Path) -> None:
    done = use(
        package,
        """
        import threading, torch, fastnorm
        k, x, r = fastnorm.load(), torch.randn(24, 40), torch.randn(24, 40)
        with torch.no_grad():
            k(x, r)
            (plan,) = k._plans.values()
            prepare, packed, wrong = plan._prepare, [], []
            plan._prepare = lambda *given: packed.append(1) or prepare(*given)
            def work():
                with torch.no_grad():
                    for _ in range(20):
                        if not torch.allclose(k(x, r)["y"], wanted, atol=1e-5):
                            wrong.append(1)
            for turn in range(3):
                k.reference.weight.add_(1.0)
                wanted = k.reference(x, r)["y"]
                threads = [threading.Thread(target=work) for _ in range(4)]
                for one in threads: one.start()
                for one in threads: one.join()
            assert (len(packed), wrong) == (3, []), (packed, wrong)
        """,
    )
    assert done.returncode == 0, done.stderr


def test_a_kernel_for_so_many_threads_takes_no_more_than_torch_may(tmp_path: Path) -> None:
    made = library("(call->threads > 1 ? 1.1f : 1.0f)", target=resolve_target("cpu:threads=2"))
    done = use(
        write_library(made, tmp_path / "threaded"),
        """
        import torch, threaded
        torch.set_num_threads(1)
        k, x, r = threaded.load(), torch.randn(24, 40), torch.randn(24, 40)
        with torch.no_grad():
            assert k.why_not(x, r) is None
            torch.testing.assert_close(k(x, r), k.reference(x, r))
        """,
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_sizes_that_overflow_are_refused(tmp_path: Path) -> None:
    one = library("1.0f")
    kernel = one.kernels[0]
    source = kernel.candidate.source.replace("call->threads * EVO_SIZE(in0, 1) * 4", "-4096")
    folder = write_library(
        replace(one, kernels=[replace(kernel, candidate=Candidate("cpp", source))]), tmp_path / "overflown"
    )
    done = use(
        folder,
        """
        import torch, overflown
        k, x, r = overflown.load(), torch.randn(24, 40), torch.randn(24, 40)
        with torch.no_grad():
            torch.testing.assert_close(k(x, r), k.reference(x, r), rtol=0, atol=0)
            assert "-4096 bytes" in k.why_not(x, r), k.why_not(x, r)
        """,
    )
    assert done.returncode == 0, done.stderr


def test_another_cpu_gets_the_reference(tmp_path: Path) -> None:
    folder = write_library(library("1.0f"), tmp_path / "elsewhere")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["cpu_flags"].append("avx9000")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    done = use(
        folder,
        """
        import torch, elsewhere
        x = torch.randn(24, 40)
        with torch.no_grad():
            torch.testing.assert_close(elsewhere.kernel(x, x)["sum"], x + x)
        """,
    )
    assert done.returncode == 0, done.stderr
    assert "this CPU lacks avx9000" in done.stderr


def test_a_process_that_may_not_use_tiles_gets_the_reference(package: Path) -> None:
    done = use(
        package,
        """
        import torch
        import fastnorm
        from fastnorm import _runtime
        _runtime._cpu_flags = lambda known=_runtime._cpu_flags: known() | {"amx_tile", "amx_bf16"}
        _runtime._ASK_FOR_TILES = (158, -1, 18)
        x, r = torch.randn(24, 40), torch.randn(24, 40)
        with torch.no_grad():
            torch.testing.assert_close(fastnorm.kernel(x, r)["sum"], x + r)
        """,
    )
    assert done.returncode == 0, done.stderr
    assert "does not let this process use AMX tiles" in done.stderr


def test_an_account_without_a_home_builds_all_the_same(package: Path) -> None:
    done = use(
        package,
        """
        import os, pathlib
        def nowhere():
            raise RuntimeError("Could not determine home directory.")
        pathlib.Path.home = nowhere
        del os.environ["EVOFORGE_KERNEL_CACHE"]
        import torch
        import fastnorm
        x, r = torch.randn(24, 40), torch.randn(24, 40)
        with torch.no_grad():
            assert fastnorm.load().why_not(x, r) is None
        """,
    )
    assert done.returncode == 0, done.stderr


def test_manifest_says_where_a_kernel_comes_from(package: Path) -> None:
    manifest = json.loads((package / "manifest.json").read_text())
    first = manifest["kernels"][0]
    assert first["candidate"] == Candidate("cpp", KERNEL.replace("SCALE", "1.0f")).id
    assert first["licence"] == "Apache-2.0" and first["params"] == {"STEP": 1}
    assert first["speedup"] == pytest.approx(2**0.5)
    assert manifest["task"]["source"] == TASK
    assert [row["name"] for row in manifest["workloads"]] == ["default", "small"]
    assert "ROWS = (8)" in (package / "references" / "w1_small.py").read_text()
    assert not (package / "include" / "evoforge_trace.h").exists()
    readme = (package / "README.md").read_text()
    assert "0 0 3" in readme and "over the faster of eager and `torch.compile`" in readme


def test_the_readme_says_what_the_speed_up_is_over(tmp_path: Path) -> None:
    folder = write_library(replace(library("1.0f"), baseline="eager"), tmp_path / "pack")
    assert "Speed-up is over eager PyTorch alone" in (folder / "README.md").read_text()
    assert json.loads((folder / "manifest.json").read_text())["baseline"] == "eager"


def test_required_flags_follow_the_isa() -> None:
    level3 = Target("cpu:isa=x86-64-v3", "cpu", 1, "x86-64-v3", {})
    assert {"avx2", "fma", "sse4_2"} <= set(required_cpu_flags(level3))
    assert "avx512f" not in required_cpu_flags(level3)
    native = Target("cpu", "cpu", 1, "native", {"vector_bytes": 64})
    assert {"avx512f", "avx2"} <= set(required_cpu_flags(native))


def test_places_that_are_refused(tmp_path: Path) -> None:
    one = library("1.0f")
    with pytest.raises(UsageError, match="kernels_2fast"):
        write_library(one, tmp_path / "2fast")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="something else"):
        write_library(one, tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").exists()
    with pytest.raises(UsageError, match="no elite"):
        library()


def test_an_earlier_export_is_replaced(tmp_path: Path) -> None:
    write_library(library("1.0f", "2.0f"), tmp_path / "pack")
    write_library(library("1.0f"), tmp_path / "pack")
    assert len(list((tmp_path / "pack" / "kernels").iterdir())) == 1
    (tmp_path / "pack" / "LICENSE").write_text("mine")
    with pytest.raises(UsageError, match="LICENSE"):
        write_library(library("1.0f"), tmp_path / "pack")
    assert (tmp_path / "pack" / "LICENSE").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["pack"]


def test_what_a_link_leads_to_is_replaced(tmp_path: Path) -> None:
    home = write_library(library("1.0f", "2.0f"), tmp_path / "pack")
    (tmp_path / "current").symlink_to(home)
    write_library(library("1.0f"), tmp_path / "current")
    assert (tmp_path / "current").is_symlink() and len(list((home / "kernels").iterdir())) == 1
