"""Functions of torch that look at values only to refuse or warn of some, without that: so they can be traced."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

from evoforge.errors import UnsupportedError

__all__ = ["unchecked"]


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """While active, such functions are plain formulas, and autocast is refused: the reference is not rounded by it."""
    import torch

    replaced: list[tuple[Any, str, Any]] = [
        (torch.nn.functional, "gaussian_nll_loss", _gaussian_nll_loss),
        (torch.nn.modules.transformer, "_detect_is_causal_mask", _is_causal),
        (torch.distributions.Distribution, "_validate_args", False),
        (torch.autocast, "__enter__", _no_autocast(torch.autocast.__enter__)),
    ]
    for owner in (torch, torch.Tensor):
        replaced += [(owner, "cov", _cov(owner.cov)), (owner, "corrcoef", _corrcoef)]
        replaced.append((owner, "quantile", _quantile(owner.quantile)))
    before = [getattr(owner, name) for owner, name, _ in replaced]
    try:
        for owner, name, plain in replaced:
            setattr(owner, name, plain)
        yield
    finally:
        for (owner, name, _), checked in zip(replaced, before, strict=True):
            setattr(owner, name, checked)


def _no_autocast(enter: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(self: Any) -> Any:
        if self._enabled:
            raise UnsupportedError(
                "expected a forward that names the types it computes in, got torch.autocast, which chooses them for "
                "every operator; convert tensors with .to() instead"
            )
        return enter(self)

    return refuse


def _cov(checked: Callable[..., Any]) -> Callable[..., Any]:
    """torch's formula where no weights are given."""

    def cov(input: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
        if fweights is not None or aweights is not None:
            return checked(input, correction=correction, fweights=fweights, aweights=aweights)
        rows = input if input.ndim == 2 else input.reshape(1, -1)
        apart = rows - rows.mean(1, keepdim=True)
        return ((apart @ apart.T) / max(rows.shape[1] - correction, 0)).squeeze()

    return cov


def _corrcoef(input: Any) -> Any:
    made = input.cov()
    if made.ndim == 0:
        return made / made
    size = made.diagonal().sqrt()
    return (made / size[:, None] / size[None, :]).clip(-1, 1)


def _is_causal(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
    """A mask is applied as it is given, whether or not it is a causal one."""
    return is_causal is True


def _quantile(checked: Callable[..., Any]) -> Callable[..., Any]:
    """torch's formula for one number: between two neighbours in order, NaN where there is one."""
    import torch

    def quantile(input: Any, q: Any, dim: int | None = None, keepdim: bool = False, **options: Any) -> Any:
        if not isinstance(q, float) or not 0 <= q <= 1 or dim is None or not input.ndim or options:
            return checked(input, q, dim, keepdim, **options)
        place = q * (input.shape[dim] - 1)
        below, above = (input.kthvalue(k + 1, dim, keepdim).values for k in (math.floor(place), math.ceil(place)))
        return torch.where(input.isnan().any(dim, keepdim), math.nan, below.lerp(above, place - math.floor(place)))

    return quantile


def _gaussian_nll_loss(
    input: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Any:
    """torch's formula: half of ln max(var, eps) + (input − target)² / max(var, eps), and of ln 2π where `full`."""
    import torch

    var = torch.full_like(input, var) if isinstance(var, float) else var
    if var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    var = var.clamp(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    loss = loss + 0.5 * math.log(2 * math.pi) if full else loss
    return {"mean": loss.mean, "sum": loss.sum}.get(reduction, lambda: loss)()
