"""Norms as 8-bit numbers with one factor a row, over torch tensors: what ``scaled_mm`` and ``int_mm`` take. No gradient
goes through a code: who wants one is told so."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...operator import cuda, problem_fields
from ...operator.torch_fallback import is_double
from ...operator.compile import compiled, fake
from .prologue import checked, summed
from ...operator.library import floats, lib, op, ordinary, rows, wants
from ...operator.eager import PLAIN, is_watched
from .problem import FORMATS, check, quant_call
from .dense import _kind, _lent
from ..dropout import drawn

# What the largest of a row becomes, and the type of codes.
_CODES = {"fp8": (448.0, torch.float8_e4m3fn), "int8": (127.0, torch.int8)}
# What a row's largest is never said to be below.
_LEAST = 1e-30

_given = "Tensor? weight, Tensor? bias, bool layer, float eps"
for _schema in (
    f"norm_quant(Tensor x, {_given}, str quant) -> (Tensor, Tensor)",
    f"norm_front_quant(Tensor x, Tensor? residual, Tensor? before, Tensor? seed, {_given}, float dropout, str quant)"
    " -> (Tensor, Tensor, Tensor)",
):
    lib.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))


def coded(y: Tensor, quant: str) -> tuple[Tensor, Tensor]:
    """Codes of rows and their factors, by torch."""
    top, dtype = _CODES[quant]
    most = y.abs().amax(-1, keepdim=True).clamp(min=_LEAST)
    # Casts of torch make NaN of what is beyond, by a rounding.
    codes = (y * (top / most)).clamp(-top, top)
    return (codes.round() if dtype == torch.int8 else codes).to(dtype), (most / top).to(torch.float32)


def by_torch(
    x: Tensor, residual: Tensor | None = None, weight: Tensor | None = None, bias: Tensor | None = None,
    *, layer: bool, eps: float, quant: str, total_too: bool = True,
) -> tuple[Tensor, ...]:  # fmt: skip
    """What torch has for it: a norm in float32, its largest, a quotient and a cast."""
    total = _whole(x, residual)
    codes, scale = coded(_normed(total, weight, bias, layer, eps), quant)
    more = (total.to(x.dtype),) if residual is not None and total_too else ()
    return (codes, *more, scale.flatten())


def _whole(x: Tensor, residual: Tensor | None) -> Tensor:
    return summed(x, residual, None, None, 0.0)


def _normed(total: Tensor, weight: Tensor | None, bias: Tensor | None, layer: bool, eps: float) -> Tensor:
    weight, bias = (t if t is None else t.to(total.dtype) for t in (weight, bias))
    if layer:
        return F.layer_norm(total, total.shape[-1:], weight, bias, eps)
    y = F.rms_norm(total, total.shape[-1:], weight, eps)
    return y if bias is None else y + bias


def facts(problem: str) -> dict[str, Any]:
    """What torch needs to know of a problem."""
    given = problem_fields.fields(problem)
    quant = next(name for name, code in FORMATS.items() if code == given["quant"])
    return {**_kind(problem), "quant": quant, "total_too": given.get("sum") != "false"}


def fit(problem: str) -> str | None:
    """Why torch's stands aside, if so."""
    given = problem_fields.fields(problem)
    if "quant" not in given:
        return "norms that are written as codes only"
    return "torch draws other numbers" if given.keys() & {"before", "dropout"} else None


def _run_front(
    x: Tensor, residual: Tensor | None, before: Tensor | None, seed: Tensor | None, weight: Tensor | None,
    bias: Tensor | None, layer: bool, eps: float, dropout: float, quant: str,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Codes, factors and, where anything is in front, the sum: by whoever is fastest here and right; what no problem
    expresses goes to torch."""
    shape, fronted = x.shape, residual is not None or before is not None or seed is not None
    flat, more = rows(x), None if residual is None else rows(residual)
    found: Any = None
    if ordinary(flat) and x.numel() <= 1 << 31 and x.dtype != torch.float64:
        x_, more_, weight_, bias_, before_ = (_lent(t) for t in (flat, more, weight, bias, before))
        has = [t is not None for t in (residual, weight, bias, before)]
        try:
            call = quant_call(tuple(flat.shape), x.dtype, *has, "layer" if layer else "rms", eps, dropout, quant)
            found = call(x_, more_, weight_, bias_, None, None, before_, seed)
        except NotImplementedError as why:
            cuda.tell("torch", why)
    if found is None:
        total = summed(flat, more, before, seed, dropout)
        y = _normed(total, weight, bias, layer, eps)
        # A row of nothing has no largest.
        codes, scale = coded(y if y.shape[-1] else y.new_zeros((*y.shape[:-1], 1)), quant)
        found = (codes[..., : y.shape[-1]], *((total.to(x.dtype),) if fronted else ()), scale)
    given = found[0].reshape(shape), found[-1].reshape(*shape[:-1], 1)
    return (*given, found[1].reshape(shape)) if fronted else given


def _run(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, layer: bool, eps: float, quant: str
) -> tuple[Tensor, ...]:
    return _run_front(x, None, None, None, weight, bias, layer, eps, 0.0, quant)


for _device in ("CPU", "CUDA"):
    lib.impl("norm_quant", _run, _device)
    lib.impl("norm_front_quant", _run_front, _device)


def _shapes(x: Tensor, quant: str) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape, dtype=_CODES[quant][1]), x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)


@fake("norm_quant")
def _fake(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return _shapes(x, rest[-1])


@fake("norm_front_quant")
def _front_fake(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    return *_shapes(x, rest[-1]), x.new_empty(x.shape)


compiled("norm_quant", _run)
compiled("norm_front_quant", _run_front)


def norm(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, kind: str, eps: float,
    before: Tensor | None, dropout: float, seed: Any, quant: str,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Codes and factors, and the sum where anything is in front."""
    check(x, weight, bias, residual, kind, eps, quant)
    checked(x, before, dropout)
    if x.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(x.device.type):
        # As without codes: x decides.
        residual, weight, bias, before = (t if t is None else t.to(x.dtype) for t in (residual, weight, bias, before))
    tensors = {"x": x, "residual": residual, "weight": weight, "bias": bias, "before": before}
    if wants(*tensors.values()):
        name = next(name for name, t in tensors.items() if t is not None and t.requires_grad)
        raise NotImplementedError(
            f"quant: codes have no gradient, and {name} requires one; call it under torch.no_grad(), or detach {name}"
        )
    if not is_double(*tensors.values()):
        floats(**tensors)
    words = drawn(seed, x.device) if dropout else None
    fronted = residual is not None or before is not None or words is not None
    given: tuple[Any, ...] = (weight, bias, kind == "layer", eps)
    given = (x, residual, before, words, *given, dropout, quant) if fronted else (x, *given, quant)
    plain = all(t is None or (type(t) in PLAIN and (t.is_cpu or t.is_cuda)) for t in tensors.values())
    found: tuple[Tensor, ...]
    if torch.compiler.is_compiling() or not plain or is_watched():
        found = (op.norm_front_quant if fronted else op.norm_quant)(*given)
    else:
        found = (_run_front if fronted else _run)(*given)
    return found
