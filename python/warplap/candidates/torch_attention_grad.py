"""torch's fused attention operators as candidates of training: forward passes that leave log-sum-exps, and backward
passes that begin with them."""

from __future__ import annotations

import functools
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ..operator.candidate import Candidate
from ..operator.problem_text import fields, of_attention
from .torch_attention import Fit, _cudnn_fits, _efficient_fits, _flash_fits, unknown_fields

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
    result: Gradients = _aten._scaled_dot_product_flash_attention_backward(
        grad, q, k, v, out, lse, None, None, q.shape[2], k.shape[2], 0.0, causal, *_no_dropout(q.device), scale=scale
    )[:3]
    return result


def _by_cudnn(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool, scale: float, gqa: bool
) -> tuple[Tensor, Tensor]:
    result = _aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal, False, scale=scale)
    return result[0], result[1].squeeze(-1)


def _of_cudnn(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, out: Tensor, lse: Tensor, grad: Tensor,
    *, causal: bool, scale: float, gqa: bool,
) -> Gradients:  # fmt: skip
    result: Gradients = _aten._scaled_dot_product_cudnn_attention_backward(
        grad, q, k, v, out, lse.unsqueeze(-1), *_no_dropout(q.device), None, None, None,
        q.shape[2], k.shape[2], 0.0, causal, scale=scale,
    )[:3]  # fmt: skip
    return result


def _by_efficient(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool, scale: float, gqa: bool
) -> tuple[Tensor, Tensor]:
    result = _aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, causal, scale=scale)
    return result[0], result[1][..., : q.shape[2]]


def _of_efficient(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, out: Tensor, lse: Tensor, grad: Tensor,
    *, causal: bool, scale: float, gqa: bool,
) -> Gradients:  # fmt: skip
    short = -q.shape[2] % _PADDED
    lse = F.pad(lse, (0, short)) if short else lse
    result: Gradients = _aten._scaled_dot_product_efficient_attention_backward(
        grad, q, k, v, None, out, lse, *_no_dropout(q.device), 0.0, [True, True, True, False], causal, scale=scale
    )[:3]
    return result


def _by_cpu(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool, scale: float, gqa: bool
) -> tuple[Tensor, Tensor]:
    out, lse = _aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, scale=scale)
    return out, lse


def _of_cpu(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, out: Tensor, lse: Tensor, grad: Tensor,
    *, causal: bool, scale: float, gqa: bool,
) -> Gradients:  # fmt: skip
    result: Gradients = _aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad, q, k, v, out, lse, 0.0, causal, scale=scale
    )
    return result


def of_mask(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, out: Tensor, lse: Tensor, grad: Tensor, *more: Any,
    causal: bool, scale: float, gqa: bool,
) -> Tensor:  # fmt: skip
    """The gradient of a mask head by head in float32: no more than a few matrices of one head are there at a time."""
    (batches, heads, sq, _), sk, group = q.shape, k.shape[2], q.shape[1] // k.shape[1]
    four = mask if mask.ndim == 4 else mask[None, None]
    sums = torch.zeros(four.shape, dtype=torch.float32, device=q.device)
    deltas = (grad.float() * out.float()).sum(-1, keepdim=True)
    known = torch.where(lse == float("-inf"), -lse, lse)[..., None]  # weights of a query that sees nothing are zeros
    hidden = torch.ones(sq, sk, dtype=torch.bool, device=q.device).triu(1) if causal else None
    for b in range(batches):
        for h in range(heads):
            at, key = (b % four.shape[0], h % four.shape[1]), (b, h // group)
            weights = torch.matmul(q[b, h].float() * scale, k[key].float().T)
            weights = weights.add_(four[at]).sub_(known[b, h]).exp_()
            if hidden is not None:
                weights = weights.masked_fill_(hidden, 0.0)
            sums[at].add_(weights.mul_(torch.matmul(grad[b, h].float(), v[key].float().T).sub_(deltas[b, h])))
    return sums.to(mask.dtype).reshape(mask.shape)


def _plain(problem: str) -> str | None:
    """Why none of them is asked, if so: rows that a mask hides whole, and what scores are not multiplied with."""
    inputs = fields(problem)
    if "mask" in inputs:
        return "it takes no mask here"
    return "heads of keys and values must be of one size" if "dv" in inputs else unknown_fields(problem)


def _fit(fits: Fit, sums: bool) -> Fit:
    def fit(problem: str) -> str | None:
        if sums and "lse" not in fields(problem):
            return "without log-sum-exps torch's own call races"
        return _plain(problem) or fits(problem)

    return fit


def _cpu_fits(problem: str) -> str | None:
    return "every head of q needs its own of k and v" if "hkv" in fields(problem) else None


def _pair(name: str, device: str, by: Callable[..., Any], of: Callable[..., Any], fits: Fit) -> list[Candidate]:
    """A forward pass that leaves log-sum-exps, and the backward pass that begins with them."""
    forward = Candidate(
        "attention", f"torch_{name}_lse", by, _fit(fits, True), devices=(device,), facts=of_attention, returns=True
    )
    grad = forward._replace(op="attention_grad", name=f"torch_{name}_grad", call=of, fit=_fit(fits, False))
    return [forward, grad]


FUSED = [
    *_pair("flash", "cpu", _by_cpu, _of_cpu, _cpu_fits),
    *_pair("flash", "cuda", _by_flash, _of_flash, _flash_fits),
    *_pair("cudnn", "cuda", _by_cudnn, _of_cudnn, _cudnn_fits),
    *_pair("efficient", "cuda", _by_efficient, _of_efficient, _efficient_fits),
]
OF_MASK = Candidate(
    "attention_mask_grad", "torch_mask_grad", of_mask, unknown_fields, facts=of_attention, returns=True
)
