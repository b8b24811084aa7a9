"""norm without torch: the problem of a call, the call of plain tensors, and NumPy arrays."""

from __future__ import annotations

import functools
import math
from typing import Any, Literal, Sequence

from ... import _warplap
from ...arrays import numpy as arrays
from ...operator.problem_fields import DTYPES

Kind = Literal["rms", "layer"]
Quant = Literal["fp8", "int8"]
# What a norm may be written as, by the problem's names.
FORMATS = {"fp8": "f8e4m3", "int8": "i8"}


@functools.lru_cache(maxsize=256)
def _form(dtype: Any, residual: bool, weight: bool, bias: bool, kind: str, eps: float) -> str:
    """The text of a problem but for its sizes: those are what is new in a call, and nobody waits for the rest."""
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise TypeError(f"x: holds {name}, expected float32, float16 or bfloat16")
    has = {"residual": residual, "weight": weight, "bias": bias}
    flags = "".join(f",{field}={str(value).lower()}" for field, value in has.items())
    return f"norm:rows=%d,n=%d,dtype={DTYPES[name]},kind={kind}{flags},eps={eps!r}"


@functools.lru_cache(maxsize=4096)
def prepared(
    shape: Sequence[int], dtype: Any, residual: bool, weight: bool, bias: bool, kind: str, eps: float, total: bool = True
) -> _warplap.Prepared:
    """The call for rows of a shape, ready; with a residual the sum is written too, where it is wanted."""
    form = _form(dtype, residual, weight, bias, kind, eps) + ("" if total else ",sum=false")
    return _warplap.Prepared(form % (math.prod(shape[:-1]), shape[-1]))


@functools.lru_cache(maxsize=4096)
def front_call(
    shape: Sequence[int], dtype: Any, residual: bool, weight: bool, bias: bool, before: bool, kind: str, eps: float,
    dropout: float,
) -> _warplap.Prepared:  # fmt: skip
    """The same with what may stand in front."""
    form = _form(dtype, residual, weight, bias, kind, eps) % (math.prod(shape[:-1]), shape[-1])
    return _warplap.Prepared(f"{form},before={str(before).lower()},dropout={dropout!r}")


@functools.lru_cache(maxsize=4096)
def quant_call(
    shape: Sequence[int], dtype: Any, residual: bool, weight: bool, bias: bool, before: bool, kind: str, eps: float,
    dropout: float, quant: str,
) -> _warplap.Prepared:  # fmt: skip
    """The same, written as codes with a factor a row."""
    form = _form(dtype, residual, weight, bias, kind, eps) % (math.prod(shape[:-1]), shape[-1])
    front = f"before={str(before).lower()},dropout={dropout!r}"
    return _warplap.Prepared(f"{form},{front},quant={FORMATS[quant]}")


@functools.lru_cache(maxsize=4096)
def grad_call(
    shape: Sequence[int], dtype: Any, weight: bool, bias: bool, total: bool, kind: str, eps: float, dropout: float
) -> _warplap.Prepared:
    """The call for the gradients of rows of a shape."""
    form = _form(dtype, False, weight, bias, kind, eps) % (math.prod(shape[:-1]), shape[-1])
    form = form.replace("norm:", "norm_grad:", 1).replace(",residual=false", "")
    return _warplap.Prepared(f"{form},total={str(total).lower()},dropout={dropout!r}")


def call_of(
    x: Any, residual: Any, weight: Any, bias: Any, kind: str, eps: float, total: bool = True
) -> _warplap.Prepared:
    """The call for these tensors, ready."""
    return prepared(x.shape, x.dtype, residual is not None, weight is not None, bias is not None, kind, eps, total)


def problem(
    x: Any, weight: Any = None, bias: Any = None, *, residual: Any = None, kind: Kind = "rms", eps: float = 1e-5,
    before: Any = None, dropout: float = 0.0, seed: Any = None, quant: Quant | None = None,
) -> str:  # fmt: skip
    """The problem that a call is, in its text form."""
    check(x, weight, bias, residual, kind, eps, quant)
    if quant is not None:
        has = [t is not None for t in (residual, weight, bias, before)]
        return quant_call(tuple(x.shape), x.dtype, *has, kind, float(eps), float(dropout), quant).problem
    if before is not None or dropout:
        has = [t is not None for t in (residual, weight, bias, before)]
        return front_call(tuple(x.shape), x.dtype, *has, kind, float(eps), float(dropout)).problem
    return call_of(x, residual, weight, bias, kind, float(eps)).problem


def check(
    x: Any, weight: Any, bias: Any, residual: Any, kind: str, eps: float, quant: str | None = None
) -> None:
    """Whether shapes belong together, and the rest is what there is."""
    if quant is not None and quant not in FORMATS:
        raise ValueError(f"quant: is {quant!r}, expected 'fp8', 'int8' or None")
    if kind not in ("rms", "layer"):
        raise ValueError(f"kind: is {kind!r}, expected 'rms' or 'layer'")
    if not 1e-20 <= eps <= 1.0:
        raise ValueError(f"eps: is {eps}, expected a number from 1e-20 to 1")
    if x.ndim == 0:
        raise ValueError("x: has 0 dimensions, expected 1 or more")
    for name, tensor, shape in (
        ("residual", residual, x.shape),
        ("weight", weight, x.shape[-1:]),
        ("bias", bias, x.shape[-1:]),
    ):
        if tensor is not None and tuple(tensor.shape) != tuple(shape):
            raise ValueError(f"{name}: has shape {list(tensor.shape)}, expected {list(shape)}")


def direct(
    x: Any, weight: Any, bias: Any, residual: Any, kind: str, eps: float, total: bool = True
) -> Any:
    """At once, over torch's plain tensors that nobody wants a gradient of; None for everything else."""
    shape = x.shape
    if not shape or (residual is not None and getattr(residual, "shape", None) != shape):
        return None
    flat, more = x, residual
    try:
        call = call_of(x, residual, weight, bias, kind, eps, total)
        if len(shape) != 2:
            flat, more = (None if t is None else t.view(-1, shape[-1]) for t in (x, residual))
    except (RuntimeError, TypeError, ValueError):  # the general way copies, says what is wrong, or goes to torch
        return None
    found = call.direct(flat, more, weight, bias)
    if found is None or len(shape) == 2:
        return found
    one = residual is None or not total
    return found.view(shape) if one else (found[0].view(shape), found[1].view(shape))


def of_arrays(x: Any, residual: Any, weight: Any, bias: Any, kind: str, eps: float) -> Any:
    """Over NumPy arrays."""
    np = arrays.numpy()
    x = arrays.array(x, "x")
    given = {"residual": residual, "weight": weight, "bias": bias}
    residual, weight, bias = (None if t is None else arrays.array(t, name) for name, t in given.items())
    check(x, weight, bias, residual, kind, eps)
    outputs = [np.empty(x.shape, x.dtype) for _ in range(1 if residual is None else 2)]
    if x.size:
        flat = lambda a: None if a is None else np.ascontiguousarray(a).reshape(-1, x.shape[-1])
        line = lambda a: None if a is None else np.ascontiguousarray(a)
        call = call_of(x, residual, weight, bias, kind, eps)
        call(flat(x), flat(residual), line(weight), line(bias), *(o.reshape(-1, x.shape[-1]) for o in outputs))
    return outputs[0] if residual is None else tuple(outputs)
