"""Norms of rows, and of sums of two, over torch's tensors."""

from __future__ import annotations

from typing import Any

from ...operator import autocast
from ...operator.call.direct import REFUSALS
from ...operator.call.eager import PLAIN, is_plain
from ...operator.call.fallback import are_torchs, kernel_or_torch
from ...operator.candidate import Candidate
from ...operator.checks import are_raced, floats, is_double, is_raced, wants
from ...operator.declare import Operator, like
from ...operator.layout import kernel_input, rows
from ...operator.optional_torch import F, Tensor, torch
from ...operator.problem_text import fields
from . import gradients
from .problem import call_of, check, grad_call, prepared, statistics


def by_torch(
    x: Tensor,
    residual: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    layer: bool,
    eps: float,
    total_too: bool = True,
) -> Any:
    """What torch has for it: a sum, then a norm."""
    total = x if residual is None else x + residual
    if layer:
        y = F.layer_norm(total, total.shape[-1:], weight, bias, eps)
    else:
        y = F.rms_norm(total, total.shape[-1:], weight, eps)
        y = y if bias is None else y + bias
    return (y, total) if residual is not None and total_too else y


def facts(problem: str) -> dict[str, Any]:
    """What torch needs to know of a problem."""
    unread = fields(problem).get("sum") == "false"
    return {**statistics(problem), **({"total_too": False} if unread else {})}


def fit(problem: str) -> str | None:
    """Why torch's stands aside, if so."""
    said = fields(problem)
    if said.keys() & {"before", "dropout"}:
        return "torch draws other numbers, and rounds in between"
    if "quant" in said:
        return "torch has codes of a norm's numbers as steps of their own"
    if said["kind"] == "rms" and said.get("bias") == "true" and said["dtype"] != "f32":
        return "torch rounds to half precision before it adds a bias to RMSNorm"
    return None


CANDIDATES = [
    Candidate("norm", "torch_norm", by_torch, fit, facts=facts, returns=True),
    Candidate("norm_grad", "torch_norm_grad", gradients.by_torch, fit, facts=gradients.facts, returns=True),
]


def direct(
    x: Any, residual: Any, weight: Any, bias: Any, kind: str, eps: float, total: bool = True
) -> Any:
    """At once, over plain tensors of which nobody wants a gradient; None for everything else."""
    if type(x) not in PLAIN:
        return None
    shape, flat, more = x.shape, x, residual
    try:
        if residual is not None and residual.shape != shape:
            return None
        call = call_of(x, residual, weight, bias, kind, eps, total)
        if len(shape) != 2:
            flat, more = x.view(-1, shape[-1]), None if residual is None else residual.view(-1, shape[-1])
    except REFUSALS:
        return None
    y = call.direct(flat, more, weight, bias)
    if y is None or len(shape) == 2:
        return y
    return y.view(shape) if residual is None or not total else (y[0].view(shape), y[1].view(shape))


def run(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, layer: bool, eps: float,
    total_too: bool = True,
) -> Any:  # fmt: skip
    """By whoever is fastest here and right; what no problem expresses goes to torch."""
    kind = "layer" if layer else "rms"
    result = direct(x, residual, weight, bias, kind, eps, total_too)
    if result is not None:
        return result
    shape, alone = x.shape, residual is None or not total_too
    if x.numel() == 0:
        return x.new_empty(shape) if alone else (x.new_empty(shape), x.new_empty(shape))
    flat, more = kernel_input(rows(x)), None if residual is None else kernel_input(rows(residual))
    weight, bias = kernel_input(weight), kernel_input(bias)
    result = kernel_or_torch(
        lambda: call_of(flat, more, weight, bias, kind, eps, total_too)(flat, more, weight, bias),
        lambda: by_torch(flat, more, weight, bias, layer=layer, eps=eps, total_too=total_too),
        is_raced(flat),
    )
    if alone:
        return result.reshape(shape)
    return result[0].reshape(shape), result[1].reshape(shape)


def run_alone(x: Tensor, weight: Tensor | None, bias: Tensor | None, layer: bool, eps: float) -> Tensor:
    return run(x, None, weight, bias, layer, eps)  # type: ignore[no-any-return]


def _of_sum(
    x: Tensor, residual: Tensor, weight: Tensor | None, bias: Tensor | None, layer: bool, eps: float
) -> Tensor:
    return run(x, residual, weight, bias, layer, eps, total_too=False)  # type: ignore[no-any-return]


def two_shapes(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, _, ctx.layer, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    result = gradients.at_once(grad, x, weight, ctx.layer, ctx.eps, ctx.needs_input_grad[2])
    if result is not None:
        return *(g if needed else None for g, needed in zip(result[1:], ctx.needs_input_grad)), None, None
    result = gradients.gradients(grad, x, weight, ctx.layer, ctx.eps)
    wanted = [g.to(grad.dtype) if needed else None for g, needed in zip(result, ctx.needs_input_grad)]
    return (*wanted, None, None)


def _save_sum(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, _, weight, _, ctx.layer, ctx.eps = inputs
    ctx.save_for_backward(output[1], weight)
    ctx.set_materialize_grads(False)  # a sum that nobody else reads has none, and nobody writes zeros for it


def _sum_backward(ctx: Any, grad: Tensor | None, grad_total: Tensor | None) -> tuple[Tensor | None, ...]:
    total, weight = ctx.saved_tensors
    grad = torch.zeros_like(total) if grad is None else grad
    at_once = gradients.at_once(grad, total, weight, ctx.layer, ctx.eps, ctx.needs_input_grad[3], grad_total)
    if at_once is not None:
        return *(g if needed else None for g, needed in zip(at_once, ctx.needs_input_grad)), None, None
    down, of_weight, of_bias = gradients.gradients(grad, total, weight, ctx.layer, ctx.eps)
    down = down if grad_total is None else down + grad_total
    result = (down, down, of_weight, of_bias)
    wanted = [g.to(grad.dtype) if needed else None for g, needed in zip(result, ctx.needs_input_grad)]
    return (*wanted, None, None)


_numbers = "Tensor? weight, Tensor? bias, bool layer, float eps"
NORM = Operator(f"norm(Tensor x, {_numbers}) -> Tensor", run_alone, like(), save=_save, backward=_backward)
NORM_ADD = Operator(
    f"norm_add(Tensor x, Tensor residual, {_numbers}) -> (Tensor, Tensor)",
    run, two_shapes, save=_save_sum, backward=_sum_backward,
)  # fmt: skip
NORM_OF_SUM = Operator(f"norm_of_sum(Tensor x, Tensor residual, {_numbers}) -> Tensor", _of_sum, like())


def _is_torchs_step(x: Tensor, weight: Tensor | None, bias: Tensor | None, kind: str, eps: float) -> bool:
    """Whether nothing is decided about a norm with its gradients, and torch's own stands in for both."""
    n = x.shape[-1]
    if not n or not is_plain(x) or not are_raced(x.numel() // n, n):
        return False
    flat, has = (x.numel() // n, n), (weight is not None, bias is not None)
    both = prepared(flat, x.dtype, False, *has, kind, eps), grad_call(flat, x.dtype, *has, False, kind, eps, 0.0)
    return are_torchs(x, *both)


def norm(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, kind: str, eps: float,
    total_too: bool = True,
) -> Any:  # fmt: skip
    """The norm, and with a residual the sum beside it, unless nobody reads that one."""
    check(x, weight, bias, residual, kind, eps)
    residual, weight, bias = autocast.like_first(x, residual, weight, bias)
    if is_double(x, residual, weight, bias):
        return by_torch(x, residual, weight, bias, layer=kind == "layer", eps=eps, total_too=total_too)
    floats(x=x, residual=residual, weight=weight, bias=bias)
    if residual is None:
        if torch.is_grad_enabled() and _is_torchs_step(x, weight, bias, kind, eps):
            return by_torch(x, None, weight, bias, layer=kind == "layer", eps=eps)
        return NORM.call(x, weight, bias, kind == "layer", eps)
    if not total_too and not wants(x, residual, weight, bias):
        return NORM_OF_SUM.dispatched(x, residual, weight, bias, kind == "layer", eps)
    result = NORM_ADD.call(x, residual, weight, bias, kind == "layer", eps)  # backward passes read the sum
    return result if total_too else result[0]
