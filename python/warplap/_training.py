"""attention where gradients are wanted: forward and backward by torch.

A backward pass without a matrix of scores needs what its own forward pass keeps. Running forward twice costs more than any
forward pass here gains, so both are torch's; gradients of gradients, which torch's fused passes do not have, come from the
scores.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor

from . import _sdpa

# Gradients from the scores: of the context, and of what came in and went out.
FromScores = Callable[..., tuple[Any, ...]]


def wanted(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """Whether a call is one of these: no mask, whose rows may be masked whole, and no tracing."""
    if mask is not None or not torch.is_grad_enabled() or not (q.requires_grad or k.requires_grad or v.requires_grad):
        return False
    plain = all(type(t) in (Tensor, torch.nn.Parameter) for t in (q, k, v))
    return plain and not torch.compiler.is_compiling() and not torch._C._functorch.peek_interpreter_stack()


def attend(q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float, from_scores: FromScores) -> Tensor:
    """softmax(scale · Q·Kᵀ) · V with its gradients."""
    # Checkpoints and offloading take over what a graph keeps: then torch's own graph must be the outer one.
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        return _sdpa.default(q, k, v, None, causal=is_causal, scale=scale, gqa=q.shape[1] != k.shape[1])
    return Trained.apply(q, k, v, is_causal, scale, from_scores)  # type: ignore[no-any-return]


class Trained(torch.autograd.Function):
    """softmax(scale · Q·Kᵀ) · V with torch's own graph kept inside."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float, from_scores: FromScores
    ) -> Tensor:
        ctx.is_causal, ctx.scale, ctx.from_scores = is_causal, scale, from_scores
        ctx.inner = _run(q, k, v, is_causal, scale)
        out = ctx.inner[0].detach()
        ctx.save_for_backward(q, k, v, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        q, k, v, out = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *ctx.from_scores(ctx, grad, q, k, v, None, out)[:3], None, None, None
        # What was kept is let go of as early as torch would. Who asks a second time has it computed once more.
        inner, leaves = ctx.inner or _run(q, k, v, ctx.is_causal, ctx.scale)
        ctx.inner = None
        return *torch.autograd.grad(inner, leaves, grad), None, None, None


def _run(q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float) -> tuple[Tensor, list[Tensor]]:
    """torch's forward pass, with its graph, and the leaves of it."""
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in (q, k, v)]
        return _sdpa.default(*leaves, None, causal=is_causal, scale=scale, gqa=q.shape[1] != k.shape[1]), leaves
