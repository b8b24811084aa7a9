"""Problems of norms, what a call asks of shapes, and NumPy arrays."""

from __future__ import annotations

import math
from typing import Any, Literal, Sequence

from ... import _warplap
from ...arrays import numpy as arrays
from ...operator.call.call_cache import prepared_call
from ...operator.problem_text import dtype_name, fields, text

Kind = Literal["rms", "layer"]
Quant = Literal["fp8", "int8"]
# What a norm may be written as, by the problem's names.
FORMATS = {"fp8": "f8e4m3", "int8": "i8"}


def _fields(shape: Sequence[int], dtype: Any, weight: bool, bias: bool, kind: str, eps: float) -> dict[str, Any]:
    rows = {"rows": math.prod(shape[:-1]), "n": shape[-1], "dtype": dtype_name(dtype)}
    return {**rows, "kind": kind, "weight": str(weight).lower(), "bias": bias, "eps": eps}


@prepared_call
def prepared(
    shape: Sequence[int], dtype: Any, residual: bool, weight: bool, bias: bool, kind: str, eps: float,
    total: bool = True,
) -> str:  # fmt: skip
    """Rows of a shape; with a residual the sum is written too, where it is wanted."""
    own = _fields(shape, dtype, weight, bias, kind, eps)
    return text("norm", **own, residual=residual, sum=None if total else "false")


@prepared_call
def front_call(
    shape: Sequence[int], dtype: Any, residual: bool, weight: bool, bias: bool, before: bool, kind: str, eps: float,
    dropout: float, quant: str | None = None,
) -> str:  # fmt: skip
    """The same with what may stand in front; written as codes with a factor a row where ``quant`` says so."""
    own = _fields(shape, dtype, weight, bias, kind, eps)
    return text("norm", **own, residual=residual, before=before, dropout=dropout, quant=FORMATS.get(quant or ""))


@prepared_call
def grad_call(
    shape: Sequence[int], dtype: Any, weight: bool, bias: bool, total: bool, kind: str, eps: float, dropout: float
) -> str:
    """The gradients of rows of a shape."""
    return text("norm_grad", **_fields(shape, dtype, weight, bias, kind, eps), total=total, dropout=dropout)


def call_of(
    x: Any, residual: Any, weight: Any, bias: Any, kind: str, eps: float, total: bool = True
) -> _warplap.Prepared:
    """The call for these tensors, ready."""
    return prepared(x.shape, x.dtype, residual is not None, weight is not None, bias is not None, kind, eps, total)


def problem(
    x: Any, weight: Any = None, bias: Any = None, residual: Any = None, kind: Kind = "rms", eps: float = 1e-5,
    before: Any = None, dropout: float = 0.0, seed: Any = None, quant: Quant | None = None,
) -> str:  # fmt: skip
    """The problem that a call is, in its text form."""
    check(x, weight, bias, residual, kind, eps, quant)
    if quant is None and before is None and not dropout:
        return call_of(x, residual, weight, bias, kind, float(eps)).problem
    has = [t is not None for t in (residual, weight, bias, before)]
    return front_call(tuple(x.shape), x.dtype, *has, kind, float(eps), float(dropout), quant).problem


def statistics(problem: str) -> dict[str, Any]:
    """What torch needs to know of a problem."""
    said = fields(problem)
    return {"layer": said["kind"] == "layer", "eps": float(said.get("eps", 1e-5))}


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


def of_arrays(x: Any, residual: Any, weight: Any, bias: Any, kind: str, eps: float) -> Any:
    """Over NumPy arrays."""
    np = arrays.numpy()
    x = arrays.array(x, "x")
    inputs = {"residual": residual, "weight": weight, "bias": bias}
    residual, weight, bias = (None if t is None else arrays.array(t, name) for name, t in inputs.items())
    check(x, weight, bias, residual, kind, eps)
    outputs = [np.empty(x.shape, x.dtype) for _ in range(1 if residual is None else 2)]
    if x.size:
        flat = lambda a: None if a is None else np.ascontiguousarray(a).reshape(-1, x.shape[-1])
        line = lambda a: None if a is None else np.ascontiguousarray(a)
        call = call_of(x, residual, weight, bias, kind, eps)
        call(flat(x), flat(residual), line(weight), line(bias), *(o.reshape(-1, x.shape[-1]) for o in outputs))
    return outputs[0] if residual is None else tuple(outputs)
