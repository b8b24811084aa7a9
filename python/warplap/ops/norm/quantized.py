"""Norms as 8-bit numbers with one factor a row, over torch tensors: what ``scaled_mm`` and ``int_mm`` take. No gradient
goes through a code: who wants one is told so."""

from __future__ import annotations

from typing import Any

from ...operator import autocast
from ...operator.call.fallback import kernel_or_torch
from ...operator.candidate import Candidate
from ...operator.checks import floats, is_double, is_raced, wants
from ...operator.declare import Operator
from ...operator.layout import kernel_input, rows
from ...operator.optional_torch import F, Tensor, torch
from ...operator.problem_text import fields
from ..dropout import drawn
from .problem import FORMATS, check, front_call, statistics
from .prologue import check_front, summed

# What the largest of a row becomes, and the type of codes.
_CODES = {} if torch is None else {"fp8": (448.0, torch.float8_e4m3fn), "int8": (127.0, torch.int8)}
# What a row's largest is never said to be below.
_LEAST = 1e-30


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
    said = fields(problem)
    quant = next(name for name, code in FORMATS.items() if code == said["quant"])
    return {**statistics(problem), "quant": quant, "total_too": said.get("sum") != "false"}


def fit(problem: str) -> str | None:
    """Why torch's stands aside, if so."""
    said = fields(problem)
    if "quant" not in said:
        return "norms that are written as codes only"
    return "torch draws other numbers" if said.keys() & {"before", "dropout"} else None


CANDIDATES = [Candidate("norm", "torch_norm_quant", by_torch, fit, facts=facts, returns=True)]


def _run_front(
    x: Tensor, residual: Tensor | None, before: Tensor | None, seed: Tensor | None, weight: Tensor | None,
    bias: Tensor | None, layer: bool, eps: float, dropout: float, quant: str,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Codes, factors and, where anything is in front, the sum: by whoever is fastest here and right; what no problem
    expresses goes to torch."""
    shape, fronted = x.shape, residual is not None or before is not None or seed is not None
    flat, more = rows(x), None if residual is None else rows(residual)

    def by_kernel() -> Any:
        x_, more_, weight_, bias_, before_ = (kernel_input(t) for t in (flat, more, weight, bias, before))
        has = [t is not None for t in (residual, weight, bias, before)]
        call = front_call(tuple(flat.shape), x.dtype, *has, "layer" if layer else "rms", eps, dropout, quant)
        return call(x_, more_, weight_, bias_, None, None, before_, seed)

    def theirs() -> Any:
        total = summed(flat, more, before, seed, dropout)
        y = _normed(total, weight, bias, layer, eps)
        # A row of nothing has no largest.
        codes, scale = coded(y if y.shape[-1] else y.new_zeros((*y.shape[:-1], 1)), quant)
        return codes[..., : y.shape[-1]], *((total.to(x.dtype),) if fronted else ()), scale

    result = kernel_or_torch(by_kernel, theirs, is_raced(flat) and x.dtype != torch.float64)
    codes, scale = result[0].reshape(shape), result[-1].reshape(*shape[:-1], 1)
    return (codes, scale, result[1].reshape(shape)) if fronted else (codes, scale)


def _run(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, layer: bool, eps: float, quant: str
) -> tuple[Tensor, ...]:
    return _run_front(x, None, None, None, weight, bias, layer, eps, 0.0, quant)


def _shapes(x: Tensor, quant: str) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape, dtype=_CODES[quant][1]), x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)


def _own_shapes(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return _shapes(x, rest[-1])


def _front_shapes(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    return *_shapes(x, rest[-1]), x.new_empty(x.shape)


_numbers = "Tensor? weight, Tensor? bias, bool layer, float eps"
QUANT = Operator(f"norm_quant(Tensor x, {_numbers}, str quant) -> (Tensor, Tensor)", _run, _own_shapes)
FRONT_QUANT = Operator(
    f"norm_front_quant(Tensor x, Tensor? residual, Tensor? before, Tensor? seed, {_numbers}, float dropout, str quant)"
    " -> (Tensor, Tensor, Tensor)",
    _run_front, _front_shapes,
)  # fmt: skip


def norm(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, kind: str, eps: float,
    before: Tensor | None, dropout: float, seed: Any, quant: str,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Codes and factors, and the sum where anything is in front."""
    check(x, weight, bias, residual, kind, eps, quant)
    check_front(x, before, dropout)
    residual, weight, bias, before = autocast.like_first(x, residual, weight, bias, before)
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
    rest: tuple[Any, ...] = (weight, bias, kind == "layer", eps)
    if fronted:
        return FRONT_QUANT.call(x, residual, before, words, *rest, dropout, quant)  # type: ignore[no-any-return]
    return QUANT.call(x, *rest, quant)  # type: ignore[no-any-return]
