"""What may stand in front of a norm, over torch tensors: y, s = norm(s) with s = dropout(x + before) + residual, where
an element's place and a seed say whether it is dropped."""

from __future__ import annotations

from typing import Any

from ...operator.call.fallback import kernel_or_torch
from ...operator.checks import floats, is_double, is_raced
from ...operator.declare import Operator
from ...operator.layout import kernel_input, rows
from ...operator.optional_torch import Tensor, torch
from ..dropout import drawn, factors
from . import gradients
from .dense import by_torch
from .problem import check, front_call


def summed(x: Tensor, residual: Tensor | None, before: Tensor | None, seed: Tensor | None, dropout: float) -> Tensor:
    """What is normalised, by torch."""
    wide = torch.promote_types(x.dtype, torch.float32)
    total = x.to(wide) if before is None else x.to(wide) + before.to(wide)
    if seed is not None:
        total = total * factors(x.numel(), seed, dropout).view(x.shape)
    return total if residual is None else total + residual.to(wide)


def _run(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, before: Tensor | None,
    seed: Tensor | None, layer: bool, eps: float, dropout: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """By whoever is fastest here and right; what no problem expresses goes to torch."""
    shape = x.shape
    if x.numel() == 0:
        return x.new_empty(shape), x.new_empty(shape)
    flat, more = rows(x), None if residual is None else rows(residual)

    def by_kernel() -> Any:
        x_, more_, weight_, bias_, before_ = (kernel_input(t) for t in (flat, more, weight, bias, before))
        has = [t is not None for t in (residual, weight, bias, before)]
        call = front_call(tuple(flat.shape), x.dtype, *has, "layer" if layer else "rms", eps, dropout)
        return call(x_, more_, weight_, bias_, None, None, before_, seed)

    def theirs() -> Any:
        total = summed(flat, more, before, seed, dropout)
        wide = [t if t is None else t.to(total.dtype) for t in (weight, bias)]
        return by_torch(total, None, *wide, layer=layer, eps=eps).to(x.dtype), total.to(x.dtype)

    result = kernel_or_torch(by_kernel, theirs, is_raced(flat))
    return result[0].reshape(shape), result[1].reshape(shape)


def _shapes(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, _, weight, _, _, seed, ctx.layer, ctx.eps, ctx.dropout = inputs
    ctx.save_for_backward(output[1], weight, seed)
    ctx.set_materialize_grads(False)  # as of a sum alone


def _backward(ctx: Any, grad: Tensor | None, grad_total: Tensor | None) -> tuple[Tensor | None, ...]:
    total, weight, seed = ctx.saved_tensors
    grad = torch.zeros_like(total) if grad is None else grad
    behind = grad, total, weight, ctx.layer, ctx.eps, ctx.needs_input_grad[3], grad_total, seed, ctx.dropout
    at_once: Any = gradients.at_once(*behind)
    if at_once is not None:
        down, of_x, of_weight, of_bias = at_once
        of_before = of_x.view(-1, of_x.shape[-1]).sum(0, dtype=torch.float32) if ctx.needs_input_grad[4] else None
        result = (of_x, down, of_weight, of_bias, of_before)
        wanted = [g.to(grad.dtype) if needed else None for g, needed in zip(result, ctx.needs_input_grad)]
        return (*wanted, None, None, None, None)
    down, of_weight, of_bias = gradients.gradients(grad, total, weight, ctx.layer, ctx.eps)
    down = down if grad_total is None else down + grad_total
    of_x = down if seed is None else down * factors(down.numel(), seed, ctx.dropout).view(down.shape)
    of_before = of_x.reshape(-1, of_x.shape[-1]).sum(0)
    result = (of_x, down, of_weight, of_bias, of_before)
    wanted = [g.to(grad.dtype) if needed else None for g, needed in zip(result, ctx.needs_input_grad)]
    return (*wanted, None, None, None, None)


FRONT = Operator(
    "norm_front(Tensor x, Tensor? residual, Tensor? weight, Tensor? bias, Tensor? before, Tensor? seed, bool layer,"
    " float eps, float dropout) -> (Tensor, Tensor)",
    _run, _shapes, save=_save, backward=_backward,
)  # fmt: skip


def check_front(x: Tensor, before: Tensor | None, dropout: float) -> None:
    """Whether what stands in front is what there is."""
    if before is not None and tuple(before.shape) != tuple(x.shape[-1:]):
        raise ValueError(f"before: has shape {list(before.shape)}, expected {list(x.shape[-1:])}")
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout: is {dropout}, expected a number from 0 to below 1")


def norm(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, kind: str, eps: float,
    before: Tensor | None, dropout: float, seed: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    check(x, weight, bias, residual, kind, eps)
    check_front(x, before, dropout)
    words = drawn(seed, x.device) if dropout else None
    if is_double(x, residual, weight, bias, before):
        total = summed(x, residual, before, words, dropout)
        return by_torch(total, None, weight, bias, layer=kind == "layer", eps=eps), total
    floats(x=x, residual=residual, weight=weight, bias=bias, before=before)
    return FRONT.call(x, residual, weight, bias, before, words, kind == "layer", eps, dropout)
