"""attention where gradients are wanted: torch's own call and its own graph.

A backward pass without a matrix of scores needs what its own forward pass keeps. Running forward twice costs more than
any forward pass here gains, so both are torch's. Its fused passes have no gradients of gradients; who asks for those
gets them from the scores: a hook on torch's node answers in its place.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ._library import FLOATS
from ._nodes import PLAIN, casts, modes, transform

_keeps = torch.is_grad_enabled
_node = torch._C._current_autograd_node

# Gradients from the scores: of the context, and of what came in and went out.
FromScores = Callable[..., tuple[Any, ...]]

# torch's nodes that have no second derivative.
_FUSED = frozenset(
    getattr(torch._C._functions, f"ScaledDotProduct{kind}Backward0", None)
    for kind in ("FlashAttentionForCpu", "FlashAttention", "EfficientAttention", "CudnnAttention")
) - {None}
_SLICE = getattr(torch._C._functions, "SliceBackward0", None)


def wanted(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """Whether a call is one of these: no mask, whose rows may be masked whole, and no tracing."""
    if mask is not None or not _keeps() or not (q.requires_grad or k.requires_grad or v.requires_grad):
        return False
    plain = all(type(t) in PLAIN for t in (q, k, v))
    return plain and not torch.compiler.is_compiling() and transform() is None


class Training:
    """attention where gradients are wanted; ``from_scores`` gives gradients that have gradients."""

    def __init__(self, from_scores: FromScores) -> None:
        def again(into: tuple[Tensor | None, ...], along: tuple[Tensor, ...]) -> tuple[Tensor | None, ...] | None:
            """What torch's node gave, or the same in a form that has gradients where somebody wants those."""
            if not _keeps():
                return None
            # Asked of the node itself: a hook that kept tensors would keep them beyond a backward pass.
            kept: Any = _node()
            q, k, v = kept._saved_query, kept._saved_key, kept._saved_value
            scale = q.shape[-1] ** -0.5 if kept._saved_scale is None else kept._saved_scale
            facts = SimpleNamespace(is_causal=kept._saved_is_causal, scale=scale)
            found = from_scores(facts, along[0], q, k, v, None, kept._saved_output)[:3]
            return *(new if old is not None else None for old, new in zip(into, found)), *into[3:]

        self._again = again

    def attend(self, q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float | None, gqa: bool) -> Tensor:
        """softmax(scale · Q·Kᵀ) · V of four dimensions, with its gradients."""
        if scale is None and not gqa:  # arguments by name cost too
            out = F.scaled_dot_product_attention(q, k, v, None, 0.0, is_causal)
        else:
            out = F.scaled_dot_product_attention(q, k, v, None, 0.0, is_causal, scale=scale, enable_gqa=gqa)
        node: Any = out.grad_fn
        if type(node) is _SLICE:  # of heads that were padded
            node = node.next_functions[0][0]
        if type(node) in _FUSED:
            node.register_hook(self._again)
        return out

    def direct(self, q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float | None, gqa: bool) -> Tensor | None:
        """The same of plain tensors that belong together; None where it is not for this way to compute."""
        if not ((q.requires_grad or k.requires_grad or v.requires_grad) and _keeps()):
            return None
        kind, size = q.dtype, q.shape
        if not (kind in FLOATS and kind == k.dtype == v.dtype and len(size) == 4 and 0 not in size):
            return None
        if not (k.shape == size == v.shape or _belong(size, k.shape, v.shape, gqa)):
            return None
        if modes() or casts() or transform() is not None:
            return None
        try:
            return self.attend(q, k, v, is_causal, scale, gqa)
        except RuntimeError:  # what is wrong is said in our words on the general way
            return None


def _belong(q: torch.Size, k: torch.Size, v: torch.Size, gqa: bool) -> bool:
    """Whether keys and values of these sizes are some for such queries."""
    if len(k) != 4 or k[:3] != v[:3] or (k[0], k[3]) != (q[0], q[3]) or 0 in k or 0 in v:
        return False
    return q[1] == k[1] or (gqa and q[1] % k[1] == 0)
