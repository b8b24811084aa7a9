"""Calls of attention's kernels: tensors as problems have them, and both passes by the problem of the forward one."""

from __future__ import annotations

import threading
from typing import Any, Callable

from ... import _warplap
from ...operator.call.call_cache import prepared_call
from ...operator.layout import aligned, kernel_input
from ...operator.optional_torch import Tensor, torch


def is_in(order: str, t: Tensor) -> bool:
    """Whether a tensor lies in an order of dimensions without gaps."""
    return (t if order == "bhsd" else t.transpose(1, 2)).is_contiguous()


def order_of(q: Tensor, k: Tensor, v: Tensor) -> str | None:
    """The order of dimensions that all lie in without gaps, if there is one."""
    return next((order for order in ("bhsd", "bshd") if all(is_in(order, t) for t in (q, k, v))), None)


class ProblemAsked(BaseException):
    """The problem that a call would have solved, where somebody only asks which."""


# Whether a call of this thread is to say its problem instead of solving it.
_asks = threading.local()


def problem_of(call: Callable[[], Any]) -> str | None:
    """The problem that a call of attention is; None where it would be torch's own."""
    _asks.on = True
    try:
        with torch.no_grad():
            call()
    except ProblemAsked as asked:
        return str(asked)
    finally:
        _asks.on = False
    return None


def prepared(forward: str) -> tuple[_warplap.Prepared, _warplap.Prepared]:
    """The calls of both passes, by the problem of the forward one."""
    if getattr(_asks, "on", False):
        raise ProblemAsked(f"{forward},lse=true")
    return _forward(forward), _backward(forward)


@prepared_call
def _forward(text: str) -> str:
    return f"attention:{text.partition(':')[2]},lse=true"


@prepared_call
def _backward(text: str) -> str:
    return f"attention_grad:{text.partition(':')[2]}"


@prepared_call
def of_mask(forward: str) -> str:
    """The call of a mask's gradient, by the problem of the forward pass."""
    return f"attention_mask_grad:{forward.partition(':')[2]}"


def alone(text: str) -> _warplap.Prepared:
    """The call of a forward pass that nothing follows."""
    if getattr(_asks, "on", False):
        raise ProblemAsked(text)
    return _alone(text)


@prepared_call
def _alone(text: str) -> str:
    return text


def kernel_inputs(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The tensors as a problem has them: in one order without gaps, where kernels may fetch from them."""
    if order_of(q, k, v) is None:
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    if q.is_cuda:
        q, k, v = aligned(q), aligned(k), aligned(v)
    return q, k, v, kernel_input(mask)


def laid_like(like: Tensor, t: Tensor) -> Tensor:
    """A tensor that lies as another does, where kernels may fetch from it."""
    if t.stride() != like.stride():
        t = torch.empty_like(like).copy_(t)
    return aligned(t) if t.is_cuda else t


def forward(problem: str, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """What is attended to, and the log-sum-exps of the scores; tensors lie as the problem says."""
    out, lse = prepared(problem)[0](q, k, v, mask)
    return out, lse if lse.is_contiguous() else lse.contiguous()


def backward(
    problem: str, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, out: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, which lie as those do."""
    like = like_output(q, v)
    ready = prepared(problem)[1]
    return ready(q, k, v, mask, laid_like(like, out), lse, laid_like(like, grad))  # type: ignore[no-any-return]


def like_output(q: Tensor, v: Tensor) -> Tensor:
    """A tensor that lies as the output of queries and values does; its elements mean nothing."""
    (b, h, s, d), width = q.shape, v.shape[3]
    if width == d:
        return q
    return q.new_empty((b, h, s, width)) if q.is_contiguous() else q.new_empty((b, s, h, width)).transpose(1, 2)
