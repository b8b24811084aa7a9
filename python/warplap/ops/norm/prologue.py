"""What may stand in front of a norm, over torch tensors: y, s = norm(s) with s = dropout(x + before) + residual, where
an element's place and a seed say whether it is dropped."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...operator import cuda
from ...operator.torch_fallback import is_double
from ...operator.compile import fake
from ...operator.library import floats, lib, ordinary, rows
from ...operator.eager import operator
from .problem import check, front_call
from .dense import _lent, by_torch, gradients, gradients_at_once
from ..dropout import drawn, factors

lib.define(
    "norm_front(Tensor x, Tensor? residual, Tensor? weight, Tensor? bias, Tensor? before, Tensor? seed, bool layer,"
    " float eps, float dropout) -> (Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag,),
)


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
    tensors = [_lent(t) for t in (flat, more, weight, bias, before)]
    found = None
    if ordinary(flat) and x.numel() <= 1 << 31:
        has = [t is not None for t in (residual, weight, bias, before)]
        try:
            call = front_call(tuple(flat.shape), x.dtype, *has, "layer" if layer else "rms", eps, dropout)
            found = call(*tensors[:4], None, None, tensors[4], seed)
        except NotImplementedError as why:
            cuda.tell("torch", why)
    if found is None:
        total = summed(flat, more, before, seed, dropout)
        wide = [t if t is None else t.to(total.dtype) for t in (weight, bias)]
        found = by_torch(total, None, *wide, layer=layer, eps=eps).to(x.dtype), total.to(x.dtype)
    return found[0].reshape(shape), found[1].reshape(shape)


for _device in ("CPU", "CUDA"):
    lib.impl("norm_front", _run, _device)


@fake("norm_front")
def _front_fake(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, _, weight, _, _, seed, ctx.layer, ctx.eps, ctx.dropout = inputs
    ctx.save_for_backward(output[1], weight, seed)
    ctx.set_materialize_grads(False)  # as of a sum alone


def _backward(ctx: Any, grad: Tensor | None, grad_total: Tensor | None) -> tuple[Tensor | None, ...]:
    total, weight, seed = ctx.saved_tensors
    grad = torch.zeros_like(total) if grad is None else grad
    given = grad, total, weight, ctx.layer, ctx.eps, ctx.needs_input_grad[3], grad_total, seed, ctx.dropout
    at_once: Any = gradients_at_once(*given)
    if at_once is not None:
        down, of_x, of_weight, of_bias = at_once
        of_before = of_x.view(-1, of_x.shape[-1]).sum(0, dtype=torch.float32) if ctx.needs_input_grad[4] else None
        found = (of_x, down, of_weight, of_bias, of_before)
        wanted = [g.to(grad.dtype) if needed else None for g, needed in zip(found, ctx.needs_input_grad)]
        return (*wanted, None, None, None, None)
    down, of_weight, of_bias = gradients(grad, total, weight, ctx.layer, ctx.eps)
    down = down if grad_total is None else down + grad_total
    of_x = down if seed is None else down * factors(down.numel(), seed, ctx.dropout).view(down.shape)
    of_before = of_x.reshape(-1, of_x.shape[-1]).sum(0)
    found = (of_x, down, of_weight, of_bias, of_before)
    wanted = [g.to(grad.dtype) if needed else None for g, needed in zip(found, ctx.needs_input_grad)]
    return (*wanted, None, None, None, None)


_front = operator("norm_front", _run, _save, _backward).call


def checked(x: Tensor, before: Tensor | None, dropout: float) -> None:
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
    checked(x, before, dropout)
    words = drawn(seed, x.device) if dropout else None
    if is_double(x, residual, weight, bias, before):
        total = summed(x, residual, before, words, dropout)
        return by_torch(total, None, weight, bias, layer=kind == "layer", eps=eps), total
    floats(x=x, residual=residual, weight=weight, bias=bias, before=before)
    return _front(x, residual, weight, bias, before, words, kind == "layer", eps, dropout)
