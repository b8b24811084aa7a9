"""Gradients of norms: by the operation ``norm_grad``, by torch's own backward operators, and by a formula that has
gradients itself."""

from __future__ import annotations

from typing import Any

from ...operator.call.eager import PLAIN, is_watched, modes, traced_types, transform
from ...operator.call.fallback import kernel_or_none
from ...operator.checks import is_raced
from ...operator.declare import Operator
from ...operator.layout import kernel_input, rows
from ...operator.optional_torch import Tensor, torch
from ...operator.problem_text import fields
from ..dropout import factors
from .problem import grad_call, statistics


def _is_batched(grad: Tensor) -> bool:
    """Whether a gradient is many at once (``is_grads_batched``), which is no transform that anybody could ask for."""
    return bool(torch._C._functorch.is_legacy_batchedtensor(grad))


def gradients(
    grad: Tensor, total: Tensor, weight: Tensor | None, layer: bool, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of what is normalised, of the weight and of the bias; sums of half types are in float32."""
    wide = torch.promote_types(total.dtype, torch.float32)
    grad, centred = grad.to(wide), total.to(wide)
    if layer:
        centred = centred - centred.mean(-1, keepdim=True)
    inverse = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    normed = centred * inverse
    inner = grad if weight is None else grad * weight.to(wide)
    down = inner - normed * (inner * normed).mean(-1, keepdim=True)
    if layer:
        down = down - inner.mean(-1, keepdim=True)
    lead = list(range(total.ndim - 1))
    over = lambda t: t.sum(lead) if lead else t
    return down * inverse, over(grad * normed), over(grad)


def _fused(
    grad: Tensor, s: Tensor, weight: Tensor | None, layer: bool, eps: float, bias: bool
) -> tuple[Tensor, Any, Any] | None:
    """The same by the operator that torch's own backward pass calls, with statistics made anew; None where there is
    none, or one that keeps statistics in half precision."""
    n, aten = s.shape[-1], torch.ops.aten
    if not s.is_cuda and s.dtype != torch.float32:
        return None
    if layer:
        _, mean, inverse = aten.native_layer_norm(s, [n], None, None, eps)
        ones = torch.ones(n, dtype=s.dtype, device=s.device) if weight is None and bias else weight
        wanted = [True, weight is not None, bias]
        backward: Any = aten.native_layer_norm_backward
        return backward(grad, s, [n], mean, inverse, ones, ones, wanted)  # type: ignore[no-any-return]
    if not s.is_cuda or not hasattr(aten, "_fused_rms_norm_backward"):
        return None
    inverse = torch.linalg.vector_norm(s, dim=-1, keepdim=True, dtype=torch.float32).square().div_(n).add_(eps).rsqrt_()
    down, of_weight = aten._fused_rms_norm_backward(grad, s, [n], inverse, weight, [True, weight is not None])
    return down, of_weight, grad.sum(0, dtype=torch.float32) if bias else None


def by_torch(
    s: Tensor, grad: Tensor, weight: Tensor | None = None, more: Tensor | None = None, seed: None = None,
    *, layer: bool, eps: float, bias: bool,
) -> Any:  # fmt: skip
    """What torch's operators make of ``norm_grad``."""
    down, of_weight, of_bias = _fused(grad, s, weight, layer, eps, bias) or gradients(grad, s, weight, layer, eps)
    down = down if more is None else down + more
    wanted = (down, of_weight if weight is not None else None, of_bias if bias else None)
    result = tuple(t.to(s.dtype) for t in wanted if t is not None)
    return result[0] if len(result) == 1 else result


def facts(problem: str) -> dict[str, Any]:
    """What torch needs to know of a problem."""
    return {**statistics(problem), "bias": fields(problem).get("bias") == "true"}


def _by_kernel(
    grad: Tensor, total: Tensor, weight: Tensor | None, more: Tensor | None, seed: Tensor | None,
    layer: bool, eps: float, dropout: float, bias: bool,
) -> list[Tensor] | None:  # fmt: skip
    """The gradients of what is normalised (with ``more`` from elsewhere), of what elements were dropped of, of the
    weight and of the bias, those that there are; None for what no problem expresses."""
    flat = rows(total)
    if not is_raced(flat):
        return None
    tensors = [kernel_input(t) for t in (flat, rows(grad), weight, None if more is None else rows(more))]
    has = weight is not None, bias, more is not None

    def by_kernel() -> list[Tensor]:
        result = grad_call(flat.shape, total.dtype, *has, "layer" if layer else "rms", eps, dropout)(*tensors, seed)
        result = list(result) if isinstance(result, tuple) else [result]
        wide = 1 if seed is None else 2
        return [t.reshape(total.shape) for t in result[:wide]] + result[wide:]

    return kernel_or_none(by_kernel)


def _run(
    grad: Tensor, total: Tensor, weight: Tensor | None, more: Tensor | None, seed: Tensor | None,
    layer: bool, eps: float, dropout: float, bias: bool,
) -> list[Tensor]:  # fmt: skip
    """The same by whoever is fastest here and right."""
    result = _by_kernel(grad, total, weight, more, seed, layer, eps, dropout, bias)
    if result is not None:
        return result
    down, of_weight, of_bias = gradients(rows(grad), rows(total), weight, layer, eps)
    down = (down if more is None else down + rows(more)).reshape(total.shape)
    of_x = None if seed is None else down * factors(down.numel(), seed, dropout).view(down.shape)
    wanted = down, of_x, None if weight is None else of_weight, of_bias if bias else None
    return [t.to(total.dtype).contiguous() for t in wanted if t is not None]


def _shapes(
    grad: Tensor, total: Tensor, weight: Tensor | None, more: Tensor | None, seed: Tensor | None,
    layer: bool, eps: float, dropout: float, bias: bool,
) -> list[Tensor]:  # fmt: skip
    wide, lines = 1 if seed is None else 2, (weight is not None) + bias
    return [total.new_empty(shape) for shape in wide * [total.shape] + lines * [total.shape[-1:]]]


GRAD = Operator(  # nobody differentiates it
    "norm_grad(Tensor grad, Tensor total, Tensor? weight, Tensor? more, Tensor? seed, bool layer, float eps,"
    " float dropout, bool bias) -> Tensor[]",
    _run, _shapes,
)  # fmt: skip


def at_once(
    grad: Tensor, total: Tensor, weight: Tensor | None, layer: bool, eps: float, bias: bool,
    more: Tensor | None = None, seed: Tensor | None = None, dropout: float = 0.0,
) -> tuple[Tensor | None, ...] | None:  # fmt: skip
    """The gradients of what is normalised, of what elements were dropped of, of the weight and of the bias, by the
    operation ``norm_grad``, which is one operator for those who trace; None where it is for torch's formula, which has
    gradients itself and follows transforms."""
    if torch.is_grad_enabled() or transform() is not None or total.device.type not in ("cpu", "cuda"):
        return None
    if _is_batched(grad) or (more is not None and _is_batched(more)):
        return None
    inputs = grad, total, weight, more, seed, layer, eps, dropout, bias
    kinds = {type(t) for t in inputs[:5] if t is not None}
    result: list[Tensor] | None = None
    if kinds <= PLAIN and not is_watched():
        result = _by_kernel(*inputs)
    elif kinds <= traced_types() and modes():
        result = GRAD.dispatched(*inputs)
    if result is None:
        return None
    left = iter(result)
    down = next(left)
    of_x = down if seed is None else next(left)
    return down, of_x, None if weight is None else next(left), next(left) if bias else None
