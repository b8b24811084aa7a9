"""Products: what a user calls. Plain torch tensors go straight to the native half; everything else (gradients,
tracing, subclasses, other libraries' arrays, shapes that need folding) takes the general way."""

from __future__ import annotations

from typing import Any, Literal

from .. import _warplap
from ..arrays import dlpack, numpy as arrays
from . import gated_linear_problem, gated_problem, norm_linear_problem
from ..operator.tensor_kind import PLAIN, compiling, is_torch, torch, torch_ops
from ..arrays.types import Array

Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"]

_matmul_direct = _warplap.matmul_direct
_linear_direct = _warplap.linear_direct
_linear_joined = _warplap.linear_joined
if torch is not None:
    _trained_matmul, _trained_linear = torch_ops.trained_matmul, torch_ops.trained_linear
    _gated_at_once = torch_ops.gated_at_once


def matmul(a: Array, b: Array, *, out: Array | None = None) -> Array:
    """The product of two matrices, by whichever variant is fastest here and proved right.

    ``a`` has shape (..., m, k) or (k,), ``b`` (..., k, n) or (k,), with batches spread as ``torch.matmul`` spreads them;
    float32, float16 or bfloat16 with sums in float32, other types by torch's own product. Both may be transposed or
    padded. torch in, torch out (differentiable); NumPy in, NumPy out; CUDA arrays of other libraries (CuPy, Numba, JAX)
    are borrowed where torch is there. ``out`` of shape (m, n) is written and returned.
    """
    if not compiling():
        found = _matmul_direct(a, b, out)
        if found is not None:
            return found
        if out is None and type(a) in PLAIN and type(b) in PLAIN:
            found = _trained_matmul(a, b)
            return torch_ops.matmul(a, b, None) if found is None else found
    if is_torch(a=a, b=b, out=out):
        return torch_ops.matmul(a, b, out)
    if dlpack.is_on_cuda(a):
        return dlpack.call("matmul", {"a": a, "b": b, "out": out})
    return arrays.matmul(a, b, out)


def linear(
    x: Array,
    w: Array,
    bias: Array | None = None,
    activation: Activation | None = None,
    *,
    residual: Array | None = None,
    times: Array | None = None,
    out: Array | None = None,
) -> Array:
    """``activation(x @ w.T + bias)``: x of shape (..., k), w (n, k), bias (n,); then ``+ residual`` or ``* times``, one
    of them, of shape (..., n).

    ``activation`` is None, "relu", "gelu", "gelu_tanh", "silu", "tanh" or "sigmoid". The product, its bias and, where
    no gradient is wanted, the activation and what is joined are one problem
    (``gemm:...,bias=true,act=gelu,join=add``).
    """
    if residual is not None or times is not None:
        return _joined(x, w, bias, activation, residual, times, out)
    if not compiling():
        found = _linear_direct(x, w, bias, activation, out)
        if found is not None:
            return found
        if out is None and type(x) in PLAIN and type(w) in PLAIN and (bias is None or type(bias) in PLAIN):
            found = _trained_linear(x, w, bias, activation)
            return torch_ops.linear(x, w, bias, activation, None) if found is None else found
    if is_torch(x=x, w=w, bias=bias, out=out):
        return torch_ops.linear(x, w, bias, activation, out)
    if dlpack.is_on_cuda(x):
        return dlpack.call("linear", {"x": x, "w": w, "bias": bias, "out": out}, activation)
    return arrays.linear(x, w, bias, activation, out)


def _joined(x: Any, w: Any, bias: Any, activation: Any, residual: Any, times: Any, out: Any) -> Any:
    """A linear layer joined with one more tensor."""
    if residual is not None and times is not None:
        raise ValueError("times: is given beside residual, expected one of them")
    if not compiling():
        found = _linear_joined(x, w, bias, activation, residual, times, out)
        if found is not None:
            return found
    given = {"x": x, "w": w, "bias": bias, "residual": residual, "times": times, "out": out}
    if is_torch(**given):
        return torch_ops.joined_linear(x, w, bias, residual, times, activation, out)
    if dlpack.is_on_cuda(x):
        return dlpack.call("joined_linear", given, activation)
    return arrays.linear(x, w, bias, activation, out, residual, times)


def gated_linear(
    x: Array, w_gate: Array, w_up: Array, activation: Activation | None = "silu", *, out: Array | None = None
) -> Array:
    """``activation(x @ w_gate.T) * (x @ w_up.T)``: x of shape (..., k), both weights (n, k). The gated half of a layer
    (SwiGLU with the default).

    ``activation`` is one of those of :func:`linear`. Where no gradient is wanted, it is one
    product that reads x once (``gemm:...,act=silu,pair=true``); the weights stay two tensors, which lie alike.
    """
    if out is None and torch is not None and not compiling():
        found = _gated_at_once(x, w_gate, w_up, activation)
        if found is not None:
            return found
    given = {"x": x, "w_gate": w_gate, "w_up": w_up, "out": out}
    if is_torch(**given):
        return torch_ops.gated_linear(x, w_gate, w_up, activation, out)
    if dlpack.is_on_cuda(x):
        return dlpack.call("gated_linear", given, activation)
    return gated_linear_problem.of_arrays(x, w_gate, w_up, activation, out)


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
    product or by a small kernel in front, whichever is faster here. The norm's ``weight``, of shape (k,), is folded into
    ``w`` once where both are parameters of torch's: the folded copy is kept as long as ``w`` lives, and made anew when one
    of them was changed in place. Captured CUDA graphs go on with the copy that they saw. Changes that torch does not count
    (``w.data.copy_(…)``) are not seen: :func:`forget_folded` frees all copies. Where a gradient is wanted, and of weights
    that are no parameters, it is a norm and a layer.
    """
    if torch is not None and not compiling():
        found = torch_ops.norm_linear_at_once(x, w, weight, up, bias, activation, residual, times, eps)
        if found is not None:
            return found
    if residual is not None and times is not None:
        raise ValueError("times: is given beside residual, expected one of them")
    if up is not None and not (bias is None and residual is None and times is None):
        raise ValueError("up: is given beside bias, residual or times, expected a pair alone")
    if not 1e-20 <= eps <= 1.0:
        raise ValueError(f"eps: is {eps}, expected a number from 1e-20 to 1")
    all_of_it = {"x": x, "w": w, "weight": weight, "up": up, "bias": bias, "residual": residual, "times": times}
    given = {name: t for name, t in all_of_it.items() if t is not None}
    if is_torch(**given):
        return torch_ops.norm_linear(x, w, weight, up, bias, residual, times, activation, eps)
    if dlpack.is_on_cuda(x):
        return dlpack.call("norm_linear", all_of_it, activation, eps)
    return norm_linear_problem.of_arrays(x, w, weight, bias, activation, up, residual, times, eps)


def forget_folded() -> None:
    """Frees the folded weights of :func:`norm_linear`, but for those that captured CUDA graphs have seen."""
    if torch is not None:
        torch_ops.forget_folded()


def gated(
    a: Array, b: Array, activation: Activation | None = "silu", *, join: Literal["mul", "add"] = "mul",
    out: Array | None = None,
) -> Array:  # fmt: skip
    """``activation(a) * b`` element by element, or ``+ b`` with ``join="add"``: the middle of a gated layer whose
    products are there already.

    Both have one shape; they may be the halves of one tensor, ``gated(*y.chunk(2, -1))``, of which nothing is copied.
    ``activation`` is one of those of :func:`linear`. Arithmetic is in float32 with one rounding at the end.
    Differentiable in both; nothing but a and b is kept for that.
    """
    if out is None and torch is not None and not compiling():
        found = torch_ops.activated_at_once(a, b, activation, join)
        if found is not None:
            return found
    given = {"a": a, "b": b, "out": out}
    if is_torch(**given):
        return torch_ops.gated(a, b, activation, join, out)
    if dlpack.is_on_cuda(a):
        return dlpack.call("gated", given, activation, join)
    return gated_problem.of_arrays(a, b, activation, join, out)


def scaled_mm(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    *,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
    out: Any = None,
) -> Any:
    """``(a * scale_a) @ (b * scale_b)`` of torch.float8_e4m3fn, as ``torch._scaled_mm`` computes it.

    ``a`` is [m, k] and ``b`` [k, n]; b is fastest where it is column-major (``w.t()`` of a weight [n, k]). The factors
    are float32: one number each, [m, 1] and [1, n], or [m, k/128] and [k/128, n/128] for blocks. ``out_dtype`` is
    torch.bfloat16 (the default), float16 or float32. Sums are in float32; with ``use_fast_accum`` the narrower sums of
    a GPU's tensor cores may run through all of k. Not differentiable.
    """
    _needs_torch()
    return torch_ops.scaled_mm(a, b, scale_a, scale_b, out_dtype or torch.bfloat16, use_fast_accum, out)


def int_mm(a: Any, b: Any, *, out: Any = None) -> Any:
    """``a @ b`` of torch.int8 with exact sums in torch.int32, as ``torch._int_mm`` computes it.

    ``a`` is [m, k] and ``b`` [k, n]; b is fastest where it is column-major (``w.t()`` of a weight [n, k]).
    """
    _needs_torch()
    return torch_ops.int_mm(a, b, out)


def _needs_torch() -> None:
    if torch is None:
        raise NotImplementedError("products of 8-bit tensors are torch's; install torch")
