"""Printed kernels compute what the module computes: many schedules, ragged sizes, two instruction sets."""

from __future__ import annotations

import atexit
import copy
import ctypes
import math
import re
import shutil
import subprocess
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as fn
from torch.utils import _pytree as pytree

from evoforge.core import DTYPES, ParameterSpace, Strategy
from evoforge.lowering import rewrites
from evoforge.lowering.capture import capture_graph
from evoforge.lowering.cost import laid_out, signature_of
from evoforge.lowering.ir import Graph
from evoforge.lowering.space import ScheduleSpace
from evoforge.paths import include_dir

FLAGS = (
    "-std=gnu++17", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math",
    "-fPIC", "-Wno-psabi",
)  # fmt: skip
TORCH = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
         "i32": torch.int32, "i16": torch.int16, "u8": torch.uint8, "i8": torch.int8, "bool": torch.bool}  # fmt: skip


class Module(nn.Module):
    def __init__(self, function: Any, *weights: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList(nn.Parameter(w) for w in weights)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs, *self.weights)


def add_rms_norm(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    h = x + r
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * w, h


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def clamped_and_normalised(x: torch.Tensor) -> torch.Tensor:
    """A sum over one part of a row beside a map of another part, which is read elsewhere."""
    a, b = torch.split(x * 2, (23, 36), dim=1)
    return torch.roll(
        torch.cat([b / torch.linalg.vector_norm(b, dim=1, keepdim=True), a.clamp(-1, 1)], dim=1), 5, dims=1
    )


def rotated_and_kept(x: torch.Tensor, turn: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A result that another one reads at its own place and half a row away."""
    key = fn.layer_norm(x, (32,))
    a, b = key.chunk(2, -1)
    return key * turn.cos() + torch.cat([-b, a], -1) * turn.sin(), key


def film(x: torch.Tensor, t: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Rows read one computed tensor at two places."""
    scale, shift = (t @ w)[:, :, None].chunk(2, dim=1)
    return fn.silu(x * (scale + 1) + shift)


def causal_bias(scores: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    place = torch.arange(scores.shape[-1])
    distance = place[None, :] - place[:, None]
    biased = scores * 0.125 + slope[:, None, None] * distance
    return torch.softmax(biased.masked_fill(distance > 0, float("-inf")), dim=-1)


def put_where(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[x < -1] = -1
    y[:, x[0] > 1] = 7.0
    return y


def looked_up(x: torch.Tensor, half: torch.Tensor, at: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """By 32 and 64 bits, from the end, in two dimensions, from halves, and where a mask holds."""
    row = torch.where(other[:, None] > 3, x[3][at], 0.5)
    return x[1][at] * 2, x[at, other[:, None]], (row + half[at.clamp(-2, 7)]).sum(-1), x[:, at[0]].exp()


def compared(x: torch.Tensor, long: torch.Tensor, short: torch.Tensor, byte: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Whole numbers with one another, beyond 32 bits too."""
    y = torch.where((long != -100) & (byte >= 200), x, -x)
    z = torch.where((short.long() < 7) | (torch.arange(x.shape[1]) > long), x, 1.0)
    return y, z.sum(-1), torch.where(short == short.flip(1), x, short.float())


def lost(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Sums of whole numbers that are rounded to eight bits."""
    return fn.linear(x.bfloat16(), w.bfloat16()).float()


def wrapped(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Beyond what the integers hold: through numbers, stored, chosen by, and of doubles."""
    made = [(x * 1e4).to(kind) for kind in (torch.int8, torch.uint8, torch.int16, torch.int32)]
    read = torch.where(made[1] > 99, x, -x).sum(-1), (y * 1e4).to(torch.int8).double(), (y * 1e10).int().double()
    return *made, *(one.float() for one in made), *read, (x * 1e10).int().float()


def counted(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (x > 0).sum(-1), (x > 1).any(-1), (x > -3).all(-1), (x > 0).sum(0), (x > 2).any(0), (x > -2).all(0)


def whole(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Numbers and truth values become integers of every width."""
    y = torch.round(x * 40).clamp(-128, 127)
    sizes = (y.to(torch.int8), (y + 128).to(torch.uint8), (y * 200).to(torch.int16), (y * 9e5).to(torch.int32))
    return *sizes, torch.where(x > 0, 3, -2), (x > 0.5).to(torch.uint8), sizes[3] * 77777


def adam(w: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m, v = 0.9 * m + 0.1 * g, 0.99 * v.abs() + 0.01 * g * g
    return w - 0.1 * m / (v.sqrt() + 1e-3), m, v


def doubly_masked(x: torch.Tensor, keep: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """By positions, which lanes differ in, and by what all lanes share."""
    near = (torch.arange(37) <= torch.arange(21)[:, None]) | (torch.arange(37) < 4)
    row = keep[:, :, None]
    masks = near & row, row & near, near ^ row, torch.where(row, near, row) | (near == row)
    return tuple(torch.where(mask, x, 0.5) for mask in masks)


def shifted(x: torch.Tensor, by: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """By fewer bits than none and by more than there are, in numbers of every width; some as vectors."""
    made: list[torch.Tensor] = []
    for kind in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        one, bits = x.to(kind), by.to(kind)
        made += [one << bits, one >> bits, one >> 40, one << 64]
    short = x.int()
    return *made, (short >> by.int()).float(), (short >> 40).float(), short >> 31


def powers(x: torch.Tensor, by: torch.Tensor) -> tuple[torch.Tensor, ...]:
    byte = x.to(torch.uint8) ** by.abs().to(torch.uint8)
    return x**by, x.int() ** by.int(), x.to(torch.int8) ** by.to(torch.int8), byte


def quietly(function: Any, *arguments: Any, **names: Any) -> Any:
    """Of a function that warns of its own future."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **names)


PLACES = torch.tensor([[3, 1, 0, 3], [0, 0, 5, 2], [4, 4, 4, 1]])
CASES: dict[str, tuple[nn.Module, list[torch.Tensor]]] = {
    "add_rms_norm": (Module(add_rms_norm, rand(37)), [rand(5, 37), rand(6, 37)[1:]]),
    "scale_and_scaled": (Module(lambda x: (x / (x.abs().mean() + 1), x.abs().mean())), [rand(5, 37)]),
    "spread_and_spread_out": (Module(lambda x: ((x - x.mean()) / x.std(), x.mean(), x.std())), [rand(5, 37)]),
    "rotated_and_kept": (Module(rotated_and_kept), [rand(3, 5, 32), rand(5, 32)]),
    "gated_and_kept": (Module(lambda x: (x.relu() * x.relu()[:, :1].sigmoid(), x.relu())), [rand(5, 37)]),
    "ranks": (Module(lambda x: x.argsort(-1).argsort(-1)), [rand(5, 12)]),
    "softmax": (nn.Softmax(-1), [rand(3, 130)]),
    "softmax_even": (nn.Softmax(-1), [rand(6, 256)]),
    "softmax_dim_1": (nn.Softmax(1), [rand(3, 6, 37)]),
    "log_softmax": (nn.LogSoftmax(-1), [rand(5, 37)]),
    "log_softmax_sure": (Module(lambda x: x.log_softmax(-1).amax(-1)), [(rand(9, 37) * 40).round() + 4000]),
    "layer_norm": (nn.LayerNorm(37), [rand(5, 37) + 1000]),
    "group_norm": (nn.GroupNorm(3, 6), [rand(2, 6, 5, 7)]),
    "mse_loss": (nn.MSELoss(), [rand(50, 37), rand(50, 37) * 2]),
    "column_mean": (Module(lambda x: x.mean(0)), [rand(50, 37)]),
    "argmax": (Module(lambda x: x.argmax(1)), [rand(5, 37).round()]),
    "argmin_column": (Module(lambda x: x.argmin(0)), [rand(50, 37).round()]),
    "chain": (Module(lambda x, b: torch.tanh(fn.gelu(x) * b + 1)), [rand(5, 37), rand(37)]),
    "strided": (Module(lambda x, y: torch.exp(-x.abs()) + y.t()), [rand(10, 37)[::2], rand(37, 5)]),
    "turned": (
        Module(lambda x, y, b: (x.transpose(1, 2) * 2 + x.transpose(1, 2).tanh() * y + b[:, None], x.abs())),
        [rand(2, 37, 70), rand(2, 70, 37), rand(70)],
    ),
    "turned_halves": (
        Module(lambda x, y: (x.permute(0, 2, 3, 1) + y.permute(0, 2, 3, 1)).contiguous()),
        [rand(2, 19, 3, 33, dtype=torch.bfloat16), rand(1, 19, 3, 33, dtype=torch.bfloat16)],
    ),
    "turned_softmax": (
        Module(lambda x, y: fn.softmax((x * y).transpose(1, 2), -1).contiguous() + y.t()[:, :1]),
        [rand(3, 50, 23, dtype=torch.float16), rand(50, 23)],
    ),
    "turned_head": (
        Module(lambda x: torch.softmax(x.transpose(1, 2), -1) * torch.tanh(x.transpose(1, 2)[..., 3:4])),
        [rand(3, 50, 23)],
    ),
    "scalars_beside": (Module(lambda x: torch.stack((x.double().sin().float(), x), -1)), [rand(9, 37)]),
    "turned_mean": (
        Module(lambda x, y: ((x.permute(1, 2, 0) * y).mean(0, keepdim=True) + x.permute(1, 2, 0)).contiguous()),
        [rand(5, 16, 24), rand(16, 24, 5)],
    ),
    "turned_norm": (
        Module(lambda x: fn.layer_norm(x.flatten(2).transpose(1, 2), (40,))), [rand(2, 40, 5, 9)],
    ),
    "pairs": (
        Module(lambda x, s, c: x * c + torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * s),
        [rand(2, 3, 5, 70), rand(5, 70), rand(5, 70)],
    ),
    "pairs_of_halves": (
        Module(lambda x, s: torch.stack((x[..., ::2] * s - x[..., 1::2], x[..., ::2] + s), -1).flatten(-2)),
        [rand(7, 66, dtype=torch.bfloat16), rand(33)],
    ),
    "planes_to_channels": (
        Module(lambda x, b: (x * 2).permute(0, 2, 3, 1).contiguous() + b), [rand(2, 3, 5, 19), rand(3)],
    ),
    "four_beside": (
        Module(lambda x: (torch.stack((x, x.exp(), x * x, x + 1), -1), x.abs().unsqueeze(-1).expand(-1, -1, 4) * 2)),
        [rand(9, 37)],
    ),
    "bytes_beside": (
        Module(lambda x: (x * 255).clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()), [rand(2, 3, 5, 19)],
    ),
    "bytes_in_place": (
        Module(lambda x: x.permute(0, 3, 1, 2).float() / 255),
        [(torch.arange(570) % 256).to(torch.uint8).view(2, 5, 19, 3)],
    ),
    "doubles_beside": (Module(lambda x: torch.stack((x, x * x), -1)), [rand(9, 37, dtype=torch.float64)]),
    "bf16": (nn.Softmax(-1), [rand(4, 64, dtype=torch.bfloat16)]),
    "rounded_by_name": (
        Module(
            lambda x, w: ((x.half() * 3).float().sum(-1), x.bfloat16().t().float(), lost(x.round(), w))
        ),
        [rand(9, 37) * 9, (rand(5, 37) * 9).round()],
    ),
    "lgamma": (Module(lambda x: torch.lgamma(x * 3)), [rand(9, 37)]),
    "wrapped": (Module(wrapped), [rand(9, 37), rand(9, 37, dtype=torch.float64)]),
    "f16": (Module(lambda x: x.sigmoid() * x), [rand(4, 70, dtype=torch.float16)]),
    "masked": (Module(lambda x: torch.where(x > 0.5, x, -x).amax(-1)), [rand(9, 37)]),
    "loss_of_rows": (Module(lambda x, y: fn.cross_entropy(x, y)), [rand(5, 37), torch.tensor([0, 3, 36, 7, 7])]),
    "integers": (Module(lambda x: (x * 2 + 1).sum(-1)), [torch.arange(74).view(2, 37)]),
    "double": (Module(lambda x: x.softmax(-1)), [rand(4, 37, dtype=torch.float64)]),
    "argmax_of_one": (Module(lambda x: x.argmax(0)), [rand(1, 37)]),
    "scaled_sums": (
        Module(lambda x, t: (x * (t.sigmoid() * 2 + 1)[:, None]).sum(1) * (t.sigmoid() * 2 + 1)),
        [rand(19, 70), rand(19)],
    ),
    "product": (Module(lambda x: x.prod(-1)), [1 + rand(4, 37) / 8]),
    "bytes_to_planes": (
        Module(lambda x: x.permute(0, 3, 1, 2).contiguous().float() / 255 - 0.5),
        [torch.arange(2 * 5 * 4 * 3, dtype=torch.uint8).view(2, 5, 4, 3)],
    ),
    "beside_one_value": (
        Module(lambda x, y: (torch.cat((x.expand(5, 6), y), -1).exp(), fn.pad(y, (3, 2), value=1.5))),
        [rand(5, 1), rand(5, 31)],
    ),
    "eight_loops": (
        Module(lambda x: x.permute(7, 5, 3, 1, 6, 4, 2, 0) + x.permute(6, 4, 2, 0, 7, 5, 3, 1)),
        [rand(*[2] * 8)],
    ),
    "interleaved": (Module(lambda x, y: torch.cat((x + 1, y * 2), -1).exp() * 2), [rand(5, 6), rand(5, 31)]),
    "looked_up": (
        Module(looked_up),
        [rand(9, 11), rand(8, dtype=torch.bfloat16), torch.arange(5 * 37, dtype=torch.int32).view(5, 37) % 18 - 9,
         torch.arange(5) - 1],
    ),
    "looked_up_evenly": (
        Module(looked_up),
        [rand(9, 11), rand(8, dtype=torch.float16), torch.arange(256).view(4, 64) % 18 - 9, torch.arange(4)],
    ),
    "compared": (
        Module(compared),
        [
            rand(4, 37),
            (torch.arange(4 * 37).view(4, 37) % 5 - 2) * (1 << 33) // 7 - 100,
            (torch.arange(4 * 37, dtype=torch.int32).view(4, 37) % 3 - 1) * (2**31 - 1),
            (torch.arange(4 * 37) * 7 % 256).to(torch.uint8).view(4, 37),
        ],
    ),
    "compared_beyond_32_bits": (
        Module(lambda x, y: torch.where(x.long() < y, 1.0, -1.0)),
        [torch.full((4, 37), 2**31 - 1, dtype=torch.int32), torch.arange(4 * 37).view(4, 37) % 5 - 2 + (1 << 31)],
    ),
    "unpacked": (
        Module(lambda x, w: x @ (torch.stack((w & 15, w >> 4), -1).flatten(1).to(x.dtype) - 8).t()),
        [rand(3, 20), torch.arange(110, dtype=torch.uint8).view(11, 10)],
    ),
    "reflected": (
        Module(lambda x: (fn.pad(x, (3, 2, 1, 2), mode="reflect"), fn.pad(x, (2, 3, 0, 1), mode="replicate"))),
        [rand(2, 3, 5, 37)],
    ),
    "unfolded": (
        Module(lambda x: fn.unfold(x, (3, 2), dilation=(1, 2), padding=1, stride=(2, 1))),
        [rand(2, 3, 9, 21)],
    ),
    "counted": (Module(counted), [rand(9, 70)]),
    "counted_evenly": (Module(counted), [rand(32, 64)]),
    "whole": (Module(whole), [rand(3, 37)]),
    "whole_evenly": (Module(whole), [rand(4, 64)]),
    "argmax_planes": (Module(lambda x: (x.argmax(1), *x.min(0))), [rand(5, 9, 37).round()]),
    "halves_of_bytes": (
        Module(lambda w, s: (((w & 15).float() - 8) * s + ((w >> 4) | 1).float()).sum(-1)),
        [torch.arange(111, dtype=torch.uint8).view(3, 37) + 120, rand(37)],
    ),
    "signed_bits": (
        Module(lambda w: (w >> 3).float() + (w & 6).float()), [torch.arange(74).view(2, 37).to(torch.int8) - 40]
    ),
    "int8_linear": (
        Module(lambda x, w, s: (x @ w.to(x.dtype).t()) * s),
        [rand(5, 24), (torch.arange(21 * 24) % 251 - 125).to(torch.int8).view(21, 24), rand(21)],
    ),
    "scatter": (Module(lambda x, y, i: x.scatter(0, i, y)), [rand(6, 37), rand(5, 8), PLACES]),
    "scatter_value": (Module(lambda x, i: torch.zeros_like(x).scatter_(-1, i, 2.5) * x), [rand(3, 37), PLACES]),
    "scatter_add": (
        Module(lambda x, y, i: x.scatter_add(1, i, y)), [rand(4, 37), rand(3, 5, dtype=torch.bfloat16).float(), PLACES],
    ),
    "scatter_max": (Module(lambda x, y, i: x.scatter_reduce(1, i, y, "amax")), [rand(3, 37), rand(3, 4), PLACES]),
    "scatter_ints": (Module(lambda i: torch.ones(3, 8, dtype=torch.int64).scatter_reduce(1, i, i, "prod")), [PLACES]),
    "index_add": (
        Module(lambda x, y, i: x.index_add(0, i, y, alpha=2)), [rand(9, 37), rand(12, 37), torch.arange(12) % 5],
    ),
    "index_put": (
        Module(lambda x, y, i, j: x.index_put((i, j), y)),
        [rand(9, 37), rand(12), torch.arange(12) % 5, torch.arange(12) % 7 - 3],
    ),
    "columns_put": (
        Module(lambda x, y, i: torch.ops.aten.index_put(x, [None, i], y)),
        [rand(9, 37), rand(9, 5), PLACES.view(-1)[:5]],
    ),
    "middle_added": (
        Module(lambda x, y, i: torch.ops.aten.index_put(x, [None, i], y, True)),
        [rand(4, 6, 17), rand(17), PLACES[:, :2]],
    ),
    "scatter_mean": (
        Module(lambda x, y, i: x.scatter_reduce(1, i, y, "mean", include_self=False)),
        [rand(3, 37), rand(3, 4), PLACES],
    ),
    "index_reduce": (
        Module(lambda x, y, i: quietly(x.index_reduce, 0, i, y, "amin", include_self=False)),
        [rand(9, 37), rand(12, 37), torch.arange(12) % 5],
    ),
    "segments": (
        Module(lambda x, n: torch.segment_reduce(x, "mean", lengths=n, unsafe=True).nan_to_num(7.0)),
        [rand(12, 19), torch.tensor([3, 0, 8, 1])],
    ),
    "segments_by_offsets": (
        Module(lambda x, at: torch.segment_reduce(x, "max", offsets=at, unsafe=True).clamp(min=-9)),
        [rand(12), torch.tensor([0, 3, 3, 12])],
    ),
    "searchsorted": (Module(lambda x: torch.searchsorted(x.new_tensor([0.1, 0.4, 0.5]), x, right=True)), [rand(5, 37)]),
    "diagonal": (Module(lambda x, y: x.diagonal_scatter(y, -2, 1, 2)), [rand(3, 9, 7), rand(3, 7)]),
    "filled_diagonal": (Module(lambda x: (x @ x.t()).fill_diagonal_(-3.0).softmax(-1)), [rand(9, 17)]),
    "few_of_many": (Module(lambda x: (torch.topk(x, 5), torch.topk(x, 3, largest=False))), [rand(5, 700)]),
    "assigned_slice": (Module(lambda x, y: torch.slice_scatter(x, y * 2, 1, 3, 20)), [rand(5, 37), rand(5, 17)]),
    "assigned_start": (Module(lambda x, y: torch.slice_scatter(x, y, 0, end=2) + 1), [rand(5, 37), rand(2, 37)]),
    "assigned_steps": (
        Module(lambda x, y: torch.slice_scatter(x, y, 1, 5, 30, 3)), [rand(5, 37), rand(5, 9, dtype=torch.bfloat16)],
    ),
    "assigned_in_turns": (
        Module(lambda x, y: x.slice_scatter(x[:, ::2] * y, 1, 0, step=2).slice_scatter(x[:, 1::2] - y, 1, 1, step=2)),
        [rand(5, 74), rand(5, 37)],
    ),
    "folded_ones": (
        Module(lambda x: fn.fold(x, (8, 9), 3, padding=1, stride=2) / fn.fold(torch.ones_like(x), (8, 9), 3, 1, 1, 2)),
        [rand(2, 18, 20)],
    ),
    "transposed_ones": (
        Module(lambda x: fn.conv_transpose1d(x.new_ones(2, 3, 7), x, stride=2, padding=1)), [rand(3, 4, 4)],
    ),
    "adaptive_ones": (
        Module(lambda x: x + fn.adaptive_avg_pool1d(torch.ones_like(x) * 2, 3).sum(-1, keepdim=True)), [rand(4, 5)],
    ),
    "cat_of_many": (
        Module(lambda x: torch.cat([x[:, t : t + 1] * x[:, 19 - t : 20 - t] for t in range(20)], 1)), [rand(3, 20, 17)],
    ),
    "empty_constant": (Module(lambda x: torch.cat([torch.tensor([], dtype=x.dtype), x.exp()])), [rand(37)]),
    "centred_columns": (Module(lambda x: ((m := x.mean(0)).exp(), x - m)), [rand(50, 37)]),
    "logsumexp_column": (Module(lambda x: x.logsumexp(1).relu()), [rand(3, 5, 4, 7)]),
    "of_one": (Module(lambda x: x.logsumexp(1, keepdim=True).sum(1) * 2), [rand(5, 37)]),
    "padded_bags": (nn.EmbeddingBag(11, 37, mode="max", padding_idx=2), [torch.arange(30).view(5, 6) % 11]),
    "fold": (Module(lambda x: fn.fold(x, (6, 9), 3, padding=1, stride=2)), [rand(2, 36, 15)]),
    "signs": (Module(lambda x, y: 1 / torch.copysign(x, y)), [rand(5, 37), rand(5, 37).clamp(-0.5, -0.0)]),
    "routed": (Module(lambda x: torch.topk(x.softmax(-1), 3)), [rand(9, 21)]),
    "median_column": (Module(lambda x: x.median(0)), [rand(20, 37).round(decimals=1)]),
    "sorted_numbers": (Module(lambda a: a.sort(stable=True, descending=True)), [rand(5, 37).round().long()]),
    "shared_keys": (Module(lambda q, k: q @ k.mT), [rand(2, 3, 20, 24), rand(2, 1, 18, 24).expand(2, 3, 18, 24)]),
    "repeated": (Module(lambda a, b: a @ b), [rand(1, 37).expand(20, 37), rand(37, 1).expand(37, 30)]),
    "linear": (nn.Sequential(nn.Linear(61, 37), nn.GELU()), [rand(19, 61)]),
    "matmul_tn": (Module(lambda a, b: a.t() @ b), [rand(23, 13), rand(23, 37)]),
    "matmul_tt": (Module(lambda a, b: (a.t() @ b.t()).triu()), [rand(23, 37), rand(37, 23)]),
    "bmm": (Module(lambda a, b: torch.relu(a).bmm(b) - a.amax(-1, keepdim=True)), [rand(3, 9, 17), rand(3, 17, 21)]),
    "long_sum": (Module(lambda a, b: a @ b), [rand(5, 1100), rand(1100, 19)]),
    "scaled_before_and_after": (
        Module(lambda x, w, s, t: (x * s.sigmoid()[:, None]) @ (w * t.sigmoid()) * s.sigmoid()[:, None] * t.sigmoid()),
        [rand(19, 23), rand(23, 37), rand(19), rand(37)],
    ),
    "two_products": (Module(lambda x, a, b: fn.silu(x @ a) * (x @ b)), [rand(9, 30), rand(30, 35), rand(30, 35)]),
    "conv": (nn.Sequential(nn.Conv2d(5, 9, 3, padding=1), nn.ReLU()), [rand(2, 5, 7, 18)]),
    "causal_bias": (Module(causal_bias, rand(3)), [rand(3, 21, 21)]),
    "bytes_wrap": (
        Module(lambda x: x * (torch.arange(37, dtype=torch.uint8) * 40 + torch.tensor(200, dtype=torch.uint8))),
        [rand(5, 37)],
    ),
    "bags": (
        Module(lambda at, w, table: (table[at] * w[..., None]).sum(1), rand(50, 37)),
        [torch.arange(24).view(6, 4) * 7 % 50, rand(6, 4)],
    ),
    "adam": (Module(adam), [rand(5, 37), rand(5, 37) + 1, rand(5, 37) - 1, rand(5, 37) * 2]),
    "depthwise": (nn.Conv2d(6, 6, 3, padding=1, groups=6), [rand(2, 6, 9, 21)]),
    "two_towers": (
        Module(lambda x, y, a, b: ((x @ a) * (y @ b)).sum(-1)), [rand(9, 20), rand(9, 31), rand(20, 37), rand(31, 37)]
    ),
    "transposed": (Module(lambda x, w: (torch.softmax(x, -1) @ w).transpose(0, 1)), [rand(9, 20), rand(20, 37)]),
    "channels_last": (
        nn.Sequential(nn.Conv2d(4, 9, 3, padding=1), nn.ReLU()),
        [rand(2, 4, 5, 19).contiguous(memory_format=torch.channels_last)],
    ),
    "two_convs": (nn.Sequential(nn.Conv1d(3, 6, 3), nn.ReLU(), nn.Conv1d(6, 9, 3)), [rand(2, 3, 23)]),
    "conv_grouped": (nn.Conv2d(6, 8, (3, 2), stride=2, padding=(2, 1), dilation=(1, 2), groups=2), [rand(2, 6, 9, 21)]),
    "conv_winograd": (
        nn.Sequential(nn.Conv2d(32, 33, 3, padding=1), nn.ReLU(), nn.Conv2d(33, 32, 3, padding=(2, 1))),
        [rand(2, 32, 8, 11)],
    ),
    "conv_winograd_3d": (nn.Conv3d(32, 32, (1, 3, 3), groups=1, padding=(0, 1, 0)), [rand(1, 32, 2, 4, 9)]),
    "conv_transposed": (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), [rand(2, 4, 5, 9)]),
    "conv_transposed_3d": (nn.ConvTranspose3d(4, 6, 3, stride=2, groups=2, dilation=(1, 2, 1)), [rand(1, 4, 3, 4, 9)]),
    "conv_norm_pool": (
        nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Tanh(), nn.MaxPool2d(2), nn.GroupNorm(2, 6)),
        [rand(2, 3, 10, 13)],
    ),
    "expanded": (
        Module(lambda x, w, s: torch.sigmoid(x @ w) * s + s.exp()),
        [rand(5, 9, 24)[:, ::2, ::3], rand(8, 20), rand(1).expand(5, 20)],
    ),
    "film": (Module(film), [rand(3, 7, 50), rand(3, 5), rand(5, 14)]),
    "parts_of_rows": (Module(clamped_and_normalised), [rand(17, 59)]),
    "cumsum": (Module(lambda x: (x.cumsum(-1) * 2, x.flip(0).cumsum(0).flip(0))), [rand(5, 300)]),
    "running": (
        Module(lambda x, m: ((x * m).cumsum(1), (1 + x / 64).cumprod(-1), x.cummax(1)[0], -(-x).cummin(1)[0])),
        [rand(5, 333), rand(333) > 0],
    ),
    "running_back": (
        Module(lambda x, h: (x.flip(1).cumsum(1).flip(1), h.cumsum(-1))),
        [rand(3, 1100), rand(7, 70, dtype=torch.bfloat16)],
    ),
    "cumsum_long": (Module(lambda x: torch.softmax(x, 0).cumsum(0)), [rand(700, 19)]),
    "cumsum_of_columns": (Module(lambda x: x.t().cumsum(1).contiguous()), [rand(19, 300)]),
    "logcumsumexp": (Module(lambda x: (x.logcumsumexp(0), (40 * x).logcumsumexp(1))), [rand(700, 19)]),
    "distances": (
        Module(lambda x, y: (torch.cdist(x, y, p=1.0), torch.cdist(x, y, p=3.0))),
        [rand(2, 23, 19), rand(2, 17, 19)],
    ),
    "cummax": (Module(lambda x, k: (*x.cummax(0), *k.cummin(1))), [rand(17, 21), torch.arange(60).view(4, 15) % 7]),
    "bilinear": (nn.Bilinear(19, 8, 12), [rand(23, 19), rand(23, 8)]),
    "bools": (
        Module(
            lambda a, b: (
                torch.maximum(a > 0, b > 0).float(), torch.minimum(a > 0, b > 0).float(), ((a > 0) < (b > 0)).float(),
                ((a > 0) >= (b > 0)).float(), ((a > 0) * (b > 0) == (a > b)).float(), ((a > 0) * (b > 0) ^ (a > b)) + a,
            )
        ),
        [rand(5, 37), rand(37)],
    ),
    "bytes_extremes": (
        Module(lambda low, high: (low.amax(1), low.amin(0), high.amax(0), high.amin(1))),
        [torch.arange(74, dtype=torch.uint8).view(2, 37), torch.arange(130, 204, dtype=torch.uint8).view(2, 37)],
    ),
    "numbers_out_of_range": (
        Module(
            lambda low, small: (
                low > -1, torch.where(low > 1, low, -1) + 300, (low - 1 < 100) | (low == 256), small > 200, small + 200,
            )
        ),
        [torch.arange(74, dtype=torch.uint8).view(2, 37), torch.arange(-37, 37, dtype=torch.int8).view(2, 37)],
    ),
    "standardised_tiny": (  # squares of them vanish in single precision
        Module(lambda x: ((x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True), (x - x.mean()) / x.std())),
        [rand(5, 70) * 1e-29],
    ),
    "standardised_large": (Module(lambda x: (x / x.std(0), *torch.std_mean(x, 1, correction=0))), [rand(5, 70) * 1e12]),
    "running_truth": (Module(lambda x: (*(x > 0.2).cummax(1), (x > 0.2).cummin(0)[1])), [rand(5, 37)]),
    "pool_of_integers": (Module(lambda x: fn.max_pool2d(x, 3, 2, 1)), [-torch.arange(2 * 63).view(1, 2, 7, 9) - 1]),
    "negated_constant": (Module(lambda x: x + (-torch.full((37,), -1.0))), [rand(5, 37)]),
    "put_where": (Module(put_where), [rand(5, 37)]),
    "rare_functions": (
        Module(lambda x, y: (torch.erfc(x), torch.hypot(x, y), x.round(decimals=1), x.round(decimals=-1))),
        [rand(5, 37) * 3, rand(5, 37)],
    ),
    "whole_quotients": (Module(lambda x, y: x // y), [torch.arange(1.0, 38.0), torch.full((37,), 0.1)]),
    "cumprod": (Module(lambda x, y: (x.cumprod(1), (y > 3).cumsum(0))), [1 + rand(4, 37) / 8, torch.arange(12)]),
    "wrapped_elsewhere": (
        Module(lambda a, b, c: ((a + b)[:, 1:].float(), (a * 3)[:, :5].long() + 1, (c * c).flip(1).float().sum(1))),
        [
            torch.arange(74, dtype=torch.uint8).view(2, 37) * 3, torch.full((2, 37), 200, dtype=torch.uint8),
            torch.arange(74, dtype=torch.int16).view(2, 37) * 9,
        ],
    ),
    "scatter_product": (
        Module(lambda x, y, i: (x.scatter(1, i, y, reduce="multiply"), x.scatter(1, i, 2.5, reduce="add"))),
        [rand(3, 37), rand(3, 4), PLACES],
    ),
    "bags_of_any_length": (
        Module(lambda i, w, at: (fn.embedding_bag(i, w, at, mode="sum"), fn.embedding_bag(i, w, at, mode="max"))),
        [torch.arange(30) * 7 % 11, rand(11, 37), torch.tensor([0, 4, 4, 15])],
    ),
    "doubly_masked": (Module(doubly_masked), [rand(3, 21, 37), rand(3, 21) > 0]),
    "shifted": (
        Module(shifted),
        [torch.arange(74).view(2, 37) * 123456789123 - (1 << 42), torch.arange(74).view(2, 37) % 72 - 3],
    ),
    "powers": (Module(powers), [torch.arange(84).view(2, 42) % 7 - 3, torch.arange(84).view(2, 42) // 7 % 6 - 3]),
    "fake_quantised": (
        Module(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.125, 3, 0, 15) @ x.T), [rand(5, 37)],
    ),
    "beside_its_windows": (
        Module(lambda x: fn.avg_pool2d(x.relu(), 3, 1, 1) - x.relu() + fn.max_pool2d(x.softmax(1), 3, 1, 1)),
        [rand(2, 3, 6, 19)],
    ),
    "residual_depthwise": (
        Module(lambda x, w: fn.gelu(x) + fn.gelu(fn.conv2d(fn.gelu(x), w, padding=1, groups=4))),
        [rand(2, 4, 6, 19), rand(4, 1, 3, 3)],
    ),
    "windows_in_memory": (Module(lambda x, w: (x * 2).as_strided((30, 7), (3, 2), 1) @ w), [rand(11, 37), rand(7, 20)]),
}  # fmt: skip


@dataclass
class Compiled:
    """One schedule of one case, inside a library of many."""

    case: str
    label: str
    source: str
    params: dict[str, int]
    graph: Graph
    prefix: str = ""
    defines: dict[str, str] = field(default_factory=dict)


def sizes_of(graph: Graph) -> dict[str, str]:
    found = {}
    for t in graph.tensors.values():
        if t.kind != "tmp":
            for dim, (size, step) in enumerate(zip(t.shape, t.stride, strict=True)):
                found[f"EVO_SIZE_{t.name}_{dim}"] = str(size)
                found[f"EVO_STRIDE_{t.name}_{dim}"] = str(step)
    return found


def unit(kernels: list[Compiled]) -> str:
    """Many kernels in one translation unit: each in a namespace, with its own macros."""
    text = ['#include "evoforge.h"']
    for k in kernels:
        macros = {**{name: str(value) for name, value in k.params.items()}, **k.defines}
        text += [f"#define {name} {value}" for name, value in macros.items()]
        body = k.source.replace('#include "evoforge.h"', "")
        text.append(f"namespace {k.prefix} {{ {body} }}")
        sized = "evo_workspace" in body
        text.append(
            f'extern "C" int {k.prefix}_run(const evo_call* call) {{ return {k.prefix}::evo_run(call); }}\n'
            f'extern "C" int64_t {k.prefix}_bytes(const evo_call* call) '
            f"{{ return {f'{k.prefix}::evo_workspace(call)' if sized else '0'}; }}"
        )
        text += [f"#undef {name}" for name in macros]
    return "\n".join(text)


def compile_to(made: str, source: str, flags: tuple[str, ...], header: str | None = None) -> None:
    """With the folder of a compiled header first, where there is one."""
    folders = [f"-I{folder}" for folder in (header, include_dir()) if folder]
    command = ["g++", *flags, *folders, "-c", source, "-o", made]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]


@cache
def header_of(flags: tuple[str, ...]) -> str:
    """A folder with the header compiled: reading it takes longer than most kernels do."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    compile_to(f"{folder}/evoforge.h.gch", f"{include_dir()}/evoforge.h", flags)
    return folder


def build(kernels: list[Compiled], folder: Path, march: str, optimise: str = "-O1") -> Any:
    """Compiles in two units at once and links one library."""
    for number, k in enumerate(kernels):
        k.prefix = f"k{number}"
        k.defines = k.defines or sizes_of(k.graph)

    name, flags = march.split()[0], (*FLAGS, optimise, *f"-march={march}".split())

    def compiled(part: int) -> str:
        path = folder / f"{name}-{part}.cpp"
        path.write_text(unit(kernels[part::2]))
        compile_to(f"{path}.o", str(path), flags, header_of(flags))
        return f"{path}.o"

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, range(min(2, len(kernels)))))
    library = folder / "kernels.so"
    subprocess.run(["g++", "-fopenmp", "-shared", *objects, "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("size", ctypes.c_int64 * 8), ("stride", ctypes.c_int64 * 8),
        ("rank", ctypes.c_int32), ("dtype", ctypes.c_int32),
    ]  # fmt: skip


class Call(ctypes.Structure):
    _fields_ = [
        ("abi", ctypes.c_int32), ("n_in", ctypes.c_int32), ("n_const", ctypes.c_int32), ("n_out", ctypes.c_int32),
        ("threads", ctypes.c_int32), ("inputs", ctypes.POINTER(Tensor)), ("cst", ctypes.POINTER(Tensor)),
        ("out", ctypes.POINTER(Tensor)), ("packed", ctypes.c_void_p), ("ws", ctypes.c_void_p),
        ("ws_bytes", ctypes.c_int64),
    ]  # fmt: skip


def aligned(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """A poisoned tensor on a 64-byte boundary, and the bytes around it (64 before, 64 after)."""
    nbytes = int(np.prod(shape)) * torch.empty(0, dtype=dtype).element_size()
    memory = torch.full((nbytes + 192,), 0xA5, dtype=torch.uint8)
    start = 64 + (-memory.data_ptr()) % 64
    return memory[start : start + nbytes].view(dtype).view(shape), memory[start - 64 : start + nbytes + 64]


def described(tensors: list[torch.Tensor]) -> Any:
    array = (Tensor * max(1, len(tensors)))()
    codes = {TORCH[name]: code for code, name in enumerate(DTYPES) if name in TORCH}
    for slot, t in zip(array, tensors, strict=False):
        slot.data, slot.rank, slot.dtype = t.data_ptr(), t.dim(), codes[t.dtype]
        for dim in range(t.dim()):
            slot.size[dim], slot.stride[dim] = t.shape[dim], t.stride(dim)
    return array


def call(
    library: Any, k: Compiled, model: nn.Module, inputs: list[torch.Tensor], threads: int = 2
) -> list[torch.Tensor]:
    constants = [*(p.data for p in model.parameters()), *model.buffers()]
    made = [aligned(k.graph.tensors[n].shape, TORCH[k.graph.tensors[n].dtype]) for n in k.graph.names("out")]
    laid = (k.graph.tensors[n] for n in k.graph.names("out"))
    outputs = [one.as_strided(t.shape, t.stride) for (one, _), t in zip(made, laid, strict=True)]
    arrays = [described(group) for group in (inputs, constants, outputs)]
    record = Call(1, len(inputs), len(constants), len(outputs), threads, *arrays, None, None, 0)
    size = getattr(library, f"{k.prefix}_bytes")
    size.restype = ctypes.c_int64
    scratch, around = aligned((max(1, size(ctypes.byref(record))),), torch.uint8)
    scratch.fill_(0xFF)  # NaN in every float
    record.ws, record.ws_bytes = scratch.data_ptr(), scratch.numel()
    assert getattr(library, f"{k.prefix}_run")(ctypes.byref(record)) == 0
    for memory in (around, *(edge for _, edge in made)):
        assert (memory[:64] == 0xA5).all() and (memory[-64:] == 0xA5).all(), f"{k.case} {k.label}: wrote out of bounds"
    return outputs


def check(k: Compiled, model: nn.Module, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    with torch.no_grad():
        expected = copy.deepcopy(model).double()(*wide)
    expected = pytree.tree_leaves(expected)
    for got, want in zip(outputs, expected, strict=True):
        what = f"{k.case} {k.label} {k.params}"
        if not want.is_floating_point():
            assert torch.equal(got, want), what
            continue
        unit_of = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float64: 2.0**-40}.get(got.dtype, 2.0**-24)
        inside = max([float(x.abs().max()) for x in inputs if x.is_floating_point()] + [1.0])
        room = 64 * unit_of * (want.abs() + want.abs().max() * min(inside, 1000))
        assert ((got.double() - want).abs() <= room).all(), f"{what}: off by {(got.double() - want).abs().max():.3g}"


def check_all(kernels: list[tuple[Compiled, nn.Module, list[torch.Tensor]]], folder: Path) -> None:
    """Builds kernels for this processor and checks each with its module and inputs."""
    library = build([k for k, _, _ in kernels], folder, "native")
    for k, model, inputs in kernels:
        check(k, model, inputs, call(library, k, model, inputs))


def space_of(graph: Graph, lanes: int = 16) -> ScheduleSpace:
    return ScheduleSpace([graph], l1_bytes=48 << 10, l2_bytes=1 << 20, vector_bytes=4 * lanes, threads=2)


@cache
def captured(case: str) -> Graph:
    """With outputs that lie as torch's do."""
    model, inputs = CASES[case]
    graph = capture_graph(model.eval(), inputs)
    with torch.no_grad():
        made = model(*inputs)
    made = pytree.tree_leaves(made)
    found = signature_of(graph)
    outputs = [replace(spec, stride=got.stride()) for spec, got in zip(found.outputs, made, strict=True)]
    return laid_out(graph, replace(found, outputs=tuple(outputs)))


def schedules(case: str, count: int, lanes: int) -> list[Compiled]:
    """Some schedules that must always be tried, and random ones at random parameters."""
    graph = captured(case)
    space, rng = space_of(graph, lanes), np.random.default_rng(len(case))
    genomes = [
        {"vector": "scalar"},
        {"unroll": "many", "reduction": "chunks", "rewrite:maxsum": "on", "rewrite:welford": "on"},
    ]
    rewritten = [{key: "on"} for key in ("rewrite:phases", "rewrite:winograd") if key in space.genes()]
    fetched = {"whole": {"prefetch": "next"}, "block": {"prefetch": "ahead"}}
    inline = dict.fromkeys(("block", "pack", "deep"), "inline")
    blocked = [
        {**also, key: how, key.replace("contract", "sums"): inline.get(how, "alone"), **fetched.get(how, {})}
        for key in space.genes() if key.startswith("contract")
        for how in space.genes()[key][1:]
        for also in ({}, *rewritten)
    ]  # fmt: skip
    genomes[1:], count = (blocked, 1) if blocked else ([*genomes[1:], *rewritten], count)
    genomes += [space.sample(rng, Strategy()) for _ in range(count)]
    return [at_random(case, genome, space, graph, rng) for genome in genomes]


_graphs: dict[nn.Module, Graph] = {}


def graph_of(model: nn.Module, inputs: list[torch.Tensor]) -> Graph:
    """Captured once per module, which takes a third of a second."""
    if model not in _graphs:
        _graphs[model] = capture_graph(model.eval(), inputs)
    return _graphs[model]


def unfolded(model: nn.Module, inputs: list[torch.Tensor]) -> Graph:
    """As rewrites find it."""
    return rewrites.unfold(graph_of(model, inputs))


def rewritten(case: str, model: nn.Module, inputs: list[torch.Tensor], name: str) -> list[Compiled]:
    """Some schedules, all of them with one rewrite, which the first kernel of a campaign has."""
    graph = graph_of(model, inputs)
    space, rng = space_of(graph, 8), np.random.default_rng(len(case))
    genomes: list[dict[str, Any]] = [space.default(), {"unroll": "many"}, {"vector": "scalar"}]
    genomes += [{key: how} for key in space.genes() if key.startswith("contract") for how in space.genes()[key][1:]]
    genomes += [space.sample(rng, Strategy()) for _ in range(2)]
    assert genomes[0][f"rewrite:{name}"] == "on"
    return [at_random(case, {**genome, f"rewrite:{name}": "on"}, space, graph, rng) for genome in genomes]


def at_random(
    case: str, genome: dict[str, str], space: ScheduleSpace, graph: Graph, rng: np.random.Generator
) -> Compiled:
    """A schedule at random parameters."""
    source = space.render(genome)
    declared = ParameterSpace.parse(source)
    drawn = ({p.name: int(rng.choice(p.choices)) for p in declared.parameters} for _ in range(100))
    return Compiled(case, str(genome), source, next(filter(declared.feasible, drawn), declared.defaults()), graph)


@pytest.mark.parametrize(("march", "lanes", "count"), [("native", 16, 2), ("x86-64-v3", 8, 1)])
def test_schedules_compute_what_the_module_computes(march: str, lanes: int, count: int, tmp_path: Path) -> None:
    if march == "x86-64-v3" and "avx512f" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("native is that here")
    cases = list(CASES)[:: 1 if march == "native" else 2]
    kernels = [k for number, case in enumerate(cases) for k in schedules(case, max(1, count - number % 2), lanes)]
    library = build(kernels, tmp_path, march)
    for k in kernels:
        model, inputs = CASES[k.case]
        check(k, model, inputs, call(library, k, model, inputs))


def test_what_a_row_or_a_column_keeps_has_its_own_precision(tmp_path: Path) -> None:
    wide, long = rand(7, 31, dtype=torch.float64), torch.arange(1 << 40, (1 << 40) + 60).view(4, 15)
    gathered = [rand(9, 17), torch.randint(0, 50, (9, 17)), torch.randint(1, 17, (9,)), rand(50)]

    def segments(values: torch.Tensor, at: torch.Tensor, lengths: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Truth values that one pass writes one by one, as its gathers are, and the next reads as vectors."""
        return torch.where(torch.arange(17) < lengths[:, None], values * x[at // 2], 0.0).sum(-1)

    cases: dict[str, tuple[nn.Module, list[torch.Tensor]]] = {"segments": (Module(segments), gathered)}
    for dim in (0, 1):
        cases[f"softmax_{dim}"] = (nn.Softmax(dim), [wide])
        cases[f"integers_{dim}"] = (Module(lambda x, d=dim: x * 3 - (x * 3).amax(d, keepdim=True)), [long])
    kernels = []
    for case, (model, inputs) in cases.items():
        graph = capture_graph(model.eval(), inputs)
        space = space_of(graph)
        genome = {key: "row" for key in space.genes() if key.startswith("placement")}
        if case == "segments":
            genome["placement:index"] = "root"
        source = space.render(genome)
        assert " per thread" in source, "a buffer for a row"
        kernels.append(Compiled(case, str(genome), source, ParameterSpace.parse(source).defaults(), graph))
    library = build(kernels, tmp_path, "native")
    for k in kernels:
        check(k, *cases[k.case], call(library, k, *cases[k.case]))


def test_passes_of_one_step_keep_their_names_apart(tmp_path: Path) -> None:
    model, inputs = Module(lambda x, y: torch.softmax(x * y, -1)), [rand(4, 33, 1), rand(4, 33, 1)]
    graph = capture_graph(model.eval(), inputs)
    source = space_of(graph).render({"rewrite:maxsum": "on", "unroll": "one"})
    kernel = Compiled("softmax of one", "", source, {}, graph)
    assert "Columns" in source and source.count("const evo::vec mul ") == 2
    check(kernel, model, inputs, call(build([kernel], tmp_path, "native"), kernel, model, inputs))


def test_contractions_use_every_vector_for_several_rows() -> None:
    model, inputs = CASES["linear"]
    space = space_of(capture_graph(model.eval(), inputs))
    (key,) = [gene for gene in space.genes() if gene.startswith("contract")]
    for how in ("block", "pack", "both"):
        source = space.render({key: how})
        assert "_acc[TILE_ROWS][TILE_VECTORS]" in source and "erf" in source
        assert ("_panel" in source, "_left" in source) == (how != "block", how == "both")
        assert all((p["TILE_ROWS"] + 1) * p["TILE_VECTORS"] < 32 for p in ParameterSpace.parse(source).points()), (
            "the accumulators of a block and one row of the wide operand do not fit the registers"
        )
        assert "evo::alone([&]" in source and "evo::held(" in source
    assert "TILE_ROWS" not in space.render({key: "both", "vector": "scalar"})
    model, inputs = CASES["long_sum"]
    assert "_totals" in blocked(space_of(capture_graph(model, inputs)), "deep")


@pytest.mark.parametrize("march", ["native", "x86-64"])
def test_the_last_vector_of_a_row_starts_earlier(march: str, tmp_path: Path) -> None:
    """So that it is a whole one, where a row is longer than a vector: 8 lanes here, other processors have 4 or 16."""
    model, kernels = Module(lambda a, b: torch.relu(a @ b)), []
    inputs = [rand(3, 20, 24), rand(3, 24, 10)]
    graph = capture_graph(model, inputs)
    for how in ("block", "pack", "both"):
        source = blocked(space_of(graph, 8), how, **{"stream:out0": "stream"})
        assert "evo::max(cols - evo::lanes, int64_t(0))" in source
        kernels.append(Compiled("ragged", how, source, ParameterSpace.parse(source).defaults(), graph))
    library = build(kernels, tmp_path, march)
    for k in kernels:
        check(k, model, inputs, call(library, k, model, inputs))
    even = capture_graph(model, [rand(3, 20, 24), rand(3, 24, 16)])
    assert "evo::max(cols" not in blocked(space_of(even, 8), "both")


def test_the_next_block_of_rows_is_fetched_where_memory_holds_it_as_it_is() -> None:
    def fetched(function: Any, how: str, depth: int = 64) -> bool:
        graph = capture_graph(Module(function).eval(), [rand(40, depth), rand(depth, 48)])
        return "evo::prefetch(in0 +" in blocked(space_of(graph), how, prefetch="next")

    assert all(fetched(lambda a, b: a @ b, how) for how in ("block", "pack", "whole"))
    assert not fetched(lambda a, b: a @ b, "both"), "it is packed"
    short = blocked(
        space_of(capture_graph(Module(lambda a, b: a @ b).eval(), [rand(40, 8), rand(8, 48)])), "block", prefetch="next"
    )
    assert "evo::max(int64_t(TILE_ROWS), int64_t(1024) / steps) * steps" in short, (
        "a block of short rows comes too late"
    )
    assert not fetched(lambda a, b: a @ b, "pack", 4096), "a block of rows fills the cache"
    for stream, fetches in (("plain", True), ("stream", False)):
        space = space_of(capture_graph(Module(lambda a, b: a @ b).eval(), [rand(400, 64), rand(64, 480)]))
        source = blocked(space, "block", prefetch="next", **{"stream:out0": stream})
        assert ("evo::prefetch_to_write(out0 +" in source) == fetches


def blocked(space: ScheduleSpace, how: str, **genes: str) -> str:
    """Every contraction in register blocks, packed that way."""
    return space.render({gene: how for gene in space.genes() if gene.startswith("contract")} | genes)


def plain(case: str) -> str:
    """The first kernel of a campaign on a case."""
    space = space_of(captured(case))
    return space.render(space.default())


def test_what_only_depends_on_positions_is_computed_in_vectors() -> None:
    source = plain("causal_bias")
    assert "evo::positions(" in source and "evo::at_least_0(" in source and "one_by_one" not in source


def test_rows_that_are_looked_up_are_read_as_vectors() -> None:
    source = plain("bags")
    assert "evo::load(cst0 + " in source and "one_by_one" not in source


def test_whole_numbers_are_looked_up_and_compared_in_vectors() -> None:
    for case in (
        "looked_up",
        "compared",
        "halves_of_bytes",
        "signed_bits",
        "counted",
        "whole",
        "argmax_planes",
        "reflected",
        "unfolded",
    ):
        assert "one_by_one" not in plain(case)
    assert "evo::lookup(in0" in plain("looked_up")
    assert "one_by_one" in plain("compared_beyond_32_bits"), "two long numbers need all of their bits"


def test_divisions_by_one_number_for_a_row_may_be_products() -> None:
    space = space_of(captured("bytes_to_planes"))
    assert "* (1.f / 255.0f)" in space.render({"math": "reciprocal"}) and "/ 255.0f" in space.render({})
    assert "math" not in space_of(captured("chain")).genes(), "nothing to decide"


def test_lanes_lie_along_the_axis_that_fills_them() -> None:
    assert "Columns, a vector at a time: convolution_product" in plain("depthwise"), "a filter of three fills no vector"
    assert "one_by_one" not in plain("group_norm"), "the weights of a few channels chose the lanes"


def test_lanes_lie_along_results_whose_neighbours_are_near() -> None:
    def printed(function: Any, *shape: int) -> str:
        return space_of(capture_graph(Module(function).eval(), [rand(*shape)])).render({})

    for pool in (lambda x: fn.max_pool2d(x, 3, 2, 1), lambda x: fn.avg_pool2d(x, 2)):
        assert "Columns, a vector at a time" in printed(pool, 2, 3, 34, 34)


def test_what_runs_along_another_axis_is_turned_in_squares() -> None:
    def printed(*shape: int, **genes: str) -> str:
        graph = capture_graph(Module(lambda x: x.transpose(1, 2).contiguous() * 2).eval(), [rand(*shape)])
        return space_of(graph).render(genes)

    for unroll in ("one", "many"):
        turned = printed(2, 48, 64, unroll=unroll)
        assert "evo::transpose(x0_square" in turned and "gather" not in turned and "one_by_one" not in turned
    assert "collapse(2)" in printed(1, 32, 2000) and "collapse" not in printed(1, 2000, 32), "tasks for every thread"
    assert "_square" not in printed(2, 48, 6), "a square would be nearly empty"
    assert "_square" not in printed(2, 48, 64, vector="scalar")
    norm = space_of(
        capture_graph(Module(lambda x: fn.layer_norm(x.transpose(1, 2), (96,))).eval(), [rand(8, 96, 3000)])
    )
    assert "_block + col" in norm.render({}) and "_row + " in norm.render({}), "rows that have reductions"
    model, _ = CASES["turned_head"]
    elsewhere = space_of(capture_graph(model, [rand(8, 512, 256)])).render({})
    assert "tanh(in0[" in elsewhere and "x0_row" not in elsewhere, (
        "a buffer would stand for what is read elsewhere, too"
    )
    assert "layer_norm_mean = " in norm.render({"split:0.1": "split", "rewrite:welford": "on"}), "known for every row"


def test_results_that_lie_between_one_another_are_stored_together() -> None:
    for case, count in (
        ("pairs", 2),
        ("pairs_of_halves", 2),
        ("planes_to_channels", 3),
        ("bytes_beside", 3),
        ("four_beside", 4),
        ("assigned_in_turns", 2),
    ):
        source = plain(case)
        assert len(re.search(r"store_beside\(out0.*, n, (.*)\);", source)[1].split(", ")) == count
        assert "one_by_one" not in source
    assert plain("pairs").count("parallel for") == 1, "the other factor walks the same axes"
    assert "_beside" not in plain("bytes_in_place"), "what is read and written alike is one row"
    space = space_of(captured("pairs"))
    assert "evo::stream_beside(out0" in space.render({**space.default(), "stream:out0": "stream"})
    assert "_beside" not in plain("doubles_beside"), "no vectors"


def test_scans_go_a_vector_of_steps_at_a_time() -> None:
    source = plain("running")
    assert {"sum", "prod", "max", "min"} <= set(
        re.findall(r"evo::running_(\w+)\(", source)
    ) and "double so_far" in source
    assert "one_by_one" not in plain("running_back"), "backwards too"
    assert "evo::running" not in plain("cumsum_long"), "neighbours are rows"


def test_several_streamed_outputs_write_whole_lines() -> None:
    space = space_of(captured("adam"))
    streams = {gene: "stream" for gene in space.genes() if gene.startswith("stream")}
    assert len(streams) == 3
    together = space.render({"unroll": "many", **streams})
    assert len(re.findall(r"evo::stream\(out\d \+ at, \w+_line\[u\]", together)) == 3
    assert "_line[u]" not in space.render({"unroll": "many", next(iter(streams)): "stream"})


def test_a_panel_takes_vectors_of_several_rows_of_an_image() -> None:
    space = space_of(captured("conv"))
    assert "vector % across" in blocked(space, "both")
    assert "vector % across" not in blocked(space_of(captured("linear")), "both")


SEVERAL: dict[str, tuple[nn.Module, list[list[torch.Tensor]]]] = {
    "constants that are sizes": (nn.GroupNorm(2, 4), [[rand(2, 4, 5, 9)], [rand(3, 4, 6, 7)]]),
    "the whole row of one is a part in the other": (
        Module(lambda x: (torch.exp(x[:, :8]), x.sum())), [[rand(5, 8)], [rand(7, 16)]],
    ),
    "axes that only one size tells apart": (
        Module(lambda x: (x[:8, 0].sum(), x * 2, x.sum(1))), [[rand(8, 8)], [rand(16, 16)]],
    ),
}  # fmt: skip


def test_one_source_is_right_for_workloads_of_different_sizes(tmp_path: Path) -> None:
    kernels = []
    for case, (model, every) in SEVERAL.items():
        graphs = [capture_graph(model.eval(), inputs) for inputs in every]
        space = ScheduleSpace(graphs, l1_bytes=48 << 10, l2_bytes=1 << 20, vector_bytes=64, threads=2)
        for genome in space.textbook():
            source = space.render(genome)
            params = ParameterSpace.parse(source).defaults()
            kernels += [Compiled(case, f"{k} {genome}", source, params, graph) for k, graph in enumerate(graphs)]
    library = build(kernels, tmp_path, "native")
    for k in kernels:
        model, every = SEVERAL[k.case]
        inputs = every[int(k.label[0])]
        check(k, model, inputs, call(library, k, model, inputs))


APART: dict[str, tuple[nn.Module, list[list[torch.Tensor]]]] = {
    "padding": (nn.Conv2d(3, 5, 3, padding=1), [[rand(2, 3, 9, 7)], [rand(1, 3, 20, 33)]]),
    "a pool and what follows": (
        nn.Sequential(nn.MaxPool2d(3, 2, padding=1), nn.GELU(), nn.Conv2d(4, 6, 1), nn.ReLU()),
        [[rand(1, 4, 13, 17)], [rand(2, 4, 30, 8)]],
    ),
    "strides and transposition": (
        nn.Sequential(nn.ConvTranspose2d(4, 3, 4, stride=2, padding=1), nn.Tanh()),
        [[rand(1, 4, 5, 6)], [rand(1, 4, 6, 11)], [rand(3, 4, 2, 2)]],
    ),
    "turned round": (Module(lambda x: x.flip(1).cumsum(1)), [[rand(6, 50)], [rand(9, 31)]]),
    "windows of other widths": (nn.AdaptiveAvgPool1d(5), [[rand(3, 4, 20)], [rand(2, 4, 33)]]),
    "other types": (
        Module(lambda x: torch.softmax(x, -1) * 2), [[rand(5, 33)], [rand(5, 33, dtype=torch.float16)]],
    ),
    "a size of one": (nn.LayerNorm(24), [[rand(1, 24)], [rand(7, 24)]]),
    "rows and columns": (
        Module(lambda x, w: torch.softmax(x @ w, -1)), [[rand(30, 20).t(), rand(30, 40)], [rand(20, 30), rand(30, 40)]],
    ),
}  # fmt: skip


def test_one_source_holds_a_form_for_each_workload_where_they_differ_in_more_than_sizes(tmp_path: Path) -> None:
    rng, kernels = np.random.default_rng(11), []
    for case, (model, every) in APART.items():
        graphs = [capture_graph(model.eval(), inputs) for inputs in every]
        space = ScheduleSpace(graphs, l1_bytes=48 << 10, l2_bytes=1 << 20, vector_bytes=64, threads=2)
        for genome in (*space.textbook(), *(space.sample(rng, Strategy()) for _ in range(4))):
            made = at_random(case, genome, space, graphs[0], rng)
            kernels += [replace(made, label=f"{k} {genome}", graph=graph) for k, graph in enumerate(graphs)]
    library = build(kernels, tmp_path, "native")
    for k in kernels:
        model, every = APART[k.case]
        inputs = every[int(k.label[0])]
        check(k, model, inputs, call(library, k, model, inputs))


LAID_OUT: dict[str, tuple[nn.Module, list[torch.Tensor]]] = {
    "channels last": (
        nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last),
        [rand(2, 3, 7, 8).to(memory_format=torch.channels_last)],
    ),
    "many channels last": (
        nn.Conv2d(64, 20, 3).to(memory_format=torch.channels_last),
        [rand(1, 64, 6, 7).to(memory_format=torch.channels_last)],
    ),
    "permuted": (Module(lambda x, w: fn.conv2d(x.permute(0, 3, 1, 2), w)), [rand(1, 6, 7, 64), rand(20, 64, 3, 3)]),
    "turned": (
        Module(lambda x, w: torch.einsum("ijk,kjn->in", x, w)), [rand(9, 13, 21).transpose(1, 2), rand(13, 21, 17)],
    ),
}  # fmt: skip


def test_sums_that_go_through_memory_in_another_order_stay_within_it(tmp_path: Path) -> None:
    """Their loops are ordered, and some merged, as memory is; a packed panel is filled and read by the same ones."""
    rng, kernels = np.random.default_rng(3), []
    for case, (model, inputs) in LAID_OUT.items():
        graph = capture_graph(model.eval(), inputs)
        space = space_of(graph)
        genomes = (*space.textbook(), *(space.sample(rng, Strategy()) for _ in range(5)))
        kernels += [(at_random(case, genome, space, graph, rng), model, inputs) for genome in genomes]
    check_all(kernels, tmp_path)


def test_a_build_for_one_workload_holds_its_own_form_alone(tmp_path: Path) -> None:
    model, every = APART["padding"]
    graphs = [capture_graph(model.eval(), inputs) for inputs in every]
    space = ScheduleSpace(graphs, l1_bytes=48 << 10, l2_bytes=1 << 20, vector_bytes=64, threads=2)
    source = space.render({})
    assert source.count("if (EVO_SIZE(in0, ") == 1 and source.count("    return 0;") == 2
    params, sizes = ParameterSpace.parse(source).defaults(), []
    for number, graph in enumerate(graphs):
        k = Compiled("padding", "", source, params, graph)
        folder = tmp_path / str(number)
        folder.mkdir()
        build([k], folder, "native", "-O3")
        found = subprocess.run(["nm", "-C", folder / "kernels.so"], capture_output=True, text=True, check=True).stdout
        sizes.append(found.count("_omp_fn"))
    assert sizes[0] == sizes[1] > 0
    alone = space_of(graphs[0]).render({})
    assert alone.count("#pragma omp") == sizes[0]


def attention(causal: bool) -> Module:
    return Module(lambda q, k, v: fn.scaled_dot_product_attention(q, k, v, is_causal=causal))


def windows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-2, -1) * 0.3 + bias, dim=-1) @ v


CHAINED: dict[str, tuple[nn.Module, list[torch.Tensor]]] = {
    "attention": (attention(False), [rand(2, 3, 37, 20), rand(2, 3, 45, 20), rand(2, 3, 45, 24)]),
    "causal": (attention(True), [rand(2, 1, 71, 20), rand(2, 1, 71, 20), rand(2, 1, 71, 9)]),
    "windows": (Module(windows, rand(3, 19, 19)), [rand(4, 3, 19, 8), rand(4, 3, 19, 8), rand(4, 3, 19, 8)]),
    "read_again": (  # the scores, after the weights that could have taken their place
        Module(lambda q, k, v: (torch.softmax(q @ k.mT, -1) + q @ k.mT) @ v),
        [rand(2, 40, 8), rand(2, 40, 8), rand(2, 40, 9)],
    ),
    "one_query": (attention(False), [rand(2, 6, 1, 16), rand(2, 6, 70, 16), rand(2, 6, 70, 16)]),
    "two_layers": (nn.Sequential(nn.Linear(30, 70), nn.GELU(), nn.Linear(70, 21), nn.LayerNorm(21)), [rand(43, 30)]),
    "three_small_layers": (
        nn.Sequential(nn.Linear(30, 70), nn.SiLU(), nn.Linear(70, 90), nn.Tanh(), nn.Linear(90, 21)),
        [rand(5, 30)],
    ),
}


def test_chained_nests_compute_what_the_module_computes(tmp_path: Path) -> None:
    rng, kernels = np.random.default_rng(7), []
    for case, (model, inputs) in CHAINED.items():
        graph = capture_graph(model.eval(), inputs)
        space = space_of(graph)
        links = [gene for gene in space.genes() if gene.startswith("chain")]
        assert links, f"{case}: nothing to chain"
        placed = [gene for gene in space.genes() if gene.startswith("placement")]
        chosen = [dict.fromkeys(placed, "root"), *({gene: "root"} for gene in placed)]
        chosen += [{**genome, "rewrite:factored": "on"} for genome in chosen if "rewrite:factored" in space.genes()]
        chosen += [space.sample(rng, Strategy()) for _ in range(6)]
        genomes = [{**genome, **dict.fromkeys(links, "chained")} for genome in chosen]
        kernels += [at_random(case, genome, space, graph, rng) for genome in genomes]
    chained = [k for k in kernels if "CHAIN_ROWS" in k.params]
    assert {k.case for k in chained} == set(CHAINED)
    library = build(kernels, tmp_path, "native")
    for k in kernels:
        check(k, *CHAINED[k.case], call(library, k, *CHAINED[k.case]))


def test_a_chain_is_right_where_there_are_fewer_rows_than_a_turn_has(tmp_path: Path) -> None:
    model, inputs = CHAINED["two_layers"]
    space = space_of(capture_graph(model.eval(), inputs))
    source = space.render({gene: "chained" for gene in space.genes() if gene.startswith("chain")})
    few = [inputs[0][:11]]
    params = {**ParameterSpace.parse(source).defaults(), "CHAIN_ROWS": 32}
    k = Compiled("two_layers", "few rows", source, params, capture_graph(model, few))
    check(k, model, few, call(build([k], tmp_path, "native"), k, model, few))


def test_a_causal_chain_leaves_out_what_the_mask_hides() -> None:
    for causal in (True, False):
        space = space_of(capture_graph(attention(causal), [rand(1, 2, 64, 16)] * 3))
        source = space.render({gene: "chained" for gene in space.genes() if gene.startswith("chain")})
        assert ("_seen" in source) == causal, "of a block of rows"
        assert ("_here" in space.render(space.default())) == causal, "and of a tile"


def test_one_source_is_right_at_sizes_it_was_not_printed_for(tmp_path: Path) -> None:
    model = nn.LayerNorm(48)
    graph = capture_graph(model, [rand(6, 48)])
    fields = {}
    for t in graph.tensors.values():
        if t.kind != "tmp":
            group = {"in": "in", "cst": "cst", "out": "out"}[t.kind]
            number = re.sub(r"\D", "", t.name)
            for dim in range(len(t.shape)):
                fields[f"EVO_SIZE_{t.name}_{dim}"] = f"(call->{group}[{number}].size[{dim}])"
                fields[f"EVO_STRIDE_{t.name}_{dim}"] = f"(call->{group}[{number}].stride[{dim}])"
    genome = {"unroll": "many", "stream:out0": "stream", "prefetch": "next", "tile": "1", "split:0.1": "split"}
    source = space_of(graph).render(genome)
    k = Compiled("layer_norm", str(genome), source, ParameterSpace.parse(source).defaults(), graph, defines=fields)
    library = build([k], tmp_path, "native")
    for rows in (6, 3):  # 48 columns are in the mean's own constant
        inputs = [rand(rows, 48)]
        k.graph = capture_graph(model, inputs)
        check(k, model, inputs, call(library, k, model, inputs))


def test_tiles_in_tiles_are_right_where_the_inner_one_is_larger(tmp_path: Path) -> None:
    """Several nests share the parameters, and what all of them need may be met by no values."""
    model, inputs = Module(lambda x: (x * x).sum(-1)), [rand(3, 500)]
    graph = capture_graph(model, inputs)
    space = space_of(graph)
    kernels = []
    for genome, params in (({"tile": "2"}, {"TILE": 128, "TILE2": 32}), ({"tile": "3"}, {"TILE": 256, "TILE3": 64})):
        source = space.render(genome)
        assert "TILE2" in source, "else this shows nothing"
        kernels.append(
            Compiled("tiles", str(genome), source, {**ParameterSpace.parse(source).defaults(), **params}, graph)
        )
    library = build(kernels, tmp_path, "native")
    for k in kernels:
        check(k, model, inputs, call(library, k, model, inputs))


def test_what_one_nest_requires_of_tiles_holds_beside_others(tmp_path: Path) -> None:
    """Short rows of integers, one by one, beside long ones in several vectors a step: no tile is right for both."""
    model = Module(lambda k, x: (k.sum(-1), x.sum(-1)))
    kernels = []
    for short in (20, 50):
        inputs = [torch.arange(3 * short).view(3, short), rand(3, 500)]
        graph = capture_graph(model, inputs)
        for genome in ({"tile": "1"}, {"tile": "1", "unroll": "many"}):
            source = space_of(graph).render(genome)
            points = list(ParameterSpace.parse(source).points())
            kernels += [Compiled(str(short), str(genome), source, p, graph) for p in points[::3]]
    library = build(kernels, tmp_path, "native")
    for k in kernels:
        inputs = [torch.arange(3 * int(k.case)).view(3, int(k.case)), rand(3, 500)]
        check(k, model, inputs, call(library, k, model, inputs))


def test_the_number_of_threads_does_not_change_a_bit(tmp_path: Path) -> None:
    kernels = [k for case in ("mse_loss", "column_mean") for k in schedules(case, 2, 16)]
    library = build(kernels, tmp_path, "native")
    for k in kernels:
        model, inputs = CASES[k.case]
        one, four = (call(library, k, model, inputs, threads) for threads in (1, 4))
        assert all(torch.equal(a, b) for a, b in zip(one, four, strict=True)), k.label


def test_products_of_sizes_are_more_than_an_int_holds(tmp_path: Path) -> None:
    model, side = Module(lambda x: (y := x.exp()) / y.sum()), 70000
    graph = capture_graph(model, [torch.zeros(1, 1).expand(side, side)])
    space = space_of(graph)
    kept = {gene: "root" for gene in space.genes() if gene.startswith("placement")}
    source = space.render(kept)
    k = Compiled("large", str(kept), source, ParameterSpace.parse(source).defaults(), graph)
    needed = build([k], tmp_path, "native").k0_bytes
    needed.restype = ctypes.c_int64
    parts = -(-side * side // k.params["CHUNK"])
    assert 0 <= needed(ctypes.byref(Call(threads=2))) - 4 * (side * side + 1 + parts) < 3 * 64
    assert "warning" not in subprocess.run(
        ["g++", *FLAGS, "-fsyntax-only", "-march=native", f"-I{include_dir()}", str(tmp_path / "native-0.cpp")],
        capture_output=True, text=True, check=True,
    ).stderr  # fmt: skip


def test_a_row_for_each_of_many_threads_is_more_than_an_int_holds(tmp_path: Path) -> None:
    """Of those that a kernel is called with, whatever number it was planned for."""
    model, columns = Module(lambda x: (y := x.exp()) / y.sum(-1, keepdim=True)), 10_000_000
    graph = capture_graph(model, [torch.zeros(1, 1).expand(4, columns)])
    space = space_of(graph)
    source = space.render({gene: "row" for gene in space.genes() if gene.startswith("placement")})
    k = Compiled("wide", "row", source, ParameterSpace.parse(source).defaults(), graph)
    needed = build([k], tmp_path, "native").k0_bytes
    needed.restype = ctypes.c_int64
    for threads in (2, 300):
        assert 0 <= needed(ctypes.byref(Call(threads=threads))) - 4 * threads * columns < 4 * 64


def test_what_is_printed_for_one_thread_is_right_with_more(tmp_path: Path) -> None:
    model, inputs = Module(lambda x: (x.exp().sum(), x * 2)), [rand(300, 1000)]
    graph = capture_graph(model, inputs)
    space = ScheduleSpace([graph], l1_bytes=48 << 10, l2_bytes=1 << 20, vector_bytes=64, threads=1)
    kernels = []
    for genome in ({}, {"unroll": "many"}, {"tile": "1", "vector": "scalar"}):
        source = space.render(genome)
        kernels.append(Compiled("sum", str(genome), source, ParameterSpace.parse(source).defaults(), graph))
    library = build(kernels, tmp_path, "native")
    for k in kernels:
        check(k, model, inputs, call(library, k, model, inputs, 4))


def test_long_sums_of_scalars_are_accurate(tmp_path: Path) -> None:
    """Of numbers of one sign, which a float that has grown large loses."""
    model = Module(lambda x: ((x + 8).var(-1), x.sum(-1) * 2, x.logsumexp(-1)))
    long = torch.rand(2, 1 << 20, generator=torch.Generator().manual_seed(0))
    kernels = []
    for inputs in ([long], [long.t().contiguous().t()]):
        graph = capture_graph(model, inputs)
        for genome in ({}, {"reduction": "chunks"}, {"rewrite:welford": "on", "rewrite:maxsum": "on"}):
            source = space_of(graph).render({"vector": "scalar", **genome})
            declared = ParameterSpace.parse(source).defaults()
            kernels.append((Compiled("long", str(genome), source, declared, graph), inputs))
    library = build([k for k, _ in kernels], tmp_path, "native")
    for k, inputs in kernels:
        check(k, model, inputs, call(library, k, model, inputs))


def test_equal_scalars_are_added_accurately(tmp_path: Path) -> None:
    """Every addition of the same number may round the same way."""
    model, rows = Module(lambda x: x.sum(-1)), torch.full((2, 1024), 0.1)
    graph = capture_graph(model, [rows])
    source = space_of(graph).render({"vector": "scalar"})
    k = Compiled("equal", "", source, ParameterSpace.parse(source).defaults(), graph)
    (got,) = call(build([k], tmp_path, "native"), k, model, [rows])
    torch.testing.assert_close(got, rows.double().sum(-1).float(), rtol=2.0**-23, atol=0.0)


def test_equal_vectors_are_added_accurately(tmp_path: Path) -> None:
    """Along rows and columns, however many vectors a step has: a lane's sum is folded before it outgrows its terms."""
    model = Module(lambda x: (x.sum(-1), (x - 0.2).var(-1), x.logsumexp(-1).exp()))
    rows = torch.full((2, 1 << 17), 0.1)
    rows[:, ::2] = 0.3
    kernels = []
    for inputs in ([rows], [rows[0].expand(40, -1).t().contiguous().t()]):
        graph = capture_graph(model, inputs)
        for genome in ({}, {"unroll": "many"}, {"tile": "2"}, {"rewrite:welford": "on", "rewrite:maxsum": "on"}):
            source = space_of(graph).render(genome)
            assert "evo::fold(" in source
            declared = ParameterSpace.parse(source).defaults()
            kernels.append((Compiled("equal", str(genome), source, declared, graph), inputs))
    library = build([k for k, _ in kernels], tmp_path, "native")
    for k, inputs in kernels:
        for got, want in zip(call(library, k, model, inputs), model(inputs[0].double()), strict=True):
            torch.testing.assert_close(got.double(), want, rtol=2.0**-15, atol=0.0, msg=k.label)


@pytest.mark.parametrize("largest", [True, False])
def test_the_first_few_of_many_come_in_order_whatever_is_equal(largest: bool, tmp_path: Path) -> None:
    """Also where most are infinite (masked), and with NaN, which is the largest."""
    masked, model = rand(4, 600), Module(lambda x: torch.topk(x, 6, largest=largest))
    masked[:, 7:] = -math.inf
    masked[1, 2:] = -math.inf
    masked = masked if largest else -masked
    masked[:3, [100, 300]] = math.nan
    ties = (torch.arange(4 * 600).view(4, 600) % 7).to(torch.int8)
    kernels = []
    for x in (masked, ties):
        graph = capture_graph(model, [x])
        for genome in ({}, {"vector": "scalar"}):
            source = space_of(graph).render(genome)
            kernels.append((Compiled("topk", "", source, ParameterSpace.parse(source).defaults(), graph), x))
    library = build([k for k, _ in kernels], tmp_path, "native")
    for k, x in kernels:
        values, at = call(library, k, model, [x])
        order = torch.argsort(x, dim=-1, descending=largest, stable=True)[:, :6]
        assert torch.equal(at, order)
        assert torch.equal(values.float().nan_to_num(9.0), x.gather(-1, order).float().nan_to_num(9.0))


def test_tiny_results_are_flushed_while_a_kernel_runs_and_no_longer(tmp_path: Path) -> None:
    """Only where there is an exponential is there a choice: other results rarely come near."""
    model, rows = nn.Softmax(-1), torch.zeros(64, 640)
    rows[:, 320:] = -95.0
    graph = capture_graph(model, [rows])
    kernels = []
    for how in ("kept", "flushed"):
        source = space_of(graph).render({"tiny": how})
        kernels.append(Compiled("softmax", how, source, ParameterSpace.parse(source).defaults(), graph))
    library = build(kernels, tmp_path, "native")
    for k, nothing in zip(kernels, (False, True), strict=True):
        (got,) = call(library, k, model, [rows])
        check(k, model, [rows], [got])
        assert bool((got[:, 320:] == 0).all()) == nothing, "in every row, whichever thread had it"
        (again,) = call(library, kernels[0], model, [rows])
        assert bool((again[:, 320:] > 0).all()), "all threads are as they were"
    assert "tiny" in space_of(graph).genes()
    assert "tiny" not in space_of(capture_graph(nn.LayerNorm(64), [rand(8, 64)])).genes()


def test_nan_and_infinities_come_out_where_torch_has_them(tmp_path: Path) -> None:
    rows = torch.stack([rand(37) for _ in range(4)])
    rows[0, 5], rows[1, 7], rows[2, 9], rows[3, :] = float("nan"), float("inf"), float("-inf"), float("-inf")
    model = nn.Softmax(-1)
    graph = capture_graph(model, [rows])
    genomes: list[dict[str, str]] = [{}, {"vector": "scalar"}, {"unroll": "many", "rewrite:maxsum": "on"}]
    kernels = []
    for genome in genomes:
        source = space_of(graph).render(genome)
        kernels.append(Compiled("softmax", str(genome), source, ParameterSpace.parse(source).defaults(), graph))
    library = build(kernels, tmp_path, "native")
    for k in kernels:
        (got,) = call(library, k, model, [rows])
        want = model(rows)
        assert torch.equal(got.isnan(), want.isnan()), k.label
        torch.testing.assert_close(got, want, equal_nan=True)


def test_what_a_function_leaves_of_x_near_0_is_right(tmp_path: Path) -> None:
    x = rand(5, 37) * 1e-3
    model = Module(lambda x: [x - f(x) for f in (torch.tanh, torch.sinh, torch.asinh, torch.atanh)])
    graph, kernels = capture_graph(model, [x]), []
    for genome in ({}, {"vector": "scalar"}):
        source = space_of(graph).render(genome)
        kernels.append(Compiled("near 0", str(genome), source, ParameterSpace.parse(source).defaults(), graph))
    library = build(kernels, tmp_path, "native")
    for k in kernels:
        for got, want in zip(call(library, k, model, [x]), model(x.double()), strict=True):
            assert ((got - want).abs() <= 1.2 * 2.0**-23 * x.abs()).all(), k.label


def test_inverse_hyperbolic_functions_are_right_far_out(tmp_path: Path) -> None:
    """Where squares overflow, and of what is infinite."""
    ends = torch.tensor([1e9, 9e17, 1.1e18, 3e19, 1e30, 1.5e38, 3e38, math.inf])
    x = torch.cat([ends, -ends, torch.tensor([0.0, math.nan]), rand(19)]).view(1, 37)
    model = Module(
        lambda x: (torch.asinh(x), torch.acosh(x.abs().clamp(min=1)), torch.asinh(x.double()), torch.atanh(x))
    )
    graph, kernels = capture_graph(model, [x]), []
    for genome in ({}, {"vector": "scalar"}):
        source = space_of(graph).render(genome)
        kernels.append(Compiled("far", str(genome), source, ParameterSpace.parse(source).defaults(), graph))
    library = build(kernels, tmp_path, "native")
    for k in kernels:
        for got, want in zip(call(library, k, model, [x]), model(x.double()), strict=True):
            torch.testing.assert_close(got.double(), want, rtol=1e-6, atol=1e-7, equal_nan=True, msg=k.label)


def test_signs_of_nan_and_spreads_without_degrees_of_freedom_are_torchs(tmp_path: Path) -> None:
    rows = torch.stack([rand(37) for _ in range(4)])
    rows[0, 5], rows[1, 7], rows[2, 9] = float("nan"), float("inf"), float("-inf")
    model = Module(lambda x: (torch.sign(x), x.var(1, correction=37), x[:, :1].std(1), x[:, 4:4].mean(1)))
    graph = capture_graph(model, [rows])
    space, kernels = space_of(graph), []
    for genome in ({}, {"vector": "scalar"}, {"unroll": "many", "rewrite:welford": "on"}):
        source = space.render(genome)
        kernels.append(Compiled("signs", str(genome), source, ParameterSpace.parse(source).defaults(), graph))
    library = build(kernels, tmp_path, "native")
    for k in kernels:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of no degrees of freedom
            expected = model(rows)
        for got, want in zip(call(library, k, model, [rows]), expected, strict=True):
            torch.testing.assert_close(got, want, equal_nan=True, msg=k.label)


def test_what_is_computed_twice_is_rounded_the_same_twice(tmp_path: Path) -> None:
    """Of weights whose maximum comes of another rounding than exp(x - max) does, the sum is not one, or not finite."""
    model = Module(lambda x, w: torch.softmax(x * 0.17 + w, -1), rand(49))
    graph = capture_graph(model, [rand(6, 49)])
    genomes: list[dict[str, str]] = [{}, {"vector": "scalar"}, {"unroll": "many"}, {"rewrite:maxsum": "on"}]
    kernels = []
    for genome in genomes:
        source = space_of(graph).render(genome)
        kernels.append(Compiled("softmax", str(genome), source, ParameterSpace.parse(source).defaults(), graph))
    library = build(kernels, tmp_path, "native", "-O3")
    for k in kernels:
        for rows in (rand(6, 49) * 1e18, rand(6, 49) + 1e6):
            (got,) = call(library, k, model, [rows])
            assert bool(((got >= 0) & (got <= 1)).all()), k.label
            torch.testing.assert_close(got.sum(-1), torch.ones(len(got)), msg=k.label)


def test_differences_of_shared_differences_cancel_as_torchs_do(tmp_path: Path) -> None:
    """c - 2b + a is another number than (c - b) - (b - a) far from 0, where the latter is exact."""
    model, rows = Module(lambda x: torch.diff(x, n=2, dim=-1)), rand(3, 49) - 128
    graph = capture_graph(model, [rows])
    space, kernels = space_of(graph), []
    for genome in ({}, {"vector": "scalar"}, {"unroll": "many"}):
        source = space.render(genome)
        kernels.append(Compiled("differences", str(genome), source, ParameterSpace.parse(source).defaults(), graph))
    library = build(kernels, tmp_path, "native", "-O3")
    for k in kernels:
        (got,) = call(library, k, model, [rows])
        assert torch.equal(got, model(rows)), k.label


def test_what_is_read_at_two_places_is_rounded_at_both(tmp_path: Path) -> None:
    """x less its neighbour is 0 where they are equal, however x was computed."""

    def neighbours(x: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, z = fn.silu(x * s), x * s
        left = fn.pad(y, (1, 0), mode="replicate")[:, :-1]
        return y - y.roll(1, -1), y[:, 1:] - y[:, :-1], y - left, z - 0.5 * (z.roll(1, 0) + z.roll(-1, 0))

    model, rows = Module(neighbours), rand(1, 1).expand(6, 49).contiguous()
    inputs = [rows, torch.full((1, 49), 1.7)]
    graph = capture_graph(model, inputs)
    space, kernels = space_of(graph), []
    for genome in ({}, {"vector": "scalar"}, {"unroll": "many"}):
        source = space.render(genome)
        kernels.append(Compiled("neighbours", str(genome), source, ParameterSpace.parse(source).defaults(), graph))
    library = build(kernels, tmp_path, "native", "-O3")
    for k in kernels:
        assert not any(got.any() for got in call(library, k, model, inputs)), k.label


def test_scalar_schedules_stay_scalar_and_streaming_ones_stream(tmp_path: Path) -> None:
    model, inputs = nn.Softmax(-1), [rand(8, 256)]
    graph = capture_graph(model, inputs)
    text = {}
    for genome in ({"vector": "scalar"}, {"stream:out0": "stream", "prefetch": "ahead"}):
        source = space_of(graph).render(genome)
        k = Compiled("softmax", str(genome), source, ParameterSpace.parse(source).defaults(), graph)
        build([k], tmp_path, "x86-64-v3", "-O3")
        dump = subprocess.run(
            ["objdump", "-d", "--no-show-raw-insn", str(tmp_path / "x86-64-v3-0.cpp.o")],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        text[next(iter(genome))] = dump
    assert "ymm" not in text["vector"] and "prefetch" not in text["vector"]
    assert "vmovntps" in text["stream:out0"] and "prefetcht0" in text["stream:out0"]


def test_a_narrow_operand_that_takes_much_to_make_is_made_once() -> None:
    def space(function: Any) -> ScheduleSpace:
        return space_of(capture_graph(Module(function).eval(), [rand(40, 64), rand(64, 48)]))

    plain, made = space(lambda a, b: a.relu() @ b), space(lambda a, b: fn.gelu(a, approximate="tanh") @ b)
    assert "_left_tile[" in blocked(made, "pack") and "_left_tile[" not in blocked(plain, "pack")


def test_sums_that_a_triangle_hides_are_not_taken(tmp_path: Path) -> None:
    def ahead() -> torch.Tensor:
        return torch.arange(45)[:, None] - torch.arange(39)

    triangles: dict[str, Any] = {
        "triu": lambda a, b: torch.triu(a @ b + 1, 3),
        "tril": lambda a, b: torch.tril(a @ b, -2),
        "filled": lambda a, b: (a @ b).masked_fill(torch.arange(45)[:, None] < torch.arange(39), 0.5),
        "chosen": lambda a, b: torch.where(ahead() > 0, (a @ b).exp(), 2.0),
    }
    kernels = []
    for case, function in triangles.items():
        model, inputs = Module(function), [rand(45, 600), rand(600, 39) / 30]
        graph = capture_graph(model, inputs)
        for how in ("block", "pack", "both", "whole"):
            for sums in ("alone", "inline"):
                source = blocked(space_of(graph, 8), how, **{"sums:matmul": sums})
                assert "if (" in source, case
                for params in ({}, {"TILE_ROWS": 5, "TILE_VECTORS": 2}):
                    declared = ParameterSpace.parse(source).defaults() | params
                    kernels.append((Compiled(case, f"{how} {sums}", source, declared, graph), model, inputs))
    check_all(kernels, tmp_path)
    read: tuple[Any, ...] = (
        lambda a, b: (s := a @ b) + torch.triu(s),  # also elsewhere
        lambda a, b: torch.where(ahead() == 0, 0.0, a @ b),
        lambda a, b: (s := a @ b, torch.triu(s)),
    )
    for function in read:
        graph = capture_graph(Module(function), [rand(45, 60), rand(60, 39)])
        assert "if (" not in blocked(space_of(graph, 8), "both")


def test_long_loops_are_kept_in_pieces(tmp_path: Path) -> None:
    """A chain is computed to its start wherever it is read, unless something between is kept."""

    def iterated(x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        for _ in range(300):
            x = torch.tanh(x * a + 0.1)
        return x

    def scanned(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        h, found = torch.zeros_like(a[:, 0]), []
        for t in range(a.shape[1]):
            h = a[:, t] * h + b[:, t]
            found.append((h * c[:, t, None]).sum(-1))
        return torch.stack(found, 1)

    def written(x: torch.Tensor) -> torch.Tensor:
        h, out = x[:, 0], torch.zeros_like(x)
        for t in range(x.shape[1]):
            h = torch.sin(h) + x[:, t]
            out[:, t] = h
        return out

    cases: list[tuple[str, nn.Module, list[torch.Tensor]]] = [
        ("iterated", Module(iterated), [rand(3, 37), rand(37) / 8]),
        ("scanned", Module(scanned), [rand(2, 50, 3, 5).sigmoid(), rand(2, 50, 3, 5), rand(2, 50, 5)]),
        ("written", Module(written), [rand(2, 50, 9)]),
    ]
    kernels = []
    for case, model, inputs in cases:
        graph = capture_graph(model.eval(), inputs)
        space = space_of(graph, 8)
        for genome in ({}, space.default()):
            source = space.render(genome)
            assert len(source) < 2000 * len(graph.stages), case
            declared = ParameterSpace.parse(source).defaults()
            kernels.append((Compiled(case, str(genome), source, declared, graph), model, inputs))
    check_all(kernels, tmp_path)
