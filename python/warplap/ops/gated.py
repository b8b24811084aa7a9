"""gated over torch tensors, activation(a) joined with b element by element: one kernel and one node of a graph, of which
nothing but a and b is kept for gradients."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor

from .. import _warplap
from ..operator import cuda, problem_fields
from .gated_problem import Lines, call, check
from ..operator.torch_fallback import has_kernels
from ..operator.compile import fake
from .linear import ACTIVATIONS
from ..operator.library import FLOATS, NAMES, check_out, floats, lib, ordinary, rows
from ..operator.eager import operator

_tags = (torch.Tag.pt2_compliant_tag,)
lib.define("gated(Tensor a, Tensor b, str? activation, str join) -> Tensor", tags=_tags)

_MOST = 1 << 31  # elements that rows of a problem may span


# By torch.


def by_torch(a: Tensor, b: Tensor, *, activation: str | None, join: str) -> Tensor:
    """What torch has for it, in float32 at the least: with one rounding, as kernels do it."""
    wide = a.to(torch.promote_types(a.dtype, torch.float32))
    x = wide if activation is None else ACTIVATIONS[activation](wide)
    return (x * b if join == "mul" else x + b).to(a.dtype)


def facts(problem: str) -> dict[str, Any]:
    """What torch needs to know of a problem."""
    given = problem_fields.fields(problem)
    return {"activation": None if given["act"] == "none" else given["act"], "join": given.get("join", "mul")}


def fit(problem: str) -> str | None:
    """Why torch's stands aside, if so."""
    return "an activation alone is torch's own function" if facts(problem)["join"] == "none" else None


# By whoever is fastest here and right.


def _lies(t: Tensor) -> bool:
    """Whether rows lie as kernels take them: on the bytes of a vector, where one divides a row."""
    count, n = t.shape
    line = n * t.element_size()
    level = (t.stride(1) == 1 or n == 1) and (count == 1 or t.stride(0) >= n) and not t.is_neg()
    return level and (not t.is_cuda or t.data_ptr() % min(16, line & -line) == 0)


def _lent(t: Tensor) -> Tensor:
    """The tensor as kernels take it; a copy where it does not lie so."""
    return t if _lies(t) else t.resolve_neg().clone(memory_format=torch.contiguous_format)


def _lines(a: Tensor, b: Tensor) -> Lines | None:
    """How rows of both lie; None where they are too many for a problem."""
    count, n = a.shape
    pitch = lambda t: n if count == 1 else t.stride(0)
    lines = Lines(count, n, pitch(a), pitch(b))
    return lines if count * max(lines.lda, lines.ldb) <= _MOST and ordinary(a) else None


def _name(t: Tensor) -> str:
    return str(t.dtype).removeprefix("torch.")


def _run(a: Tensor, b: Tensor, activation: str | None, join: str) -> Tensor:
    """Of matrices; what no problem expresses goes to torch."""
    found = at_once(a, b, activation, join)
    if found is not None:
        return found  # type: ignore[no-any-return]
    if a.numel() == 0:
        return a.new_empty(a.shape)
    a, b = _lent(a), _lent(b)
    lines = _lines(a, b) if a.dtype in NAMES else None
    if lines is not None:
        try:
            return call(lines, _name(a), activation, join)(a, b)  # type: ignore[no-any-return]
        except NotImplementedError as why:
            cuda.tell("torch", why)
    return by_torch(a, b, activation=activation, join=join)


for _device in ("CPU", "CUDA"):
    lib.impl("gated", _run, _device)


@fake("gated")
def _fake(a: Tensor, *rest: Any) -> Tensor:
    return a.new_empty(a.shape)


# Gradients. What b is multiplied with is computed again: it takes no more time than to read it.

_aten = torch.ops.aten


def _silu_slope(grad: Tensor, a: Tensor) -> Tensor:
    if not torch.is_grad_enabled():
        return _aten.silu_backward(grad, a)  # type: ignore[no-any-return]
    s = torch.sigmoid(a)  # torch's own has no gradients
    return grad * s * (1 + a * (1 - s))


_SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relu": lambda grad, a: _aten.threshold_backward(grad, a, 0),
    "gelu": lambda grad, a: _aten.gelu_backward(grad, a),
    "gelu_tanh": lambda grad, a: _aten.gelu_backward(grad, a, approximate="tanh"),
    "silu": _silu_slope,
    "tanh": lambda grad, a: _aten.tanh_backward(grad, torch.tanh(a)),
    "sigmoid": lambda grad, a: _aten.sigmoid_backward(grad, torch.sigmoid(a)),
}


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, ctx.activation, ctx.join = inputs
    ctx.save_for_backward(a, b)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (a, b), multiplied = ctx.saved_tensors, ctx.join == "mul"
    of_a = of_b = None
    if ctx.needs_input_grad[0]:
        of_a = grad * b if multiplied else grad
        of_a = of_a if ctx.activation is None else _SLOPES[ctx.activation](of_a, a)
    if ctx.needs_input_grad[1]:
        of_b = _node(a, grad, ctx.activation, "mul") if multiplied else grad
    return of_a, of_b, None, None


_node = operator("gated", _run, _save, _backward).call


# The door.


# Calls by how their tensors lie, and how many are kept at the most: sizes may change all the time.
_ready: dict[Any, _warplap.Prepared] = {}
_KEPT = 4096


def at_once(a: Any, b: Any, activation: str | None, join: str) -> Any:
    """Over plain tensors of which nobody wants a gradient; None for everything else."""
    told = _warplap.lie(a, b)
    if told is None:
        return None
    try:
        key, flat = (told, activation, join), a.ndim == 2
        own = (a, b) if flat else (a.view(-1, a.shape[-1]), b.view(-1, b.shape[-1]))
        ready = _ready.get(key)
        if ready is None:
            asked = _call_of(a, b, own, activation, join)
            if asked is None:
                return None
            if len(_ready) >= _KEPT:
                _ready.clear()
            _ready[key] = ready = asked
    except (RuntimeError, ValueError, TypeError, IndexError):  # the general way copies, or says what is wrong
        return None
    found = ready.direct(*own)
    return found if found is None or flat else found.view(a.shape)


def _call_of(
    a: Tensor, b: Tensor, own: tuple[Tensor, Tensor], activation: str | None, join: str
) -> _warplap.Prepared | None:
    """The call of tensors as they and their rows lie, where kernels take them so."""
    same = a.shape == b.shape and a.dtype == b.dtype and a.device == b.device
    if not same or a.dtype not in FLOATS or a.numel() == 0 or not all(map(_lies, own)):
        return None
    lines = _lines(*own)
    return None if lines is None else call(lines, _name(a), activation, join)


def gated(a: Tensor, b: Tensor, activation: str | None, join: str, out: Tensor | None) -> Tensor:
    check(a, b, activation, join)
    if a.dtype != b.dtype and torch.is_autocast_enabled(a.device.type):  # as torch does for sums and products
        to = torch.promote_types(a.dtype, b.dtype)
        a, b = a.to(to), b.to(to)
    ours = has_kernels(a, b)
    if ours:
        floats(a=a, b=b, out=out)
    if out is not None:
        check_out(out, tuple(a.shape), a=a, b=b)
    y = _node(rows(a), rows(b), activation, join) if ours else by_torch(a, b, activation=activation, join=join)
    y = y if y.shape == a.shape else y.reshape(a.shape)
    return y if out is None else out.copy_(y)
