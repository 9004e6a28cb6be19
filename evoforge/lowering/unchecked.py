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

    replaced: list[tuple[Any, str, Callable[..., Any]]] = [
        (torch.nn.functional, "gaussian_nll_loss", _gaussian_nll_loss),
        (torch.autocast, "__enter__", _no_autocast(torch.autocast.__enter__)),
    ]
    for owner in (torch, torch.Tensor):
        replaced += [(owner, "cov", _cov(owner.cov)), (owner, "corrcoef", _corrcoef)]
    before = [getattr(owner, name) for owner, name, _ in replaced]
    try:
        for owner, name, function in replaced:
            setattr(owner, name, function)
        yield
    finally:
        for (owner, name, _), function in zip(replaced, before, strict=True):
            setattr(owner, name, function)


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
