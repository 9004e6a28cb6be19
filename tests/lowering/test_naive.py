"""Captured and naively printed kernels against torch, for every family of operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def positive(*shape: int) -> torch.Tensor:
    return normal(*shape).abs() + 0.1


def integers(low: int, high: int, *shape: int) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(len(shape) + high))


def randomised(module: nn.Module) -> nn.Module:
    """Parameters and running statistics away from their trivial starting values."""
    generator = torch.Generator().manual_seed(7)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_floating_point():
            with torch.no_grad():
                drawn = torch.randn(tensor.shape, generator=generator) * 0.5
                tensor.copy_(drawn.abs() + 0.5 if "var" in name else drawn)
    return module.eval()


class AddRMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = x + residual
        scale = torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6)
        return hidden * scale * self.weight, hidden


def f(function: Callable[..., Any], *inputs: Any) -> tuple[nn.Module, list[Any]]:
    return Call(function), list(inputs)


def m(module: nn.Module, *inputs: Any) -> tuple[nn.Module, list[Any]]:
    return randomised(module), list(inputs)


X, Y = normal(3, 5, 7), normal(3, 5, 7, seed=1)
IMAGE = normal(2, 4, 6, 6)
SPECIAL = torch.tensor([[0.0, -0.0, 1.5, -2.5, 0.5], [float("inf"), -float("inf"), float("nan"), 3.5, -1.0]])
WHOLE = integers(-9, 9, 4, 6)

UNARY = (
    "lgamma",
    "neg",
    "abs",
    "exp",
    "expm1",
    "exp2",
    "sin",
    "cos",
    "tan",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "erf",
    "sigmoid",
    "floor",
    "ceil",
    "round",
    "trunc",
    "sign",
    "relu",
    "asinh",
    "square",
    "isnan",
    "isinf",
    "isfinite",
    "logical_not",
)
OF_POSITIVE = (
    "sqrt",
    "rsqrt",
    "reciprocal",
    "log",
    "log1p",
    "log2",
    "log10",
)
ACTIVATIONS = (
    "silu",
    "mish",
    "hardswish",
    "hardsigmoid",
    "softplus",
    "elu",
    "selu",
    "celu",
    "leaky_relu",
    "logsigmoid",
    "hardtanh",
    "relu6",
    "softsign",
    "gelu",
    "softshrink",
    "hardshrink",
    "tanhshrink",
)

POINTWISE = {
    "unary": f(lambda x: [getattr(torch, name)(x) for name in UNARY], X),
    "of_positive": f(lambda x: [getattr(torch, name)(x) for name in OF_POSITIVE], positive(4, 9)),
    "activations": f(lambda x: [getattr(F, name)(3 * x) for name in ACTIVATIONS], X),
    "special_relu": f(lambda x: (F.relu(x), x.clamp(-1, 2), torch.round(x), torch.maximum(x, x.flip(0))), SPECIAL),
    "inverse": f(lambda x: (torch.asin(x), torch.acos(x), torch.atanh(x), torch.acosh(x + 2)), X.tanh() * 0.9),
    "gelu_tanh": f(lambda x: F.gelu(x, approximate="tanh"), X),
    "broadcast": f(lambda x, y, z: (x + y * 2 - z) / (y.abs() + 1), X, normal(5, 1), normal(7)),
    "ldexp": f(lambda x, n, y: (x.ldexp(n), x.ldexp(y), n.ldexp(n)), X[0], integers(-9, 9, 5, 7), Y[0]),
    "powers": f(lambda x, y: (x**2, x**3, x**-1, x**0.5, x**y, 2.0**x, x**1.7), positive(4, 5), normal(4, 5)),
    "fake_quantised": f(
        lambda x: (
            torch.fake_quantize_per_tensor_affine(x, 0.1, 10, 0, 20),
            torch.fake_quantize_per_tensor_affine(x, 0.3, 0, -4, 3),
            *torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(x, 0.1, 0, -8, 7),
        ),
        X,
    ),
    "division": f(lambda x, y: (x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc")), X, Y),
    "compare": f(
        lambda x, y: (x > y, x <= y, x == y, (x > 0) & (y > 0), (x > 0) ^ (y > 0), x.isnan() | (x != 0)), X, Y
    ),
    "where": f(lambda x, y: torch.where(x > 0, x, y.exp()).masked_fill(y > 1, -2.0), X, Y),
    "mixed": f(lambda x, y, z: torch.lerp(x, y, 0.3) + torch.addcmul(x, y, z, value=0.5) + torch.atan2(x, y), X, Y, X),
    "alpha": f(lambda x, y: (torch.add(x, y, alpha=3), torch.sub(x, y, alpha=0.5), torch.rsub(x, 2)), X, Y),
    "integer": f(
        lambda a, x: (a // 4, a % 4, a * 2 - 1, a / 4, a > 2, a + x, -a, a.abs(), a & 3, a << 1), WHOLE, normal(6)
    ),
    "bytes": f(lambda a, b: (a + 1, b.sum(), ~b, b.float() * 2), WHOLE.to(torch.int8), WHOLE > 0),
    "casts": f(lambda x: (x.to(torch.int32), x.double() * 2, (x > 0).to(torch.int64), x.bool()), 4 * X),
    "wrapped": f(lambda x: [(x * 1e4).to(kind).float() for kind in (torch.int8, torch.uint8, torch.int16)], X),
    "clamps": f(lambda x, y: (x.clamp(min=0), x.clamp_max(0.5), torch.clamp(x, y - 1, y), torch.fmax(x, y)), X, Y),
    "prelu": m(nn.PReLU(4), IMAGE),
    "dropout": f(lambda x: F.dropout(x, 0.5, False) + F.hardtanh(x, -0.5, 2.0), X),
    "tril": f(lambda x: (torch.tril(x), torch.triu(x, 1), torch.tril(x, -2)), normal(6, 6)),
    "constants": f(
        lambda x: (x + torch.arange(7), x * torch.tensor([1.0, 2.0, 0.5, 4.0, -1.0, 0.0, 3.0]), x + torch.tensor(2)), X
    ),
    "half": f(lambda x, y: (x * y + x, (x.sum(-1, keepdim=True) / 7).sigmoid()), X.half(), Y.half()),
    "bfloat": f(lambda x: (F.softmax(x, -1), x.float(), x), X.bfloat16()),
    "in_place": f(lambda x: x.clone().mul_(2).add_(1).relu_(), X),
    "alias": f(lambda x: (x, x, x.t(), x + 1, x + 1), normal(3, 4)),
    "nested": f(lambda pair, table: (pair[0] + table["k"], pair[1] * 2), [X, Y], {"k": Y}),
    "baked": f(lambda x, k, y: x * k + y, X, 3, Y),
    "copysign": f(
        lambda x, s, a: (
            torch.copysign(x[0, 0, 0], s),
            torch.copysign(s, -2),
            torch.copysign(3 * s, -s),
            a.copysign(-0.0),
        ),
        X,
        torch.where(SPECIAL.isnan(), 1.0, SPECIAL),
        WHOLE,
    ),
    "sides": f(
        lambda x, a: (torch.signbit(x), torch.signbit(a), torch.angle(x), torch.angle(a), a.bool().signbit()),
        SPECIAL.abs() * torch.tensor([1.0, -1.0, -0.0]).repeat(SPECIAL.numel())[: SPECIAL.numel()].view_as(SPECIAL),
        WHOLE,
    ),
    "scalar": f(lambda x: (x.sum() + 1, x.mean() * x.max()), X),
}

COVARIANCES = {
    "cov": f(lambda x: (torch.cov(x), x.cov(correction=0), x[0].cov(), torch.cov(x, correction=3)), normal(5, 9)),
    "corrcoef": f(lambda x: (torch.corrcoef(x), x[0].corrcoef() * 2), normal(5, 9)),
}

# beside inputs of these types nothing would be rounded to them
ROUNDED = {"by_name": f(lambda x: ((x.half() * 3).float(), x.bfloat16().t().float() + 1), normal(5, 7))}

VIEWS = {
    "cat": f(lambda x, y: torch.cat([x, y * 2, x[:, 1:3]], 1) + 1, X, Y),
    "stack": f(lambda x, y: torch.stack([x, y, x + y], -1), X, Y),
    "slices": f(lambda x: (x[:, 1:5:2], x[..., -1], x[1], x[:, None] + 1, x[:, :, -3:].exp()), X),
    "permute": f(lambda x: (x.permute(2, 0, 1) * 2, x.transpose(1, 2).reshape(3, 35), x.mT), X),
    "reshape": f(lambda x: (x.reshape(15, 7) + 1, x.view(-1).exp(), x.reshape(5, 21).sum(1), x.reshape(7, 3, 5)), X),
    "regroup": f(lambda x: (x.view(2, 2, -1) - x.view(2, 2, -1).mean(-1, keepdim=True)).view(2, 4, 6, 6) * 2, IMAGE),
    "flatten": f(lambda x: F.relu(x.flatten(1)).sum(1), IMAGE),
    "expand": f(lambda x: x.expand(4, 3, 5).sum(0) + x.repeat(2, 1)[:3], normal(3, 5)),
    "flip": f(lambda x: (x.flip(1, 2), x.roll(2, 1), x.roll(3), torch.rot90(x, 1, [1, 2])), X),
    "split": f(lambda x: [part * k for k, part in enumerate((*x.split(2, 1), *x.chunk(2, 2), *x.unbind(0)), 1)], X),
    "pad": f(
        lambda x: (F.pad(x, (1, 2, 0, 3), value=1.5), F.pad(x + 1, (-1, 1)), F.pad(torch.ones(4), (1, 1)) + x), IMAGE
    ),
    "reflect": f(lambda x: F.pad(x, (1, 2), mode="reflect"), X),
    "eye": f(
        lambda x: (x + torch.eye(1, 7), x[0, :, :, None] + torch.eye(7, 300), torch.eye(x.shape[1], dtype=torch.bool)),
        X,
    ),
    "unfold": f(lambda x: (x.unfold(2, 3, 2).mean(-1), x.diagonal(0, 0, 1), torch.einsum("iij->ij", x[:, :3])), X),
    "shuffle": f(lambda x: (F.pixel_shuffle(x, 2), F.channel_shuffle(x, 2)), IMAGE),
    "strided": f(lambda x, y: x + y, normal(7, 5, 3).permute(2, 1, 0), normal(3, 1, 7).expand(3, 5, 7)),
    "buckets": f(
        lambda x, edges: (torch.bucketize(x, edges), torch.bucketize(x, edges, right=True)), X, torch.arange(-3.0, 3.0)
    ),
    "embedding": m(nn.Embedding(11, 6), integers(0, 11, 3, 4)),
    "bags": m(nn.EmbeddingBag(11, 6, mode="sum"), integers(0, 11, 3, 4)),
    "bags_mean": m(nn.EmbeddingBag(11, 6), integers(0, 11, 3, 4)),
    "bags_max": m(nn.EmbeddingBag(11, 6, mode="max"), integers(0, 11, 1, 4)),
    "bags_weighted": f(
        lambda i, w, p: F.embedding_bag(i, w, mode="sum", per_sample_weights=p),
        integers(0, 11, 3, 4),
        normal(11, 6),
        normal(3, 4),
    ),
    "bags_padded": f(
        lambda i, w: [F.embedding_bag(i, w, mode=mode, padding_idx=2) for mode in ("sum", "mean", "max")],
        torch.tensor([[2, 2, 2], [1, 2, 3], [0, 4, 4]]),
        normal(11, 6),
    ),
    "bags_at": f(
        lambda i, w: F.embedding_bag(i, w, torch.arange(0, 13, 4), include_last_offset=True),
        integers(0, 11, 12),
        normal(11, 6),
    ),
    "bags_of_any_length": f(
        lambda i, w, p, at: (
            *(F.embedding_bag(i, w, at, mode=mode) for mode in ("sum", "mean", "max")),
            *(F.embedding_bag(i, w, at.int(), mode=mode, padding_idx=2) for mode in ("sum", "mean", "max")),
            F.embedding_bag(i, w, at, mode="sum", per_sample_weights=p),
            F.embedding_bag(i, w, at, include_last_offset=True),
        ),
        integers(0, 5, 12),
        normal(5, 6),
        normal(12),
        torch.tensor([0, 3, 3, 9, 12]),
    ),
    "windows_in_memory": f(
        lambda x, y: (
            x.as_strided((4, 3), (3, 1), 1),
            x.as_strided((5, 2, 3), (2, 3, 1)),
            x.as_strided((2, 4), (0, 2)),
            y.as_strided((4, 4, 3), (6, 1, 1)),
            (y[2:] * 2).as_strided((3, 2), (4, 1)),
        ),
        normal(14),
        normal(4, 6),
    ),
    "fold": f(
        lambda x, y: (
            F.fold(x, (4, 5), 2),
            F.fold(y, (7, 6), (3, 2), dilation=(2, 1), padding=(1, 2), stride=(1, 3)),
            F.fold(F.unfold(x.view(2, 3, 4, 12), 3, padding=1, stride=2), (4, 12), 3, padding=1, stride=2),
        ),
        normal(2, 12, 12),
        normal(24, 15),
    ),
    "gather": f(
        lambda x, i: (x.gather(1, i), x.index_select(1, i[0, :, 0]), x[:, i[0, 0]], x[i[:, 0, 0]]),
        X,
        integers(0, 3, 3, 5, 7),
    ),
    "index": f(lambda x, i: (x[i[0], :, i[1]], x[:, i], x[-1 - i[0]]), X, integers(0, 3, 2, 4)),
    "assign": f(lambda x: torch.cat([x[:, :1] * 0, x[:, 1:]], 1).index_select(2, torch.tensor([3, 0, 1])), X),
    "upsample": f(lambda x: F.interpolate(x, scale_factor=2.0), IMAGE),
}

REDUCTIONS = {
    "add_rms_norm": m(AddRMSNorm(9), normal(4, 9), normal(4, 9, seed=3)),
    "softmax": f(lambda x: [F.softmax(x * 4, dim) for dim in range(3)], X),
    "log_softmax": f(lambda x: (F.log_softmax(x * 9, 1), F.softmin(x, 2), x.softmax(0)), X),
    "softmax_masked": f(lambda x: F.softmax(x.masked_fill(x < 0.5, float("-inf")), -1), normal(4, 3)),
    "logsumexp": f(
        lambda x: (x.logsumexp(1), x.logsumexp((0, 2), keepdim=True), torch.full_like(x, -torch.inf).logsumexp(1)), X
    ),
    "sums": f(lambda x: (x.sum(), x.sum(1), x.mean((0, 2)), x.sum((1, 2), keepdim=True), x.mean(-1, keepdim=True)), X),
    "extrema": f(lambda x: (x.amax(1), x.amin((0, 2)), x.max(), x.min(2, keepdim=True), x.max(0)), X),
    "arg": f(lambda x: (x.argmax(1), x.argmin(0, keepdim=True), x.argmax(), x.argmin()), X),
    "arg_ties": f(lambda x: (x.argmax(1), x.argmin(1), x.max(0)[1], x.float().argmax()), integers(0, 3, 5, 8)),
    "arg_nan": f(
        lambda x: (x.argmax(1), x.argmin(1), x.amax(1), x.max(1)[0]),
        torch.tensor([[1.0, torch.nan, 5.0], [3.0, 2.0, 3.0]]),
    ),
    "prod": f(lambda x: (x.prod(), x.prod(1), x.prod(2, keepdim=True)), X),
    "any": f(lambda x: ((x > 2).any(), (x > 1).any(1), (x > -1).all(2), (x > -1).all(), (x > 0).count_nonzero()), X),
    "norms": f(
        lambda x: (
            x.norm(),
            x.norm(dim=1),
            x.norm(p=1, dim=2),
            x.norm(p=torch.inf, dim=0),
            x.norm(p=3, dim=1),
            F.normalize(x, dim=2),
        ),
        X,
    ),
    "var": f(
        lambda x: (
            x.var(),
            x.var(1),
            x.std((1, 2)),
            x.var(0, unbiased=False),
            x.std(2, keepdim=True),
            *torch.var_mean(x, 1),
        ),
        X + 100,
    ),
    "integer_sums": f(lambda a: (a.sum(), a.sum(0), a.float().mean(1), a.prod(1), a.amax(0), a.max()), WHOLE),
    "layer_norm": m(nn.LayerNorm((5, 7)), X * 3 + 50),
    "layer_norm_plain": m(nn.LayerNorm(7, elementwise_affine=False), X),
    "rms_norm": m(nn.RMSNorm(7, eps=1e-5), X),
    "group_norm": m(nn.GroupNorm(2, 4), IMAGE),
    "instance_norm": m(nn.InstanceNorm2d(4, affine=True), IMAGE),
    "instance_norm_tracked": m(nn.InstanceNorm2d(4, affine=True, track_running_stats=True), IMAGE),
    "batch_norm": m(nn.BatchNorm2d(4), IMAGE),
    "batch_norm_rows": m(nn.BatchNorm1d(9), normal(5, 9)),
    "batch_norm_of_batch": m(nn.BatchNorm2d(4, track_running_stats=False), IMAGE),
    "cumsum": f(lambda x: (x.cumsum(1), x.cumsum(-1) * 2, x.flip(1).cumsum(1).flip(1)), X),
    "cumprod": f(lambda x, a: (x.cumprod(2), a.cumsum(0), (a > 0).cumsum(1)), X, WHOLE),
    "logcumsumexp": f(lambda x, s: (x.logcumsumexp(1), (60 * x).logcumsumexp(-1), s.logcumsumexp(0)), X, SPECIAL),
    "rrelu": f(lambda x: torch.nn.functional.rrelu(x, 0.1, 0.4), X),
    "distances": f(
        lambda x, y: (*(torch.cdist(x, y, p=p) for p in (0.0, 1.0, 2.0, 3.0, math.inf)),),
        normal(2, 5, 3),
        normal(2, 4, 3),
    ),
    "cummax": f(lambda x, s: (*x.cummax(1), *s.cummax(1)), X, SPECIAL),
    "cummin_ties": f(lambda a, b: (*a.cummin(0), *b.cummin(-1)), WHOLE, integers(0, 3, 4, 9)),
    "cumsum_exclusive": f(lambda x: torch.cat((torch.zeros_like(x[:, :1]), x), 1)[:, :-1].cumsum(1), X),
}

TIED = integers(0, 3, 4, 9)
ORDERS = {
    "sort": f(lambda x: (*x.sort(1), *x.sort(0, descending=True), x.argsort(), torch.msort(x)), X),
    "sort_ties": f(
        lambda a, x: (
            *a.sort(stable=True),
            *a.sort(stable=True, dim=0, descending=True),
            *x.sort(dim=1, stable=True),
            *(a > 1).sort(stable=True),
        ),
        TIED,
        SPECIAL,
    ),
    "quantiles": f(
        lambda x, y: (
            torch.quantile(x, 0.9, dim=-1),
            x.quantile(0.25, 1, keepdim=True),
            x.quantile(0.0, 0),
            x.quantile(1.0, 0),
            y[:, 2:].quantile(0.5, 1),
        ),
        X,
        torch.cat([SPECIAL[:, :3], SPECIAL.flip(0)], 1),
    ),
    "topk": f(lambda x: (*x.topk(3), *x.topk(2, 1, largest=False), *x.topk(1, 0), *x.sum().topk(1)), X),
    "few_of_many": f(
        lambda x, y, z: (
            *x.topk(3),
            *x.topk(16, largest=False),
            *x.topk(40),
            *x.kthvalue(5),
            *x.T.topk(2, 0, largest=False),
            y.topk(2)[0],
            y.topk(3, 0, largest=False)[0],
            y.kthvalue(2, keepdim=True)[0],
            z.topk(16, largest=False)[0],
            z.topk(16)[0],
        ),
        normal(2, 600),
        integers(-3, 3, 700),
        torch.cat([torch.full((1, 510), torch.nan), SPECIAL.view(1, 10)], 1),
    ),
    "topk_ties": f(
        lambda a, x: (a.topk(4)[0], a.topk(2, 0)[0], x.topk(2)[0], x.topk(2, largest=False)[0]), TIED, SPECIAL
    ),
    "kthvalue": f(lambda x, a: (*x.kthvalue(2), *x.kthvalue(4, 1, keepdim=True), a.kthvalue(3)[0]), X, TIED),
    "median": f(lambda x: (x.median(), *x.median(1), *x.median(2, keepdim=True), x[:, :4].median(1)[0]), X),
    "median_ties": f(
        lambda a, x: (a.median(), a.median(1)[0], *x.median(1), x.median(0)[0], x.median()), TIED, SPECIAL
    ),
    "median_scalar": f(lambda x: (x.sum().median(), *x.sum().sort(), *x.sum().median(0)), X),
}

CLASSES = integers(0, 7, 6)
LOSSES = {
    "mse": f(lambda x, y: (F.mse_loss(x, y), F.l1_loss(x, y), F.mse_loss(x, y, reduction="sum")), X, Y),
    "huber": f(
        lambda x, y: (F.smooth_l1_loss(x, y), F.huber_loss(x, y, delta=0.7), F.smooth_l1_loss(x, y, beta=0.5)), X, Y
    ),
    "log_likelihood": f(
        lambda x, y: (
            torch.distributions.Normal(x, y.exp()).log_prob(x * y),
            torch.distributions.Categorical(logits=x).entropy(),
        ),
        X,
        Y,
    ),
    "gaussian_nll": f(
        lambda x, y: (
            F.gaussian_nll_loss(x, y, y.square() + 0.1, reduction="none"),
            F.gaussian_nll_loss(x, y, 0.5, full=True),
            F.gaussian_nll_loss(x, y, y[..., 0].square(), eps=0.3, reduction="sum"),
        ),
        X,
        Y,
    ),
    "cross_entropy": f(
        lambda x, c: (F.cross_entropy(x, c), F.cross_entropy(x, c, reduction="none")), normal(6, 7), CLASSES
    ),
    "smoothed": f(lambda x, c: F.cross_entropy(x, c, label_smoothing=0.1), normal(6, 7), CLASSES),
    "soft_targets": f(lambda x, y: F.cross_entropy(x, y.softmax(-1)), normal(6, 7), normal(6, 7)),
    "nll": f(lambda x, c: F.nll_loss(x.log_softmax(-1), c), normal(6, 7), CLASSES),
    "kl_div": f(
        lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
        normal(6, 7),
        normal(6, 7, seed=2),
    ),
    "bce": f(
        lambda x, y: (F.binary_cross_entropy_with_logits(x, y), F.binary_cross_entropy(x.sigmoid(), y)), X, Y.sigmoid()
    ),
    "hinge": f(lambda x, y: torch.clamp(1 - x * y.sign(), min=0).mean() + F.soft_margin_loss(x, y.sign()), X, Y),
    "hinge_embedding": f(lambda x, y: F.hinge_embedding_loss(x, y.sign()), X, Y),
    "cosine": f(
        lambda x, y: (F.cosine_similarity(x, y, dim=1), F.cosine_embedding_loss(x[0], y[0], torch.ones(5))), X, Y
    ),
    "triplet": f(
        lambda x, y, z: F.triplet_margin_loss(x, y, z), normal(4, 9), normal(4, 9, seed=2), normal(4, 9, seed=3)
    ),
    "margin": f(lambda x, y, t: F.margin_ranking_loss(x, y, t.sign(), margin=0.3), X, Y, X * Y),
}

Q = normal(2, 3, 5, 4)
CONTRACTIONS = {
    "matmul": f(lambda x, y: x @ y, normal(5, 7), normal(7, 3)),
    "batched": f(lambda x, y: (torch.bmm(x, y), x @ y[0], x[0] @ y, x @ y[0, :, 0]), normal(3, 5, 7), normal(3, 7, 2)),
    "transposed": f(
        lambda x, y: (x.T @ y.T, torch.outer(x[0], y[0]), torch.dot(x[:, 0], y[0, :7])), normal(7, 5), normal(3, 7)
    ),
    "linear": m(nn.Sequential(nn.Linear(7, 4), nn.GELU(), nn.Linear(4, 2, bias=False)), X),
    "addmm": f(
        lambda c, x, y: (torch.addmm(c, x, y, beta=0.5, alpha=2), torch.baddbmm(c[None], x[None], y[None])),
        normal(5, 3),
        normal(5, 7),
        normal(7, 3),
    ),
    "einsum": f(
        lambda x, y: (
            torch.einsum("bij,bkj->bik", x, y),
            torch.einsum("...ij,jk", x, y[0].T),
            torch.einsum("bij->j", x),
        ),
        X,
        Y,
    ),
    "bilinear": m(nn.Bilinear(3, 4, 5), normal(6, 3), normal(6, 4)),
    "einsum_three": f(lambda x, y, z: torch.einsum("ij,jk,kl->il", x, y, z), normal(3, 4), normal(4, 5), normal(5, 2)),
    "flat_linear": m(nn.Sequential(nn.Conv2d(4, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 5)), IMAGE),
    "conv1d": m(nn.Conv1d(5, 4, 3, stride=2, padding=1), X),
    "conv2d": m(nn.Conv2d(4, 6, 3, padding=1), IMAGE),
    "conv2d_strided": m(nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), bias=False), IMAGE),
    "conv2d_grouped": m(nn.Conv2d(4, 6, 3, groups=2, padding="same"), IMAGE),
    "conv2d_depthwise": m(nn.Conv2d(4, 8, 3, groups=4), IMAGE),
    "conv3d": m(nn.Conv3d(2, 3, 2, stride=2), normal(1, 2, 5, 4, 4)),
    "conv_transpose1d": m(nn.ConvTranspose1d(5, 3, 4, stride=3, padding=1, output_padding=1), X),
    "conv_transpose2d": m(nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2, dilation=2), IMAGE),
    "conv_transpose3d": m(nn.ConvTranspose3d(2, 3, 2), normal(1, 2, 3, 3, 3)),
    "max_pool": f(
        lambda x: (F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 2, dilation=2), F.max_pool2d(x, 4, 3, ceil_mode=True)),
        IMAGE - 5,
    ),
    "max_pool_indices": f(lambda x: (*F.max_pool2d(x, 3, 2, 1, return_indices=True), F.max_pool1d(x[0], 3)), IMAGE),
    "avg_pool": f(
        lambda x: (
            F.avg_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            F.avg_pool2d(x, 4, 3, 1, ceil_mode=True),
            F.avg_pool2d(x, 2, divisor_override=3),
        ),
        IMAGE,
    ),
    "pool_1_and_3": f(
        lambda x, y: (F.avg_pool1d(x, 2), F.max_pool3d(y, 2), F.avg_pool3d(y, 2)), X, normal(1, 2, 4, 4, 4)
    ),
    "adaptive": f(
        lambda x: (
            F.adaptive_avg_pool2d(x, 1),
            F.adaptive_avg_pool2d(x, (4, 3)),
            F.adaptive_max_pool2d(x, (4, 2)),
            F.adaptive_avg_pool1d(x[0], 4),
        ),
        IMAGE,
    ),
    "attention": f(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), Q, normal(2, 3, 6, 4), normal(2, 3, 6, 2)),
    "causal": f(lambda q: F.scaled_dot_product_attention(q, q * 0.5, q + 1, is_causal=True, scale=0.3), Q),
    "masked": f(
        lambda q, k: (
            F.scaled_dot_product_attention(q, q, q, attn_mask=k > 0.8),
            F.scaled_dot_product_attention(q, q, q, attn_mask=k),
        ),
        Q,
        normal(5, 5),
    ),
    "grouped_heads": f(
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), normal(2, 4, 5, 4), normal(2, 2, 5, 4)
    ),
    "whole_products": f(torch._int_mm, integers(-128, 127, 18, 8).char(), integers(-128, 127, 8, 16).char()),
    "encoder": m(
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True), 1),
        normal(2, 5, 8),
        nn.Transformer.generate_square_subsequent_mask(5),
    ),
    "decoder": m(
        nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 12, 0.0, batch_first=True), 1),
        normal(2, 5, 8),
        normal(2, 3, 8),
        normal(5, 5),
    ),
    "multihead": m(nn.MultiheadAttention(8, 2, batch_first=True), *[normal(2, 5, 8)] * 3),
}


@pytest.mark.parametrize(
    "family", ["POINTWISE", "ROUNDED", "COVARIANCES", "VIEWS", "REDUCTIONS", "ORDERS", "LOSSES", "CONTRACTIONS"]
)
def test_agrees_with_torch(family: str, check_naive: Callable[[Any], None]) -> None:
    check_naive(globals()[family])


@pytest.mark.parametrize("other", [normal(3, 5), normal(4, 3).t(), normal(3, 4).double()])
def test_outside_its_domain_nothing_is_written(other: torch.Tensor, naive_status: Callable[..., Any]) -> None:
    status, (out,) = naive_status(nn.Softmax(-1), [normal(3, 4)], [other])
    assert status == 1
    assert out.isnan().all()
