"""Does the tolerance let honest kernels through and shortcuts not? ``python benchmarks/tolerance.py -o ROWS.jsonl``

Every case is a small task; its variants are other ways to compute it, honest or not. Each is judged as
a kernel's output would be, on drawn inputs, under the task's precision policy. Rows that ROWS.jsonl
holds already are not computed again; the table is printed from the file. Exits 1 when a verdict is not
the wanted one. docs/tolerance.md says what was concluded.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from evoforge.core import Tolerance
from evoforge.evaluation.check import check_outputs
from evoforge.evaluation.tasks import tolerance_of
from evoforge.evaluation.worker import Reference
from evoforge.evaluation.worker_answers import answers_of
from evoforge.evaluation.worker_main import _contiguous
from evoforge.evaluation.worker_model import WorkloadModel
from evoforge.evaluation.worker_tensors import TORCH_DTYPES, fill

T: TypeAlias = torch.Tensor
Variant = Callable[..., T]
SOURCE = """\
import torch
import torch.nn.functional as F
TOLERANCE = {{"precision": "{precision}"}}


class Model(torch.nn.Module):
    def forward(self, {args}):
        return {body}


def get_inputs():
    return [{inputs}]
"""


@dataclass(frozen=True)
class Case:
    """forward(`args`) = `body` on `inputs` (Python text); variants are functions of float32 tensors."""

    name: str
    args: str
    body: str
    inputs: str
    honest: dict[str, Variant]
    dishonest: dict[str, Variant]
    precisions: Sequence[str] = ("ieee",)


def bf(x: T) -> T:
    return x.bfloat16().float()


def tf(x: T) -> T:
    """Rounded to 10 stored bits, as TF32 units do with their operands."""
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def split3(a: T, b: T) -> T:
    high_a, high_b = bf(a), bf(b)
    return high_a @ high_b + (high_a @ bf(b - high_b) + bf(a - high_a) @ high_b)


def split1(a: T, b: T) -> T:
    return bf(a) @ bf(b)


def sequential(a: T, b: T) -> T:
    out = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        out += a[:, k : k + 1] * b[k]
    return out


def blocked(a: T, b: T, size: int = 64) -> T:
    out = torch.zeros(a.shape[0], b.shape[1])
    for k in range(0, a.shape[1], size):
        out += sequential(a[:, k : k + size], b[k : k + size])
    return out


def running(x: T) -> T:
    """Sum over the last dimension, one after the other, in float32."""
    return torch.from_numpy(np.cumsum(x.numpy(), -1, dtype=np.float32)[..., -1:])


def poly_exp(x: T, degree: int) -> T:
    whole = torch.round(x * 1.4426950408889634)
    rest = x - whole * 0.693359375 + whole * 2.12194440e-4
    value = torch.ones_like(x) / math.factorial(degree)
    for power in range(degree - 1, -1, -1):
        value = value * rest + 1 / math.factorial(power)
    return torch.ldexp(value, whole.to(torch.int32))


def online_softmax(x: T, block: int = 64) -> T:
    top = torch.full((*x.shape[:-1], 1), -math.inf)
    total = torch.zeros_like(top)
    for at in range(0, x.shape[-1], block):
        new = torch.maximum(top, x[..., at : at + block].amax(-1, keepdim=True))
        total = total * torch.exp(top - new) + running(torch.exp(x[..., at : at + block] - new))
        top = new
    return torch.exp(x - top) / total


def normalised(x: T, mean: T, variance: T) -> T:
    return (x - mean) / torch.sqrt(variance + 1e-5)


def two_pass(x: T) -> tuple[T, T]:
    mean = running(x) / x.shape[-1]
    return mean, running((x - mean) ** 2) / x.shape[-1]


def welford(x: T) -> tuple[T, T]:
    mean, m2 = torch.zeros(*x.shape[:-1], 1), torch.zeros(*x.shape[:-1], 1)
    for k in range(x.shape[-1]):
        delta = x[..., k : k + 1] - mean
        mean = mean + delta / (k + 1)
        m2 = m2 + delta * (x[..., k : k + 1] - mean)
    return mean, m2 / x.shape[-1]


def one_pass(x: T) -> tuple[T, T]:
    mean = x.mean(-1, keepdim=True)
    return mean, (x * x).mean(-1, keepdim=True) - mean * mean


def half_of(x: T) -> T:
    out = x.clone()
    out[..., x.shape[-1] // 2 :] = 0
    return out


def attention(q: T, k: T, v: T, product: Variant = torch.matmul, softmax: Variant = online_softmax) -> T:
    return product(softmax(product(q, k.T) / math.sqrt(q.shape[-1])), v)


def winograd(x: T, w: T, m: int) -> T:
    """3×3 convolution without padding by F(m×m, 3×3), m of 2 or 4."""
    if m == 2:
        bt = [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]
        g = [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]
        at = [[1, 1, 1, 0], [0, 1, -1, -1]]
    else:
        bt = [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0],
              [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]]  # fmt: skip
        g = [[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6],
             [1 / 24, 1 / 12, 1 / 6], [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]]  # fmt: skip
        at = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]
    bt_, g_, at_ = (torch.tensor(rows, dtype=torch.float32) for rows in (bt, g, at))
    tiles = x.unfold(2, m + 2, m).unfold(3, m + 2, m)
    u = torch.einsum("ij,ocjk,lk->ocil", g_, w, g_)
    v = torch.einsum("ij,nchwjk,lk->nchwil", bt_, tiles, bt_)
    y = torch.einsum("ij,nohwjk,lk->nohwil", at_, torch.einsum("ocil,nchwil->nohwil", u, v), at_)
    n, o, h, w_ = y.shape[:4]
    return y.permute(0, 1, 2, 4, 3, 5).reshape(n, o, h * m, w_ * m)


def cases() -> list[Case]:
    matrix = "a, b", "a @ b", "torch.randn(256, 2048), torch.randn(2048, 256)"
    rms = "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)"
    big = "torch.randn(64, 4096) + 1000"
    bf16 = "torch.bfloat16"

    def approx(x: T) -> T:
        return 1 / torch.sqrt(bf((x * x).mean(-1, keepdim=True) + 1e-6))

    return [
        Case("softmax", "x", "x.softmax(-1)", "torch.randn(256, 1024) * 4", {
            "torch": lambda x: x.softmax(-1), "online": online_softmax, "exp of degree 6":
            lambda x: (e := poly_exp(x - x.amax(-1, keepdim=True), 6)) / running(e),
        }, {
            "skips x < 0": lambda x: x.masked_fill(x < 0, -math.inf).softmax(-1),
            "cubic exp": lambda x: (e := poly_exp(x - x.amax(-1, keepdim=True), 3)) / running(e),
            "bf16 inputs": lambda x: bf(x).softmax(-1), "bf16 exp": lambda x: (e := bf(torch.exp(x))) / running(e),
            "sum over half": lambda x: (e := torch.exp(x)) / running(e[:, :512]) / 2,
            "tail zeroed": lambda x: x.softmax(-1) * (x > x.quantile(0.002, -1, keepdim=True)),
        }),
        Case("log-softmax", "x", "x.log_softmax(-1)", "torch.randn(256, 1024) * 4", {
            "torch": lambda x: x.log_softmax(-1), "log of softmax": lambda x: online_softmax(x).log(),
        }, {"bf16 inputs": lambda x: bf(x).log_softmax(-1), "max for log-sum-exp": lambda x: x - x.amax(-1, True)}),
        Case("layer-norm at mean 1000", "x", "F.layer_norm(x, x.shape[-1:])", big, {
            "torch": lambda x: F.layer_norm(x, x.shape[-1:]), "two passes": lambda x: normalised(x, *two_pass(x)),
            "welford": lambda x: normalised(x, *welford(x)),
        }, {
            "E[x²] − E[x]²": lambda x: normalised(x, *one_pass(x)), "bf16 inputs":
            lambda x: normalised(bf(x), *two_pass(bf(x))), "no mean": lambda x: x / (x * x).mean(-1, True).sqrt(),
        }),
        Case("variance at mean 1000", "x", "x.var(-1, correction=0)", big, {
            "torch": lambda x: x.var(-1, correction=0), "two passes": lambda x: two_pass(x)[1][..., 0],
            "welford": lambda x: welford(x)[1][..., 0],
        }, {"E[x²] − E[x]²": lambda x: one_pass(x)[1][..., 0], "half": lambda x: x[:, :2048].var(-1, correction=0)}),
        Case("rms-norm", "x", rms, "torch.randn(256, 4096)", {
            "torch": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
            "running sum": lambda x: x / torch.sqrt(running(x * x) / x.shape[-1] + 1e-6),
        }, {
            "8-bit rsqrt": lambda x: x * approx(x), "bf16 inputs":
            lambda x: bf(x) * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
            "sum over half": lambda x: x * torch.rsqrt(x[:, ::2].pow(2).mean(-1, keepdim=True) + 1e-6),
        }),
        Case("gelu", "x", "F.gelu(x)", "torch.randn(512, 1024) * 3", {
            "torch": F.gelu, "erf in float32": lambda x: x * 0.5 * (1 + torch.erf(x * 0.70710678)),
            "erfc in float32": lambda x: x * 0.5 * torch.erfc(x * -0.70710678),
        }, {
            "tanh form": lambda x: F.gelu(x, approximate="tanh"), "sigmoid form": lambda x: x * (1.702 * x).sigmoid(),
            "relu": torch.relu, "bf16 erf": lambda x: x * 0.5 * (1 + bf(torch.erf(x * 0.70710678))),
        }),
        Case("silu", "x", "F.silu(x)", "torch.randn(512, 1024) * 3", {
            "torch": F.silu, "x / (1 + exp(−x))": lambda x: x / (1 + poly_exp(-x, 6)),
        }, {"cubic exp": lambda x: x / (1 + poly_exp(-x, 3)), "bf16 inputs": lambda x: F.silu(bf(x)),
            "hard-swish": F.hardswish}),
        Case("exp", "x", "torch.exp(x)", "torch.randn(512, 1024)", {
            "degree 6": lambda x: poly_exp(x, 6), "degree 7": lambda x: poly_exp(x, 7),
        }, {"degree 3": lambda x: poly_exp(x, 3), "degree 4": lambda x: poly_exp(x, 4), "bf16 inputs":
            lambda x: torch.exp(bf(x))}),
        Case("cumsum", "x", "x.cumsum(-1)", "torch.randn(64, 8192)", {
            "sequential": lambda x: torch.from_numpy(np.cumsum(x.numpy(), -1, dtype=np.float32)),
            "blocked": lambda x: (b := x.view(64, 128, 64).cumsum(-1)).add(
                F.pad(b[..., -1].cumsum(-1), (1, -1)).unsqueeze(-1)).view(64, 8192),
        }, {"bf16 inputs": lambda x: bf(x).cumsum(-1), "restarts": lambda x: torch.cat(
            [x[:, :4096].cumsum(-1), x[:, 4096:].cumsum(-1)], -1), "half": lambda x: half_of(x.cumsum(-1))}),
        Case("long sum", "x", "x.sum(-1)", "torch.randn(64, 65536)", {
            "torch": lambda x: x.sum(-1), "running": lambda x: running(x)[..., 0],
            "16 lanes": lambda x: running(running(x.view(64, 4096, 16).mT)[..., 0])[..., 0],
        }, {"bf16 inputs": lambda x: bf(x).sum(-1), "all but one": lambda x: x[:, 1:].sum(-1),
            "half": lambda x: 2 * x[:, ::2].sum(-1)}),
        Case("matmul", *matrix, {
            "torch": torch.matmul, "sequential": sequential, "blocked": blocked, "bf16×3": split3,
        }, {"bf16": split1, "tf32": lambda a, b: tf(a) @ tf(b), "half of K": lambda a, b: half_of(a) @ b,
            "bf16×2": lambda a, b: bf(a) @ bf(b) + bf(a - bf(a)) @ bf(b)}),
        Case("matmul", *matrix, {
            "torch": torch.matmul, "sequential": sequential, "bf16×3": split3, "tf32": lambda a, b: tf(a) @ tf(b),
        }, {"bf16": split1, "half of K": lambda a, b: half_of(a) @ b}, ("tf32",)),
        Case("softmax of a product", "a, b", "(a @ b).softmax(-1)",
             "torch.randn(256, 512), torch.randn(512, 256) * 0.1", {
            "torch": lambda a, b: (a @ b).softmax(-1), "tf32 product": lambda a, b: (tf(a) @ tf(b)).softmax(-1),
        }, {"bf16 product": lambda a, b: split1(a, b).softmax(-1), "bf16 softmax":
            lambda a, b: bf((a @ b).softmax(-1)), "cubic exp": lambda a, b: (
                e := poly_exp((x := a @ b) - x.amax(-1, keepdim=True), 2)) / running(e)}, ("tf32",)),
        Case("positive matmul", "a, b", "a @ b", "torch.rand(256, 2048), torch.rand(2048, 256)", {
            "torch": torch.matmul, "sequential": sequential, "blocked": blocked, "bf16×3": split3,
        }, {"bf16": split1, "tf32": lambda a, b: tf(a) @ tf(b), "half of K": lambda a, b: half_of(a) @ b}),
        Case("attention", "q, k, v", "F.scaled_dot_product_attention(q[None], k[None], v[None])[0]",
             "torch.randn(512, 64), torch.randn(512, 64), torch.randn(512, 64)", {
            "online": attention, "sequential": lambda q, k, v: attention(q, k, v, sequential),
            "bf16×3": lambda q, k, v: attention(q, k, v, split3),
        }, {"bf16": lambda q, k, v: attention(q, k, v, split1), "tf32":
            lambda q, k, v: attention(q, k, v, lambda a, b: tf(a) @ tf(b)), "bf16 weights":
            lambda q, k, v: attention(q, k, v, softmax=lambda x: bf(x.softmax(-1))), "half of the keys":
            lambda q, k, v: attention(q, k[:256], v[:256])}),
        Case("cross-entropy", "x, t", "F.cross_entropy(x, t, reduction='none')",
             "torch.randn(1024, 1000), torch.randint(0, 1000, (1024,))", {
            "torch": lambda x, t: F.cross_entropy(x, t, reduction="none"), "online":
            lambda x, t: -online_softmax(x).log().gather(1, t[:, None])[:, 0],
        }, {"bf16 inputs": lambda x, t: F.cross_entropy(bf(x), t, reduction="none"), "half of the classes":
            lambda x, t: torch.logsumexp(x[:, :500], 1) + math.log(2) - x.gather(1, t[:, None])[:, 0],
            "a constant": lambda x, t: torch.full((1024,), 7.4)}),
        Case("convolution", "x, w", "F.conv2d(x, w)", "torch.randn(1, 32, 34, 34), torch.randn(32, 32, 3, 3)", {
            "torch": F.conv2d, "winograd 2": lambda x, w: winograd(x, w, 2), "winograd 4":
            lambda x, w: winograd(x, w, 4),
        }, {"bf16": lambda x, w: F.conv2d(bf(x), bf(w)), "tf32": lambda x, w: F.conv2d(tf(x), tf(w)),
            "a channel less": lambda x, w: F.conv2d(x[:, 1:], w[:, 1:])}),
        Case("rms-norm f16", "x", "x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype)",
             "torch.randn(256, 4096, dtype=torch.float16)", {
            "fp32 inside": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6), "running sum":
            lambda x: x / torch.sqrt(running(x * x) / x.shape[-1] + 1e-6),
        }, {"bf16 scale": lambda x: x * approx(x), "half": lambda x: half_of(x), "scale missing": lambda x: x,
            "sum over half": lambda x: x * torch.rsqrt(x[:, ::2].pow(2).mean(-1, keepdim=True) + 1e-6)}),
        Case("softmax bf16", "x", "x.softmax(-1)", f"torch.randn(256, 1024).to({bf16})", {
            "fp32 inside": lambda x: x.softmax(-1), "online": online_softmax,
        }, {"bf16 exp": lambda x: (e := bf(torch.exp(x))) / running(e) * 1.004, "skips x < 0":
            lambda x: x.masked_fill(x < 0, -math.inf).softmax(-1), "bf16 sum":
            lambda x: torch.exp(x) / (torch.exp(x).bfloat16().cumsum(-1)[:, -1:].float())}),
        Case("matmul bf16", "a, b", "a @ b", f"torch.randn(256, 2048).to({bf16}), torch.randn(2048, 256).to({bf16})", {
            "fp32 sum": torch.matmul, "sequential": sequential, "blocked": blocked,
        }, {"bf16 partial sums": lambda a, b: sum((bf(a[:, k : k + 64] @ b[k : k + 64])
            for k in range(64, 2048, 64)), bf(a[:, :64] @ b[:64])), "half of K": lambda a, b: half_of(a) @ b}),
        Case("gelu·up bf16", "x, y", "F.gelu(x) * y",
             f"torch.randn(512, 1024).to({bf16}), torch.randn(512, 1024).to({bf16}) * 3", {
            "fp32 inside": lambda x, y: F.gelu(x) * y,
        }, {"tanh form": lambda x, y: F.gelu(x, approximate="tanh") * y, "rounded between":
            lambda x, y: bf(bf(F.gelu(x)) * y), "relu": lambda x, y: torch.relu(x) * y}),
    ]  # fmt: skip


def judged(case: Case, precision: str, seeds: int) -> list[dict[str, Any]]:
    source = SOURCE.format(args=case.args, body=case.body, inputs=case.inputs, precision=precision)
    tolerance = tolerance_of(source, case.name)
    model = WorkloadModel(
        source=source, path=case.name, root=None, workload="default", overrides={}, seed=0, stage=lambda text: None
    )
    (spec,) = model.signature.outputs
    rows: dict[str, dict[str, Any]] = {}
    for seed in range(seeds):
        inputs = model.inputs(100 + seed, "given")
        found = answers_of(model, inputs, seed)
        y64, d = fill([_contiguous(spec, "f64")], found.y64), fill([_contiguous(spec, "f32")], found.d)
        reference = Reference(y64, d, tuple(found.ref_error))
        wide = [tensor.float() if tensor.is_floating_point() else tensor for tensor in inputs]
        for honest, variants in ((True, case.honest), (False, case.dishonest)):
            for name, variant in variants.items():
                result = variant(*wide).to(TORCH_DTYPES[spec.dtype])
                outputs = fill([spec], [result.contiguous()])
                passed = check_outputs(outputs, reference, tolerance).passed
                over = excess(result.double(), found.y64[0], found.d[0].double(), spec.dtype, tolerance)
                row = rows.setdefault(name, {
                    "case": case.name, "precision": precision, "variant": name, "honest": honest, "outside": 0.0,
                    "worst": 0.0, "passed": 0, "seeds": seeds,
                })  # fmt: skip
                row["outside"] = max(row["outside"], float((over > 1).double().mean()))
                row["worst"] = max(row["worst"], float(over.max()))
                row["passed"] += passed
                outputs.close()
        reference.close()
    return list(rows.values())


def excess(result: T, y64: T, d: T, dtype: str, tolerance: Tolerance) -> T:
    """|error| / tol, elementwise; NaN counts as infinite."""
    allowed = tolerance.factor * d + 2.0**-126
    if dtype in ("f16", "bf16"):
        digits, least = (10, -14) if dtype == "f16" else (7, -126)
        allowed = allowed + torch.exp2(torch.frexp(y64)[1].double().sub(1).clamp(min=least) - digits)
    return ((result - y64).abs() / allowed).nan_to_num(nan=math.inf, posinf=math.inf)


def table(rows: Sequence[dict[str, Any]]) -> tuple[str, bool]:
    lines = [
        "| case | precision | variant | honest | outside | worst / tol | accepted |",
        "|---|---|---|---|---|---|---|",
    ]
    right = True
    for row in rows:
        good = row["passed"] == (row["seeds"] if row["honest"] else 0)
        right = right and good
        accepted = f"{row['passed']}/{row['seeds']}{'' if good else ' (!)'}"
        words = [row["case"], row["precision"], row["variant"], "yes" if row["honest"] else "no"]
        words += [f"{100 * row['outside']:.3g}%", f"{row['worst']:.3g}", accepted]
        lines.append("| " + " | ".join(words) + " |")
    return "\n".join(lines), right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_grad_enabled(False)
    path: Path = arguments.output
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(row["case"], row["precision"]) for row in rows}
    for case in cases():
        for precision in case.precisions:
            if (case.name, precision) in done:
                continue
            found = judged(case, precision, arguments.seeds)
            with path.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in found)
            rows += found
            print(f"{case.name} ({precision}): {len(found)} variants", file=sys.stderr)
    text, right = table(rows)
    print(text)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
