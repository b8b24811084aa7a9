"""``warplap.norm_linear``: an RMSNorm and the layer behind it as one product. x is multiplied as it is, and the rows of
the product are divided by the root mean square of x's; the norm's gain is folded into the weight, once."""

from __future__ import annotations

import math
from typing import Any

from ... import _warplap
from ...arrays import numpy as arrays
from ...arrays.types import Array
from ...operator import autocast
from ...operator.activations import Activation
from ...operator.call.call_cache import layout_call, prepared
from ...operator.call.eager import PLAIN, is_compiling
from ...operator.call.fallback import kernel_or_none
from ...operator.checks import check_activation, floats, has_kernels, ordinary, wants
from ...operator.declare import Operator
from ...operator.layout import lines, rows
from ...operator.optional_torch import F, Tensor
from ...operator.problem_text import fields
from ...operator.public import Public, compiling
from ..norm import dense as norm
from . import gated_linear as gated_layer, linear as layer
from .folded_weights import folded, forget

# The problem.


def _check(x: Any, w: Any, weight: Any, up: Any, bias: Any, **others: Any) -> tuple[int, ...]:
    """Whether shapes belong together; gives that of the answer."""
    if w.ndim != 2:
        raise ValueError(f"w: has {w.ndim} dimensions, expected 2")
    if x.ndim == 0 or x.shape[-1] != w.shape[1]:
        raise ValueError(f"x: has shape {list(x.shape)}, expected {w.shape[1]} columns as w has")
    shape = (*x.shape[:-1], w.shape[0])
    wanted = {"weight": (w.shape[1],), "up": w.shape, "bias": (w.shape[0],), **dict.fromkeys(others, shape)}
    for name, a in {"weight": weight, "up": up, "bias": bias, **others}.items():
        if a is not None and tuple(a.shape) != tuple(wanted[name]):
            raise ValueError(f"{name}: has shape {list(a.shape)}, expected {list(wanted[name])}")
    return shape


def _text(
    x: Any, w: Any, up: Any, bias: Any, activation: str | None, residual: Any, times: Any, eps: float
) -> str | None:
    """The problem of matrices that belong together; None where two weights do not lie alike."""
    one = _warplap.linear_problem(x, w, bias, activation, None, residual, times)
    under = f",rms={eps:.9g}"
    if up is None:
        return one + under
    halves = [fields(one), fields(_warplap.linear_problem(x, up, bias, activation))]
    align = min(int(half.pop("align", 64)) for half in halves)
    if halves[0] != halves[1]:
        return None
    said = ",".join(f"{name}={value}" for name, value in halves[0].items())
    return f"gemm:{said},align={align},pair=true{under}"


def _problem(
    x: Any, w: Any, weight: Any = None, bias: Any = None, activation: str | None = None, up: Any = None,
    residual: Any = None, times: Any = None, eps: float = 1e-6,
) -> str:  # fmt: skip
    _check(x, w, weight, up, bias, residual=residual, times=times)
    flat = lambda t: t if t is None or t.ndim == 2 else t.reshape(-1, t.shape[-1])
    result = _text(flat(x), w, up, bias, activation, flat(residual), flat(times), eps)
    if result is None:
        raise ValueError("up: does not lie as w does; the call is a norm and two products")
    return result


# Over arrays.


def _of_arrays(
    x: Any, w: Any, weight: Any, up: Any, bias: Any, residual: Any, times: Any, activation: str | None, eps: float
) -> Any:
    """Over NumPy arrays."""
    own = {"x": x, "w": w, "weight": weight, "bias": bias, "up": up, "residual": residual, "times": times}
    whole = arrays.numpy().ascontiguousarray
    own = {name: None if a is None else whole(arrays.array(a, name)) for name, a in own.items()}
    x, w, weight = own["x"], own["w"], own["weight"]
    shape = _check(**own)
    for name, a in own.items():
        if a is not None and a.dtype != x.dtype:
            raise TypeError(f"{name}: holds {a.dtype}, expected {x.dtype} like x")
    fold = lambda a: a if a is None or weight is None else a * weight
    count, (n, k) = math.prod(x.shape[:-1]), w.shape
    flat = lambda a, columns: None if a is None else a.reshape(count, columns)
    left, right, second = flat(x, k), fold(w), fold(own["up"])
    residual, times = flat(own["residual"], n), flat(own["times"], n)
    problem = _text(left, right, second, own["bias"], activation, residual, times, eps)
    assert problem is not None
    target = arrays.into(None, shape, x)
    turned = None if second is None else second.T
    other = times if residual is None else residual
    write = lambda to: prepared(problem)(left, right.T, to, own["bias"], other, turned, None)
    return arrays.write(target, count, n, write)


# Over torch's tensors.


@layout_call
def _call(
    x: Tensor, w: Tensor, up: Tensor | None, bias: Tensor | None, residual: Tensor | None, times: Tensor | None,
    activation: str | None, eps: float,
) -> _warplap.Prepared | None:  # fmt: skip
    """The call for matrices; None where no problem says it: weights that do not lie alike."""
    problem = _text(x, w, up, bias, activation, residual, times, eps)
    return None if problem is None else prepared(problem)


# By how a caller's tensors lie, before the gain is folded into the weights.
_known = _warplap.CallCache("direct")


def _direct(
    x: Any, w: Any, gain: Any, up: Any, bias: Any, activation: str | None, residual: Any, times: Any, eps: float
) -> Any:
    """Over plain tensors of which nobody wants a gradient, whose gain is folded already, and that were called so
    before; None for everything else."""
    if type(x) not in PLAIN:
        return None
    shape = x.shape
    try:
        if len(shape) != 2:
            n = w.shape[0]
            x, residual, times = x.view(-1, shape[-1]), *(t if t is None else t.view(-1, n) for t in (residual, times))
        ready = _known.get((x, w, gain, up, bias, residual, times), (activation, eps))
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError):  # the general way says what is wrong
        return None
    if ready is None:
        return None
    right = folded(w, gain)
    second = None if up is None else folded(up, gain)
    if right is None or (up is not None and second is None):
        return None
    other = times if residual is None else residual
    result = ready.direct(x, right.t(), None, bias, other, None if second is None else second.t(), None)
    return result if result is None or len(shape) == 2 else result.view(*shape[:-1], -1)


def _run(
    x: Tensor, w: Tensor, gain: Tensor | None, up: Tensor | None, bias: Tensor | None, activation: str | None,
    residual: Tensor | None, times: Tensor | None, eps: float,
) -> Tensor:  # fmt: skip
    """Of matrices, by whoever is fastest here and right; what no problem expresses is a norm and a layer."""
    result = _direct(x, w, gain, up, bias, activation, residual, times, eps)
    if result is not None:
        return result  # type: ignore[no-any-return]
    as_called = x, w, gain, up, bias, residual, times
    right, second = folded(w, gain), None if up is None else folded(up, gain)
    if right is not None and (up is None) == (second is None) and ordinary(x, w):
        plain = lambda t: t if t is None or (t.is_contiguous() and not t.is_neg()) else t.contiguous().resolve_neg()
        own = x, bias, residual, times
        x, bias, residual, times = map(plain, own)
        level, also = lines(right), None if second is None else lines(second)
        is_as_called = level is right and also is second
        is_as_called = is_as_called and all(a is b for a, b in zip(own, (x, bias, residual, times)))
        right, second = level, also
        ready = _call((x, right, second, bias, residual, times), activation, eps)
        if ready is not None:
            if is_as_called:
                _known.keep(as_called, (activation, eps), ready)
            other, turned = times if residual is None else residual, None if second is None else second.t()
            made = kernel_or_none(lambda: ready(x, right.t(), None, bias, other, turned, None))
            if made is not None:
                return made  # type: ignore[no-any-return]
    return _apart(x, w, gain, up, bias, activation, residual, times, eps)


def _apart(
    x: Tensor, w: Tensor, gain: Tensor | None, up: Tensor | None, bias: Tensor | None, activation: str | None,
    residual: Tensor | None, times: Tensor | None, eps: float,
) -> Tensor:  # fmt: skip
    """A norm and a layer, each with gradients of its own."""
    y: Tensor = norm.norm(x, None, gain, None, "rms", eps)
    if up is not None:
        return gated_layer.of_tensors(y, w, up, activation)
    return layer.of_tensors(y, w, bias, activation, None, residual, times)


def _autograd(keys: Any, *args: Any) -> Tensor:
    """One node of a graph, unless gradients are wanted: then a norm and a layer, so that nothing is computed twice.
    Only torch's dispatcher knows for sure which it is, under every tracer and transform."""
    if wants(*(t for t in args if isinstance(t, Tensor))):
        return _apart(*args)
    return NORM_LINEAR.below_autograd(keys, *args)  # type: ignore[no-any-return]


NORM_LINEAR = Operator(
    "norm_linear(Tensor x, Tensor w, Tensor? gain, Tensor? up, Tensor? bias, str? activation, Tensor? residual,"
    " Tensor? times, float eps) -> Tensor",
    _run, lambda x, w, *more: x.new_empty((x.shape[0], w.shape[0])), autograd=_autograd, autocast=True,
)  # fmt: skip


def of_tensors(
    x: Tensor, w: Tensor, weight: Tensor | None, up: Tensor | None, bias: Tensor | None, residual: Tensor | None,
    times: Tensor | None, activation: str | None, eps: float,
) -> Tensor:  # fmt: skip
    check_activation(activation)
    cast_to = autocast.cast(x, w, weight, up, bias)
    other = times if residual is None else residual
    if other is not None and cast_to[0] is not x and other.dtype != cast_to[0].dtype:
        # Where torch casts, what is joined stays as it is and the sum has the wider type, as with torch's own product.
        alone = of_tensors(x, w, weight, up, bias, None, None, activation, eps)
        return layer.finish(alone, None, residual, times)
    x, w, weight, up, bias = cast_to
    others = {"residual": residual, "times": times}
    ours = has_kernels(x, w, weight, up, bias, *others.values())
    if ours:
        floats(x=x, w=w, weight=weight, up=up, bias=bias, **others)
    shape = _check(x, w, weight, up, bias, **others)
    if not ours:
        y = F.rms_norm(x, (x.shape[-1],), weight, eps)
        if up is not None:
            return layer.finish(F.linear(y, w), activation) * F.linear(y, up)
        return layer.finish(F.linear(y, w, bias), activation, residual, times)
    if not is_compiling():
        for own in (w, up):
            if own is not None and weight is not None and not wants(x, own, weight):
                folded(own, weight, make=True)
    flat = [None if t is None else rows(t) for t in (residual, times)]
    y = NORM_LINEAR.call(rows(x), w, weight, up, bias, activation, *flat, eps)
    return y if x.ndim == 2 else y.reshape(shape)


_public = Public(
    torch=of_tensors, arrays=_of_arrays, problem=_problem, optional=("weight", "up", "bias", "residual", "times")
)


@_public
def norm_linear(
    x: Array,
    w: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    activation: Activation | None = None,
    *,
    up: Array | None = None,
    residual: Array | None = None,
    times: Array | None = None,
    eps: float = 1e-6,
) -> Array:
    """``linear(rms_norm(x, weight, eps), w, bias, activation)`` and what follows it, as one product: an RMSNorm and the
    layer behind it. With ``up`` it is ``gated_linear`` of w and up behind the norm.

    x is multiplied as it is, and the rows of the product are divided by x's root mean square, which is found in the
    product or by a small kernel in front, whichever is faster here. The norm's ``weight``, of shape (k,), is folded
    into ``w`` once where both are parameters of torch's: the folded copy is kept as long as ``w`` lives, and made anew
    when one of them was changed in place. Captured CUDA graphs go on with the copy that they saw. Changes that torch
    does not count (``w.data.copy_(…)``) are not seen: :func:`forget_folded` frees all copies. Where a gradient is
    wanted, and of weights that are no parameters, it is a norm and a layer.
    """
    if not compiling():
        result = _direct(x, w, weight, up, bias, activation, residual, times, eps)
        if result is not None:
            return result
    if residual is not None and times is not None:
        raise ValueError("times: is given beside residual, expected one of them")
    if up is not None and not (bias is None and residual is None and times is None):
        raise ValueError("up: is given beside bias, residual or times, expected a pair alone")
    if not 1e-20 <= eps <= 1.0:
        raise ValueError(f"eps: is {eps}, expected a number from 1e-20 to 1")
    tensors = {"x": x, "w": w, "weight": weight, "up": up, "bias": bias, "residual": residual, "times": times}
    return _public.of(tensors, activation=activation, eps=eps)


def forget_folded() -> None:
    """Frees the folded weights of :func:`norm_linear`, but for those that captured CUDA graphs have seen."""
    forget()
