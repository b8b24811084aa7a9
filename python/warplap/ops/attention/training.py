"""attention where gradients are wanted: our forward and backward kernels as one node of torch's graph, or torch's own.

Forward keeps the log-sum-exps of the scores, backward begins with them, and nobody holds a matrix of scores. The whole
step meets torch's own function once a key (``_steps``), and who wins answers. Neither has gradients of gradients; who
asks for those gets them from the scores.
"""

from __future__ import annotations

import functools
import threading
from types import SimpleNamespace
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ... import _warplap
from ...operator import cuda
from ...operator.library import FLOATS, ordinary
from ...operator.eager import PLAIN, casts, is_watched, modes, transform
from ...training.steps import Call, Steps

_keeps = torch.is_grad_enabled
_node = torch._C._current_autograd_node
_repeats = torch.are_deterministic_algorithms_enabled

# Gradients from the scores: of the context, and of what came in and went out.
FromScores = Callable[..., tuple[Any, ...]]

# torch's nodes that have no second derivative.
_FUSED = frozenset(
    getattr(torch._C._functions, f"ScaledDotProduct{kind}Backward0", None)
    for kind in ("FlashAttentionForCpu", "FlashAttention", "EfficientAttention", "CudnnAttention")
) - {None}
_SLICE = getattr(torch._C._functions, "SliceBackward0", None)


def wanted(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """Whether a call is one of these: gradients of plain tensors, none of the mask, and no tracing."""
    if not _keeps() or not (q.requires_grad or k.requires_grad or v.requires_grad):
        return False
    plain = all(type(t) in PLAIN for t in (q, k, v)) and (mask is None or not mask.requires_grad)
    return plain and not torch.compiler.is_compiling() and transform() is None


def is_in(order: str, t: Tensor) -> bool:
    """Whether a tensor lies in an order of dimensions without gaps."""
    return (t if order == "bhsd" else t.transpose(1, 2)).is_contiguous()


def order_of(q: Tensor, k: Tensor, v: Tensor) -> str | None:
    """The order of dimensions that all lie in without gaps, if there is one."""
    return next((order for order in ("bhsd", "bshd") if all(is_in(order, t) for t in (q, k, v))), None)


class Said(BaseException):
    """The problem that a call would have solved, where somebody only asks which."""


# Whether a call of this thread is to say its problem instead of solving it.
_asks = threading.local()


def problem_of(call: Callable[[], Any]) -> str | None:
    """The problem that a call of attention is; None where it would be torch's own."""
    _asks.on = True
    try:
        with torch.no_grad():
            call()
    except Said as said:
        return str(said)
    finally:
        _asks.on = False
    return None


def prepared(forward: str) -> tuple[_warplap.Prepared, _warplap.Prepared]:
    """The calls of both passes, by the problem of the forward one."""
    if getattr(_asks, "on", False):
        raise Said(f"{forward},lse=true")
    return _prepared(forward)


@functools.lru_cache(maxsize=4096)
def _prepared(forward: str) -> tuple[_warplap.Prepared, _warplap.Prepared]:
    fields = forward.partition(":")[2]
    return _warplap.Prepared(f"attention:{fields},lse=true"), _warplap.Prepared(f"attention_grad:{fields}")


def alone(text: str) -> _warplap.Prepared:
    """The call of a forward pass that nothing follows."""
    if getattr(_asks, "on", False):
        raise Said(text)
    return _alone(text)


@functools.lru_cache(maxsize=4096)
def _alone(text: str) -> _warplap.Prepared:
    return _warplap.Prepared(text)


def lent(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The tensors as a problem has them: in one order without gaps, where kernels may fetch from them."""
    if order_of(q, k, v) is None:
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    mask = None if mask is None else mask.contiguous()
    if q.is_cuda:
        q, k, v = cuda.aligned(q), cuda.aligned(k), cuda.aligned(v)
        mask = None if mask is None else cuda.aligned(mask)
    return q, k, v, mask


def laid(like: Tensor, t: Tensor) -> Tensor:
    """A tensor that lies as another does, where kernels may fetch from it."""
    if t.stride() != like.stride():
        t = torch.empty_like(like).copy_(t)
    return cuda.aligned(t) if t.is_cuda else t


def forward(problem: str, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """What is attended to, and the log-sum-exps of the scores; tensors lie as the problem says."""
    out, lse = prepared(problem)[0](q, k, v, mask)
    return out, lse if lse.is_contiguous() else lse.contiguous()


def backward(
    problem: str, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, out: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, which lie as those do."""
    like = like_output(q, v)
    found: tuple[Tensor, Tensor, Tensor] = prepared(problem)[1](q, k, v, mask, laid(like, out), lse, laid(like, grad))
    return found


def like_output(q: Tensor, v: Tensor) -> Tensor:
    """A tensor that lies as the output of queries and values does; its elements mean nothing."""
    (b, h, s, d), width = q.shape, v.shape[3]
    if width == d:
        return q
    return q.new_empty((b, h, s, width)) if q.is_contiguous() else q.new_empty((b, s, h, width)).transpose(1, 2)


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

        def run_forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *facts: Any) -> Tensor:
            problem = facts[0]
            out, lse = forward(problem, q, k, v, mask)
            ctx.save_for_backward(q, k, v, mask, out, lse)
            ctx.facts = facts
            return out

        def run_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
            q, k, v, mask, out, lse = ctx.saved_tensors
            problem, is_causal, scale = ctx.facts
            if _keeps():
                facts = SimpleNamespace(is_causal=is_causal, scale=scale, needs_input_grad=ctx.needs_input_grad)
                found = from_scores(facts, grad, q, k, v, mask, out)[:3]
            else:
                found = backward(problem, grad, q, k, v, mask, out, lse)
            needs = ctx.needs_input_grad
            return *(g if need else None for g, need in zip(found, needs)), None, None, None, None

        members = {"forward": staticmethod(run_forward), "backward": staticmethod(run_backward)}
        node: Any = type("attention", (torch.autograd.Function,), members)
        self._again, self._node = again, node.apply
        self._steps = Steps("train_attention", "qkv")
        self._chosen = self._steps.chosen

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
        """The same with a matrix that is added for all heads alike, by our kernels; None where that is none of theirs."""
        if mask.ndim != 2 or not ordinary(q, k, v) or max(q.shape[3], v.shape[3]) > 1024 or is_watched():
            return None
        q, k, v, added = lent(q, k, v, mask)
        try:
            problem = _warplap.attention_problem(q.detach(), k.detach(), v.detach(), added, is_causal, scale)
            return self._node(q, k, v, added, problem, is_causal, scale)  # type: ignore[no-any-return]
        except NotImplementedError as why:
            cuda.tell("torch", why)
            return None

    def direct(self, q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float | None, gqa: bool) -> Tensor | None:
        """The same of plain tensors that belong together by whoever won the step; None where it is not for this way to
        compute."""
        wants_q, wants_k, wants_v = q.requires_grad, k.requires_grad, v.requires_grad
        if not ((wants_q or wants_k or wants_v) and _keeps()):
            return None
        try:
            key = (
                q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(),
                wants_q, wants_k, wants_v, is_causal, scale, gqa, q.dtype, q.is_cuda,
            )  # fmt: skip
        except RuntimeError:  # what is sparse has no strides: refused in our words on the general way
            return None
        chosen = self._chosen.get(key) or self._choose(key, q, k, v, is_causal, scale, gqa)
        if chosen is None or modes() or casts() or transform() is not None:
            return None
        try:
            return chosen(q, k, v)
        except RuntimeError:  # what is wrong is said in our words on the general way
            return None

    def _choose(
        self, key: Any, q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float | None, gqa: bool
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
            if _repeats() or (q.is_cuda and (q.data_ptr() | k.data_ptr() | v.data_ptr()) % 16):
                return theirs(q, k, v)  # sums are added in any order here, and the copy engine fetches from 16 bytes on
            return self._node(q, k, v, None, problem, is_causal, factor)  # type: ignore[no-any-return]

        chosen = self._steps.choose(key, (q, k, v), "none", own, theirs, f"{problem},lse=true")
        if chosen is None and not is_watched():
            return self._steps.keep(key, theirs) if _warplap.mode() == "off" else theirs
        return chosen


def _belong(q: torch.Size, k: torch.Size, v: torch.Size, gqa: bool) -> bool:
    """Whether keys and values of these sizes are some for such queries."""
    if len(k) != 4 or k[:3] != v[:3] or (k[0], k[3]) != (q[0], q[3]) or 0 in k or 0 in v:
        return False
    return q[1] == k[1] or (gqa and q[1] % k[1] == 0)
