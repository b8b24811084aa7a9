"""torch's fused attention operators as candidates of training: forward passes that leave log-sum-exps, and backward passes
that begin with them."""

from __future__ import annotations

import functools
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ._facts import fields
from ._sdpa import Fit, _cudnn_fits, _efficient_fits, _flash_fits, bends

_aten = torch.ops.aten

Gradients = tuple[Tensor, Tensor, Tensor]

# The efficient kernels have log-sum-exps in rows of whole thirty-twos.
_PADDED = 32


@functools.lru_cache(maxsize=64)
def _no_dropout(device: torch.device) -> tuple[Tensor, Tensor]:
    """A seed and an offset that nobody reads."""
    return torch.zeros(2, dtype=torch.uint64, device=device), torch.zeros((), dtype=torch.uint64, device=device)


def _by_flash(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool, scale: float, gqa: bool
) -> tuple[Tensor, Tensor]:
    out, lse = _aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False, scale=scale)[:2]
    return out, lse[..., : q.shape[2]]


def _of_flash(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, out: Tensor, lse: Tensor, grad: Tensor,
    *, causal: bool, scale: float, gqa: bool,
) -> Gradients:  # fmt: skip
    found: Gradients = _aten._scaled_dot_product_flash_attention_backward(
        grad, q, k, v, out, lse, None, None, q.shape[2], k.shape[2], 0.0, causal, *_no_dropout(q.device), scale=scale
    )[:3]
    return found


def _by_cudnn(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool, scale: float, gqa: bool
) -> tuple[Tensor, Tensor]:
    found = _aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal, False, scale=scale)
    return found[0], found[1].squeeze(-1)


def _of_cudnn(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, out: Tensor, lse: Tensor, grad: Tensor,
    *, causal: bool, scale: float, gqa: bool,
) -> Gradients:  # fmt: skip
    found: Gradients = _aten._scaled_dot_product_cudnn_attention_backward(
        grad, q, k, v, out, lse.unsqueeze(-1), *_no_dropout(q.device), None, None, None,
        q.shape[2], k.shape[2], 0.0, causal, scale=scale,
    )[:3]  # fmt: skip
    return found


def _by_efficient(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool, scale: float, gqa: bool
) -> tuple[Tensor, Tensor]:
    found = _aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, causal, scale=scale)
    return found[0], found[1][..., : q.shape[2]]


def _of_efficient(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, out: Tensor, lse: Tensor, grad: Tensor,
    *, causal: bool, scale: float, gqa: bool,
) -> Gradients:  # fmt: skip
    short = -q.shape[2] % _PADDED
    lse = F.pad(lse, (0, short)) if short else lse
    found: Gradients = _aten._scaled_dot_product_efficient_attention_backward(
        grad, q, k, v, None, out, lse, *_no_dropout(q.device), 0.0, [True, True, True, False], causal, scale=scale
    )[:3]
    return found


def _by_cpu(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool, scale: float, gqa: bool
) -> tuple[Tensor, Tensor]:
    out, lse = _aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, scale=scale)
    return out, lse


def _of_cpu(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, out: Tensor, lse: Tensor, grad: Tensor,
    *, causal: bool, scale: float, gqa: bool,
) -> Gradients:  # fmt: skip
    found: Gradients = _aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad, q, k, v, out, lse, 0.0, causal, scale=scale
    )
    return found


def _plain(problem: str) -> str | None:
    """Why none of them is asked, if so: rows that a mask hides whole, and what scores are not multiplied with."""
    given = fields(problem)
    if "mask" in given:
        return "it takes no mask here"
    return "heads of keys and values must be of one size" if "dv" in given else bends(problem)


def _fit(fits: Fit | None, sums: bool) -> Fit:
    def fit(problem: str) -> str | None:
        if sums and "lse" not in fields(problem):
            return "without log-sum-exps torch's own call races"
        return _plain(problem) or (None if fits is None else fits(problem))

    return fit


def _cpu_fits(problem: str) -> str | None:
    return "every head of q needs its own of k and v" if "hkv" in fields(problem) else None


# Name, device, forward, backward, and why it stands aside.
FUSED: list[tuple[str, str, Callable[..., Any], Callable[..., Any], Fit, Fit]] = [
    (f"torch_{name}", device, by, of, _fit(fits, True), _fit(fits, False))
    for name, device, by, of, fits in (
        ("flash_lse", "cpu", _by_cpu, _of_cpu, _cpu_fits),
        ("flash_lse", "cuda", _by_flash, _of_flash, _flash_fits),
        ("cudnn_lse", "cuda", _by_cudnn, _of_cudnn, _cudnn_fits),
        ("efficient_lse", "cuda", _by_efficient, _of_efficient, _efficient_fits),
    )
]
