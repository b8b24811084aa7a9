"""norm over torch tensors: operators, shapes under tracing, gradients, and torch's own as a candidate."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from ...operator import cuda, problem_fields
from ...operator.torch_fallback import are_torchs, is_double
from ...operator.compile import compiled, fake
from ...operator.library import floats, lib, op, ordinary, rows
from ...operator.eager import PLAIN, is_watched, modes, operator, transform
from .problem import call_of, check, direct, grad_call, prepared
from ..dropout import factors

_tags = (torch.Tag.pt2_compliant_tag,)
for _schema in (
    "norm(Tensor x, Tensor? weight, Tensor? bias, bool layer, float eps) -> Tensor",
    "norm_add(Tensor x, Tensor residual, Tensor? weight, Tensor? bias, bool layer, float eps) -> (Tensor, Tensor)",
    "norm_of_sum(Tensor x, Tensor residual, Tensor? weight, Tensor? bias, bool layer, float eps) -> Tensor",
    "norm_grad(Tensor grad, Tensor total, Tensor? weight, Tensor? more, Tensor? seed, bool layer, float eps,"
    " float dropout, bool bias) -> Tensor[]",
):
    lib.define(_schema, tags=_tags)

# Tensors of those who trace: they see one operator where a program runs one.
_TRACED = PLAIN | {FakeTensor, FunctionalTensor}
# Whether a gradient is many at once (``is_grads_batched``), which is no transform that anybody could ask for.
_is_many = torch._C._functorch.is_legacy_batchedtensor


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


def _kind(problem: str) -> dict[str, Any]:
    given = problem_fields.fields(problem)
    return {"layer": given["kind"] == "layer", "eps": float(given.get("eps", 1e-5))}


def facts(problem: str) -> dict[str, Any]:
    """What torch needs to know of a problem."""
    unread = problem_fields.fields(problem).get("sum") == "false"
    return {**_kind(problem), **({"total_too": False} if unread else {})}


def fit(problem: str) -> str | None:
    """Why torch's stands aside, if so."""
    given = problem_fields.fields(problem)
    if given.keys() & {"before", "dropout"}:
        return "torch draws other numbers, and rounds in between"
    if "quant" in given:
        return "torch has codes of a norm's numbers as steps of their own"
    if given["kind"] == "rms" and given.get("bias") == "true" and given["dtype"] != "f32":
        return "torch rounds to half precision before it adds a bias to RMSNorm"
    return None


def _lent(t: Tensor | None) -> Tensor | None:
    """The tensor as kernels take it: without gaps, on addresses that vectors may have."""
    if t is None:
        return None
    t = t.resolve_neg().contiguous()
    return cuda.aligned(t) if t.is_cuda else t


def _run(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, layer: bool, eps: float,
    total_too: bool = True,
) -> Any:  # fmt: skip
    """By whoever is fastest here and right; what no problem expresses goes to torch."""
    found = direct(x, weight, bias, residual, "layer" if layer else "rms", eps, total_too)
    if found is not None:
        return found
    shape, alone = x.shape, residual is None or not total_too
    if x.numel() == 0:
        return x.new_empty(shape) if alone else (x.new_empty(shape), x.new_empty(shape))
    x, residual = rows(x), None if residual is None else rows(residual)
    tensors: list[Any] = [_lent(t) for t in (x, residual, weight, bias)]
    if ordinary(x) and x.numel() <= 1 << 31:
        try:
            found = call_of(x, residual, weight, bias, "layer" if layer else "rms", eps, total_too)(*tensors)
        except NotImplementedError as why:
            cuda.tell("torch", why)
    if found is None:
        found = by_torch(*tensors, layer=layer, eps=eps, total_too=total_too)
    if alone:
        return found.reshape(shape)
    return found[0].reshape(shape), found[1].reshape(shape)


def _norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, layer: bool, eps: float) -> Tensor:
    return _run(x, None, weight, bias, layer, eps)


def _of_sum(
    x: Tensor, residual: Tensor, weight: Tensor | None, bias: Tensor | None, layer: bool, eps: float
) -> Tensor:
    return _run(x, residual, weight, bias, layer, eps, total_too=False)


for _device in ("CPU", "CUDA"):
    lib.impl("norm", _norm, _device)
    lib.impl("norm_add", _run, _device)
    lib.impl("norm_of_sum", _of_sum, _device)


@fake("norm")
def _norm_fake(x: Tensor, weight: Tensor | None, bias: Tensor | None, layer: bool, eps: float) -> Tensor:
    return x.new_empty(x.shape)


@fake("norm_of_sum")
def _of_sum_fake(x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(x.shape)


@fake("norm_add")
def _norm_add_fake(
    x: Tensor, residual: Tensor, weight: Tensor | None, bias: Tensor | None, layer: bool, eps: float
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape)


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
        found: tuple[Tensor, Any, Any] = aten.native_layer_norm_backward(grad, s, [n], mean, inverse, ones, ones, wanted)
        return found
    if not s.is_cuda or not hasattr(aten, "_fused_rms_norm_backward"):
        return None
    inverse = torch.linalg.vector_norm(s, dim=-1, keepdim=True, dtype=torch.float32).square().div_(n).add_(eps).rsqrt_()
    down, of_weight = aten._fused_rms_norm_backward(grad, s, [n], inverse, weight, [True, weight is not None])
    return down, of_weight, grad.sum(0, dtype=torch.float32) if bias else None


def gradients_by_torch(
    s: Tensor, grad: Tensor, weight: Tensor | None = None, more: Tensor | None = None, seed: None = None,
    *, layer: bool, eps: float, bias: bool,
) -> Any:  # fmt: skip
    """What torch's operators make of ``norm_grad``."""
    down, of_weight, of_bias = _fused(grad, s, weight, layer, eps, bias) or gradients(grad, s, weight, layer, eps)
    down = down if more is None else down + more
    wanted = (down, of_weight if weight is not None else None, of_bias if bias else None)
    found = tuple(t.to(s.dtype) for t in wanted if t is not None)
    return found[0] if len(found) == 1 else found


def gradients_facts(problem: str) -> dict[str, Any]:
    """What torch needs to know of a problem."""
    return {**_kind(problem), "bias": problem_fields.fields(problem).get("bias") == "true"}


def _grad_by_kernel(
    grad: Tensor, total: Tensor, weight: Tensor | None, more: Tensor | None, seed: Tensor | None,
    layer: bool, eps: float, dropout: float, bias: bool,
) -> list[Tensor] | None:  # fmt: skip
    """The gradients of what is normalised (with ``more`` from elsewhere), of what elements were dropped of, of the
    weight and of the bias, those that there are; None for what no problem expresses."""
    flat = rows(total)
    if not total.numel() or not ordinary(flat) or total.numel() > 1 << 31:
        return None
    tensors = [_lent(t) for t in (flat, rows(grad), weight, None if more is None else rows(more))]
    try:
        has = weight is not None, bias, more is not None
        call = grad_call(flat.shape, total.dtype, *has, "layer" if layer else "rms", eps, dropout)
        found = call(*tensors, seed)
    except NotImplementedError as why:
        cuda.tell("torch", why)
        return None
    found = list(found) if isinstance(found, tuple) else [found]
    wide = 1 if seed is None else 2
    return [t.reshape(total.shape) for t in found[:wide]] + found[wide:]


def _run_grad(
    grad: Tensor, total: Tensor, weight: Tensor | None, more: Tensor | None, seed: Tensor | None,
    layer: bool, eps: float, dropout: float, bias: bool,
) -> list[Tensor]:  # fmt: skip
    """The same by whoever is fastest here and right."""
    found = _grad_by_kernel(grad, total, weight, more, seed, layer, eps, dropout, bias)
    if found is not None:
        return found
    down, of_weight, of_bias = gradients(rows(grad), rows(total), weight, layer, eps)
    down = (down if more is None else down + rows(more)).reshape(total.shape)
    of_x = None if seed is None else down * factors(down.numel(), seed, dropout).view(down.shape)
    wanted = down, of_x, None if weight is None else of_weight, of_bias if bias else None
    return [t.to(total.dtype).contiguous() for t in wanted if t is not None]


for _device in ("CPU", "CUDA"):
    lib.impl("norm_grad", _run_grad, _device)


@fake("norm_grad")
def _grad_fake(
    grad: Tensor, total: Tensor, weight: Tensor | None, more: Tensor | None, seed: Tensor | None,
    layer: bool, eps: float, dropout: float, bias: bool,
) -> list[Tensor]:  # fmt: skip
    wide, lines = 1 if seed is None else 2, (weight is not None) + bias
    return [total.new_empty(shape) for shape in wide * [total.shape] + lines * [total.shape[-1:]]]


compiled("norm_grad", _run_grad)  # nobody differentiates it


def gradients_at_once(
    grad: Tensor, total: Tensor, weight: Tensor | None, layer: bool, eps: float, bias: bool,
    more: Tensor | None = None, seed: Tensor | None = None, dropout: float = 0.0,
) -> tuple[Tensor | None, ...] | None:  # fmt: skip
    """The gradients of what is normalised, of what elements were dropped of, of the weight and of the bias, by the
    operation ``norm_grad``, which is one operator for those who trace; None where it is for torch's formula, which has
    gradients itself and follows transforms."""
    if torch.is_grad_enabled() or transform() is not None or total.device.type not in ("cpu", "cuda"):
        return None
    if _is_many(grad) or (more is not None and _is_many(more)):
        return None
    given = grad, total, weight, more, seed, layer, eps, dropout, bias
    kinds = {type(t) for t in given[:5] if t is not None}
    found: list[Tensor] | None = None
    if kinds <= PLAIN and not is_watched():
        found = _grad_by_kernel(*given)
    elif kinds <= _TRACED and modes():
        found = op.norm_grad.default(*given)
    if found is None:
        return None
    left = iter(found)
    down = next(left)
    of_x = down if seed is None else next(left)
    return down, of_x, None if weight is None else next(left), next(left) if bias else None


def _save_norm(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, _, ctx.layer, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def _norm_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    found = gradients_at_once(grad, x, weight, ctx.layer, ctx.eps, ctx.needs_input_grad[2])
    if found is not None:
        return *(g if needed else None for g, needed in zip(found[1:], ctx.needs_input_grad)), None, None
    found = gradients(grad, x, weight, ctx.layer, ctx.eps)
    wanted = [g.to(grad.dtype) if needed else None for g, needed in zip(found, ctx.needs_input_grad)]
    return (*wanted, None, None)


def _save_norm_add(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, _, weight, _, ctx.layer, ctx.eps = inputs
    ctx.save_for_backward(output[1], weight)
    ctx.set_materialize_grads(False)  # a sum that nobody else reads has none, and nobody writes zeros for it


def _norm_add_backward(ctx: Any, grad: Tensor | None, grad_total: Tensor | None) -> tuple[Tensor | None, ...]:
    total, weight = ctx.saved_tensors
    grad = torch.zeros_like(total) if grad is None else grad
    at_once = gradients_at_once(grad, total, weight, ctx.layer, ctx.eps, ctx.needs_input_grad[3], grad_total)
    if at_once is not None:
        return *(g if needed else None for g, needed in zip(at_once, ctx.needs_input_grad)), None, None
    down, of_weight, of_bias = gradients(grad, total, weight, ctx.layer, ctx.eps)
    down = down if grad_total is None else down + grad_total
    found = (down, down, of_weight, of_bias)
    wanted = [g.to(grad.dtype) if needed else None for g, needed in zip(found, ctx.needs_input_grad)]
    return (*wanted, None, None)


compiled("norm_of_sum", _of_sum)  # nobody differentiates it
_alone = operator("norm", _norm, _save_norm, _norm_backward).call
_added = operator("norm_add", _run, _save_norm_add, _norm_add_backward).call


def _is_torchs_step(x: Tensor, weight: Tensor | None, bias: Tensor | None, kind: str, eps: float) -> bool:
    """Whether nothing is decided about a norm with its gradients, and torch's own stands in for both."""
    if type(x) not in PLAIN or torch.compiler.is_compiling() or is_watched() or not x.numel():
        return False
    flat = x.numel() // x.shape[-1], x.shape[-1]
    if max(flat) > 1 << 20 or x.numel() > 1 << 31:
        return False
    has = weight is not None, bias is not None
    both = prepared(flat, x.dtype, False, *has, kind, eps), grad_call(flat, x.dtype, *has, False, kind, eps, 0.0)
    return are_torchs(x, *both)


def norm(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, kind: str, eps: float,
    total_too: bool = True,
) -> Any:  # fmt: skip
    """The norm, and with a residual the sum beside it, unless nobody reads that one."""
    check(x, weight, bias, residual, kind, eps)
    kinds = ("cpu", "cuda")  # others may have no autocast to ask about
    if x.device.type in kinds and torch.is_autocast_enabled(x.device.type):
        # Arithmetic is in float32 anyway: x decides.
        residual, weight, bias = (t if t is None else t.to(x.dtype) for t in (residual, weight, bias))
    if is_double(x, residual, weight, bias):
        return by_torch(x, residual, weight, bias, layer=kind == "layer", eps=eps, total_too=total_too)
    floats(x=x, residual=residual, weight=weight, bias=bias)
    if residual is None:
        if torch.is_grad_enabled() and _is_torchs_step(x, weight, bias, kind, eps):
            return by_torch(x, None, weight, bias, layer=kind == "layer", eps=eps)
        return _alone(x, weight, bias, kind == "layer", eps)
    trained = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, residual, weight, bias))
    if not total_too and not trained:
        return op.norm_of_sum(x, residual, weight, bias, kind == "layer", eps)
    found = _added(x, residual, weight, bias, kind == "layer", eps)  # backward passes read the sum
    return found if total_too else found[0]
