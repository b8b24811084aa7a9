"""attention where gradients are wanted: our forward and backward kernels as one node of torch's graph, or torch's own.

Forward keeps the log-sum-exps of the scores, backward begins with them, and nobody holds a matrix of scores. The whole
step meets torch's own function once a key (``_steps``), and who wins answers. Neither has gradients of gradients; who
asks for those gets them from the scores.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Callable

from ... import _warplap
from ...operator.call.eager import PLAIN, is_watched, transform
from ...operator.call.fallback import kernel_or_none
from ...operator.checks import FLOATS, ordinary
from ...operator.declare import make_node
from ...operator.optional_torch import F, Tensor, torch
from ...training.steps import Call, Steps
from .calls import backward, forward, kernel_inputs, order_of

# Gradients from the scores: of the context, and of what came in and went out.
FromScores = Callable[..., tuple[Any, ...]]

# torch's nodes that have no second derivative.
_FUSED: frozenset[Any] = frozenset()
_SLICE: Any = None
if torch is not None:
    _FUSED = frozenset(
        getattr(torch._C._functions, f"ScaledDotProduct{kind}Backward0", None)
        for kind in ("FlashAttentionForCpu", "FlashAttention", "EfficientAttention", "CudnnAttention")
    ) - {None}
    _SLICE = getattr(torch._C._functions, "SliceBackward0", None)


def wanted(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """Whether a call is one of these: gradients of plain tensors, none of the mask, and no tracing."""
    if not torch.is_grad_enabled() or not (q.requires_grad or k.requires_grad or v.requires_grad):
        return False
    plain = all(type(t) in PLAIN for t in (q, k, v)) and (mask is None or not mask.requires_grad)
    return plain and not torch.compiler.is_compiling() and transform() is None


class Training:
    """attention where gradients are wanted; ``from_scores`` gives gradients that have gradients."""

    def __init__(self, from_scores: FromScores) -> None:
        def again(into: tuple[Tensor | None, ...], along: tuple[Tensor, ...]) -> tuple[Tensor | None, ...] | None:
            """What torch's node gave, or the same in a form that has gradients where somebody wants those."""
            if not torch.is_grad_enabled():
                return None
            # Asked of the node itself: a hook that kept tensors would keep them beyond a backward pass.
            kept: Any = torch._C._current_autograd_node()
            q, k, v = kept._saved_query, kept._saved_key, kept._saved_value
            scale = q.shape[-1] ** -0.5 if kept._saved_scale is None else kept._saved_scale
            facts = SimpleNamespace(is_causal=kept._saved_is_causal, scale=scale)
            result = from_scores(facts, along[0], q, k, v, None, kept._saved_output)[:3]
            return *(new if old is not None else None for old, new in zip(into, result)), *into[3:]

        def run_forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *facts: Any) -> Tensor:
            problem = facts[0]
            out, lse = forward(problem, q, k, v, mask)
            ctx.save_for_backward(q, k, v, mask, out, lse)
            ctx.facts = facts
            return out

        def run_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
            q, k, v, mask, out, lse = ctx.saved_tensors
            problem, is_causal, scale = ctx.facts
            if torch.is_grad_enabled():
                facts = SimpleNamespace(is_causal=is_causal, scale=scale, needs_input_grad=ctx.needs_input_grad)
                result = from_scores(facts, grad, q, k, v, mask, out)[:3]
            else:
                result = backward(problem, grad, q, k, v, mask, out, lse)
            needs = ctx.needs_input_grad
            return *(g if need else None for g, need in zip(result, needs)), None, None, None, None

        self._again, self._node = again, make_node("attention", run_forward, run_backward)
        self._steps = Steps("train_attention", "qkv", theirs=self.attend)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float | None, gqa: bool) -> Tensor:
        """softmax(scale · Q·Kᵀ) · V of four dimensions by torch, with its gradients."""
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

    def masked(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, is_causal: bool, scale: float) -> Tensor | None:
        """The same with a matrix that is added for all heads alike, by our kernels; None where that is none of
        theirs."""
        if mask.ndim != 2 or not ordinary(q, k, v) or max(q.shape[3], v.shape[3]) > 1024 or is_watched():
            return None
        q, k, v, added = kernel_inputs(q, k, v, mask)

        def by_kernel() -> Tensor:
            problem = _warplap.attention_problem(q.detach(), k.detach(), v.detach(), added, is_causal, scale)
            return self._node(q, k, v, added, problem, is_causal, scale)  # type: ignore[no-any-return]

        return kernel_or_none(by_kernel)

    def direct(self, q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float | None, gqa: bool) -> Tensor | None:
        """The same of plain tensors that belong together by whoever won the step; None where it is not for this way to
        compute."""
        result: Tensor | None = self._steps.direct((q, k, v), (is_causal, scale, gqa), self._choose)
        return result

    def _choose(
        self, q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float | None, gqa: bool
    ) -> Call | None:
        kind, size = q.dtype, q.shape
        if not (kind in FLOATS and kind == k.dtype == v.dtype and len(size) == 4 and 0 not in size):
            return None
        if not (k.shape == size == v.shape or _belong(size, k.shape, v.shape, gqa)):
            return None
        factor = size[3] ** -0.5 if scale is None else scale
        theirs: Call = lambda q, k, v: self.attend(q, k, v, is_causal, scale, gqa)
        if order_of(q, k, v) is None or max(size[3], v.shape[3]) > 1024 or not ordinary(q, k, v):
            return theirs
        problem = _warplap.attention_problem(q.detach(), k.detach(), v.detach(), None, is_causal, factor)

        def own(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            unaligned = q.is_cuda and (q.data_ptr() | k.data_ptr() | v.data_ptr()) % 16
            if unaligned or torch.are_deterministic_algorithms_enabled():
                return theirs(q, k, v)  # sums are added in any order here, and the copy engine fetches from 16 bytes on
            return self._node(q, k, v, None, problem, is_causal, factor)  # type: ignore[no-any-return]

        tensors, facts = (q, k, v), (is_causal, scale, gqa)
        chosen = self._steps.choose(tensors, facts, "none", own, theirs, f"{problem},lse=true")
        if chosen is not None or is_watched():
            return chosen
        if _warplap.mode() == "off":
            self._steps.keep(tensors, facts, theirs)
        return theirs


def _belong(q: torch.Size, k: torch.Size, v: torch.Size, gqa: bool) -> bool:
    """Whether keys and values of these sizes are some for such queries."""
    if len(k) != 4 or k[:3] != v[:3] or (k[0], k[3]) != (q[0], q[3]) or 0 in k or 0 in v:
        return False
    return q[1] == k[1] or (gqa and q[1] % k[1] == 0)
