"""``warplap.gated``: ``activation(a)`` joined with b element by element. One kernel and one node of a graph, of which
nothing but a and b is kept for gradients."""

from __future__ import annotations

import math
from typing import Any, Callable, Literal, NamedTuple

from ..arrays import numpy as arrays
from ..arrays.types import Array
from ..operator import autocast
from ..operator.activations import ACTIVATIONS, Activation
from ..operator.call.call_cache import prepared_call
from ..operator.call.direct import Direct, Plan
from ..operator.call.fallback import kernel_or_torch
from ..operator.candidate import Candidate
from ..operator.checks import MOST, NAMES, check_activation, check_out, floats, has_kernels, ordinary
from ..operator.declare import Operator, like
from ..operator.layout import rows
from ..operator.optional_torch import Tensor, torch
from ..operator.problem_text import DTYPES, dtype_name, fields, text
from ..operator.public import Public, compiling

_JOINS = ("mul", "add")


# The problem.


class _Lines(NamedTuple):
    """How rows lie: rows, elements of each, and elements from a row to the next in both tensors."""

    rows: int
    n: int
    lda: int
    ldb: int


@prepared_call
def _call(lines: _Lines, dtype: Any, activation: str | None, join: str) -> str:
    return text("gated", **lines._asdict(), dtype=dtype_name(dtype, "a"), act=activation or "none", join=join)


def _check(a: Any, b: Any, activation: str | None, join: str) -> None:
    """Whether shapes belong together, and words are known."""
    check_activation(activation)
    if join not in _JOINS:
        raise ValueError(f"join: is {join!r}, expected mul or add")
    if a.ndim == 0:
        raise ValueError("a: has 0 dimensions, expected 1 or more")
    if tuple(b.shape) != tuple(a.shape):
        raise ValueError(f"b: has shape {list(b.shape)}, expected {list(a.shape)} as a has")


def _problem(a: Any, b: Any, activation: str | None = "silu", join: str = "mul", out: Any = None) -> str:
    _check(a, b, activation, join)
    count, n = math.prod(a.shape[:-1]), a.shape[-1]
    return _call(_Lines(count, n, _pitch(a, count), _pitch(b, count)), a.dtype, activation, join).problem


def _pitch(t: Any, count: int) -> int:
    """Elements from a row to the next, where rows lie in one line and each is contiguous; else those of a copy."""
    n = int(t.shape[-1])
    strides = t.stride() if hasattr(t, "stride") else [s // t.itemsize for s in t.strides]
    if count <= 1 or strides[-1] != 1 or strides[-2] < n:
        return n
    followed = all(strides[i] == strides[i + 1] * t.shape[i + 1] for i in range(t.ndim - 2) if t.shape[i] > 1)
    return int(strides[-2]) if followed else n


# Over arrays.


def _of_arrays(a: Any, b: Any, activation: str | None, join: str, out: Any) -> Any:
    """Over NumPy arrays."""
    np = arrays.numpy()
    a, b = arrays.array(a, "a"), arrays.array(b, "b")
    _check(a, b, activation, join)
    if a.dtype.name not in DTYPES:
        raise TypeError(f"a: holds {a.dtype}, expected float32 or float16")
    if b.dtype != a.dtype:
        raise TypeError(f"b: holds {b.dtype}, expected {a.dtype} like a")
    target = arrays.into(out, a.shape, a)
    if target.dtype != a.dtype:
        raise TypeError(f"out: holds {target.dtype}, expected {a.dtype} like a")
    count, n = math.prod(a.shape[:-1]), a.shape[-1]
    if 0 in (count, n):
        return target
    own = [np.ascontiguousarray(t).reshape(count, n) for t in (a, b)]
    overlaps = any(np.may_share_memory(target, t) for t in (a, b))
    whole = target if target.flags.c_contiguous and not overlaps else np.empty(a.shape, a.dtype)
    _call(_Lines(count, n, n, n), a.dtype, activation, join)(*own, whole.reshape(count, n))
    if whole is not target:
        target[...] = whole
    return target


# By torch's own operators, which race too.


def by_torch(a: Tensor, b: Tensor, *, activation: str | None, join: str) -> Tensor:
    """In float32 at the least: with one rounding, as kernels do it."""
    wide = a.to(torch.promote_types(a.dtype, torch.float32))
    x = wide if activation is None else ACTIVATIONS[activation](wide)
    return (x * b if join == "mul" else x + b).to(a.dtype)


def facts(problem: str) -> dict[str, Any]:
    """What torch needs to know of a problem."""
    said = fields(problem)
    return {"activation": None if said["act"] == "none" else said["act"], "join": said.get("join", "mul")}


def fit(problem: str) -> str | None:
    """Why torch's stands aside, if so."""
    return "an activation alone is torch's own function" if facts(problem)["join"] == "none" else None


CANDIDATES = [Candidate("gated", "torch_gated", by_torch, fit, facts=facts, returns=True)]


# Over torch's tensors.


def _is_supported(t: Tensor) -> bool:
    """Whether rows lie as kernels take them: on the bytes of a vector, where one divides a row."""
    count, n = t.shape
    line = n * t.element_size()
    level = (t.stride(1) == 1 or n == 1) and (count == 1 or t.stride(0) >= n) and not t.is_neg()
    return level and (not t.is_cuda or t.data_ptr() % min(16, line & -line) == 0)


def _kernel_input(t: Tensor) -> Tensor:
    """The tensor as kernels take it; a copy where it does not lie so."""
    return t if _is_supported(t) else t.resolve_neg().clone(memory_format=torch.contiguous_format)


def _lines(a: Tensor, b: Tensor) -> _Lines | None:
    """How rows of both lie; None where they are too many for a problem."""
    count, n = a.shape
    pitch = lambda t: n if count == 1 else t.stride(0)
    lines = _Lines(count, n, pitch(a), pitch(b))
    return lines if count * max(lines.lda, lines.ldb) <= MOST and ordinary(a) else None


def _plan(a: Tensor, b: Tensor, activation: str | None, join: str) -> Plan | None:
    if a.shape != b.shape or a.dtype != b.dtype or a.device != b.device or a.dtype not in NAMES or a.numel() == 0:
        return None
    own = [t.view(-1, t.shape[-1]) for t in (a, b)]
    lines = _lines(own[0], own[1]) if all(map(_is_supported, own)) else None
    if lines is None:
        return None
    ready = _call(lines, a.dtype, activation, join)
    return Plan(ready, ((0, own[0]), (1, own[1])), None if a.ndim == 2 else (tuple(a.shape),))


_direct = Direct(_plan).call


def _run(a: Tensor, b: Tensor, activation: str | None, join: str) -> Tensor:
    """Of matrices; what no problem expresses goes to torch."""
    result = _direct((a, b), (activation, join))
    if result is not None:
        return result  # type: ignore[no-any-return]
    if a.numel() == 0:
        return a.new_empty(a.shape)
    a, b = _kernel_input(a), _kernel_input(b)
    lines = _lines(a, b) if a.dtype in NAMES else None
    return kernel_or_torch(
        lambda: _call(lines, a.dtype, activation, join)(a, b),
        lambda: by_torch(a, b, activation=activation, join=join),
        lines is not None,
    )


# Gradients. What b is multiplied with is computed again: it takes no more time than to read it.


def _silu_slope(grad: Tensor, a: Tensor) -> Tensor:
    if not torch.is_grad_enabled():
        return torch.ops.aten.silu_backward(grad, a)  # type: ignore[no-any-return]
    s = torch.sigmoid(a)  # torch's own has no gradients
    return grad * s * (1 + a * (1 - s))


_SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relu": lambda grad, a: torch.ops.aten.threshold_backward(grad, a, 0),
    "gelu": lambda grad, a: torch.ops.aten.gelu_backward(grad, a),
    "gelu_tanh": lambda grad, a: torch.ops.aten.gelu_backward(grad, a, approximate="tanh"),
    "silu": _silu_slope,
    "tanh": lambda grad, a: torch.ops.aten.tanh_backward(grad, torch.tanh(a)),
    "sigmoid": lambda grad, a: torch.ops.aten.sigmoid_backward(grad, torch.sigmoid(a)),
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
        of_b = GATED.call(a, grad, ctx.activation, "mul") if multiplied else grad
    return of_a, of_b, None, None


GATED = Operator(
    "gated(Tensor a, Tensor b, str? activation, str join) -> Tensor", _run, like(), save=_save, backward=_backward
)


def _of_tensors(a: Tensor, b: Tensor, activation: str | None, join: str, out: Tensor | None) -> Tensor:
    _check(a, b, activation, join)
    a, b = autocast.promoted(a, b)
    ours = has_kernels(a, b)
    if ours:
        floats(a=a, b=b, out=out)
    if out is not None:
        check_out(out, tuple(a.shape), a=a, b=b)
    if ours:
        y = GATED.call(rows(a), rows(b), activation, join)
    else:
        y = by_torch(a, b, activation=activation, join=join)
    y = y if y.shape == a.shape else y.reshape(a.shape)
    return y if out is None else out.copy_(y)


_public = Public(torch=_of_tensors, arrays=_of_arrays, problem=_problem, optional=("out",))


@_public
def gated(
    a: Array, b: Array, activation: Activation | None = "silu", *, join: Literal["mul", "add"] = "mul",
    out: Array | None = None,
) -> Array:  # fmt: skip
    """``activation(a) * b`` element by element, or ``+ b`` with ``join="add"``: the middle of a gated layer whose
    products are there already.

    Both have one shape; they may be the halves of one tensor, ``gated(*y.chunk(2, -1))``, of which nothing is copied.
    ``activation`` is one of those of :func:`linear`. Arithmetic is in float32 with one rounding at the end.
    Differentiable in both; nothing but a and b is kept for that.
    """
    if out is None and not compiling():
        result = _direct((a, b), (activation, join))
        if result is not None:
            return result
    return _public.of({"a": a, "b": b, "out": out}, activation=activation, join=join)
