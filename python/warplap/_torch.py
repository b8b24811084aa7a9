"""The operators over torch tensors, registered with torch.library: schemas, kernels, shapes under tracing, gradients.

Choosing happens inside the operator when it runs, so nothing is measured while a program is traced, and dynamic shapes
recompile nothing.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _cuda, _warplap
from ._arrays import unknown_activation

FLOATS = (torch.float32, torch.float16, torch.bfloat16)

_lib = torch.library.Library("warplap", "FRAGMENT")
_tags = (torch.Tag.pt2_compliant_tag,)
for _schema in (
    "matmul(Tensor a, Tensor b) -> Tensor",
    "matmul_out(Tensor a, Tensor b, Tensor(a!) out) -> ()",
    "linear(Tensor x, Tensor w, Tensor? bias) -> Tensor",
    "attention(Tensor q, Tensor k, Tensor v, Tensor? mask, bool is_causal, float scale) -> Tensor",
    "bsr_matmul(Tensor crow, Tensor col, Tensor values, SymInt m, SymInt k, Tensor b) -> Tensor",
    "bsr_matmul_out(Tensor crow, Tensor col, Tensor values, SymInt m, SymInt k, Tensor b, Tensor(a!) out) -> ()",
):
    _lib.define(_schema, tags=_tags)
_op = torch.ops.warplap


# What arguments must be.


def _floats(**tensors: Tensor | None) -> None:
    """One of the float types, and the same for all."""
    first: tuple[str, Tensor] | None = None
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if tensor.layout != torch.strided:
            raise TypeError(f"{name}: has layout {tensor.layout}, expected a dense tensor")
        if first is None:
            first = (name, tensor)
            if tensor.dtype not in FLOATS:
                raise TypeError(f"{name}: holds {tensor.dtype}, expected float32, float16 or bfloat16")
        elif tensor.dtype != first[1].dtype:
            raise TypeError(f"{name}: holds {tensor.dtype}, expected {first[1].dtype} like {first[0]}")
        elif tensor.device != first[1].device:
            raise ValueError(f"{name}: is on {tensor.device}, expected {first[1].device} like {first[0]}")


def _dims(name: str, tensor: Tensor, *expected: int) -> None:
    if tensor.ndim not in expected:
        words = " or ".join(map(str, expected))
        raise ValueError(f"{name}: has {tensor.ndim} dimensions, expected {words}")


def _rows(t: Tensor) -> Tensor:
    """All but the last dimension as one."""
    return t if t.ndim == 2 else t.reshape(math.prod(t.shape[:-1]), t.shape[-1])


def _check_out(out: Tensor, shape: tuple[int, ...], **inputs: Tensor | None) -> None:
    """Whether an output can be written: nobody wants its gradient, it has the shape, and shares no memory."""
    given = {name: t for name, t in inputs.items() if t is not None}
    if torch.is_grad_enabled() and any(t.requires_grad for t in (out, *given.values())):
        raise NotImplementedError("out: is given for tensors that require a gradient; leave out= away, or use no_grad()")
    if tuple(out.shape) != shape:
        raise ValueError(f"out: has shape {list(out.shape)}, expected {list(shape)}")
    if any(n > 1 and s == 0 for n, s in zip(out.shape, out.stride())):
        raise ValueError(f"out: has strides {list(out.stride())}, expected memory of its own for every element")
    for name, tensor in given.items():
        if _shares(out, tensor):
            raise ValueError(f"out: shares memory with {name}")


def _lines(t: Tensor) -> Tensor:
    """The matrix itself where its rows or columns are contiguous, a copy where they are not."""
    (rows, columns), (down, right) = t.shape, t.stride()
    followed = (right == 1 and down >= columns) or (down == 1 and right >= rows)
    t = t if followed else t.contiguous()
    return t.resolve_neg() if t.is_neg() else t


_LARGEST = 1 << 20


def _ordinary(*tensors: Tensor) -> bool:
    """Whether sizes are those that are raced; nothing and very much are left to torch."""
    return all(0 < s <= _LARGEST for t in tensors for s in t.shape)


# matmul


def _matmul_into(a: Tensor, b: Tensor, out: Tensor) -> None:
    a, b = _lines(a), _lines(b)
    if _ordinary(a, b) and out.stride(-1) == 1:
        _warplap.matmul_into(a, b, out)
    else:
        out.copy_(torch.mm(a, b))


def _matmul_cpu(a: Tensor, b: Tensor) -> Tensor:
    out = a.new_empty((a.shape[0], b.shape[1]))
    _matmul_into(a, b, out)
    return out


_lib.impl("matmul", _matmul_cpu, "CPU")
_lib.impl("matmul", _cuda.matmul, "CUDA")
_lib.impl("matmul_out", _matmul_into, "CPU")
_lib.impl("matmul_out", lambda a, b, out: _cuda.matmul(a, b, out) and None, "CUDA")


@torch.library.register_fake("warplap::matmul", lib=_lib)
def _matmul_fake(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty((a.shape[0], b.shape[1]))


@torch.library.register_fake("warplap::matmul_out", lib=_lib)
def _matmul_out_fake(a: Tensor, b: Tensor, out: Tensor) -> None:
    return None


def _save_pair(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _matmul_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    a, b = ctx.saved_tensors
    needs_a, needs_b = ctx.needs_input_grad[:2]
    return (_op.matmul(grad, b.t()) if needs_a else None, _op.matmul(a.t(), grad) if needs_b else None)


torch.library.register_autograd("warplap::matmul", _matmul_backward, setup_context=_save_pair, lib=_lib)


def matmul(a: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
    _floats(a=a, b=b, out=out)
    _dims("b", b, 1, 2)
    if a.ndim == 0:
        raise ValueError("a: has 0 dimensions, expected 1 or more")
    if a.shape[-1] != b.shape[0]:
        raise ValueError(f"b: has shape {list(b.shape)}, expected {a.shape[-1]} rows as a has columns")
    right = b.unsqueeze(1) if b.ndim == 1 else b
    left = _rows(a)
    shape = (*a.shape[:-1], *b.shape[1:])
    if out is not None:
        _check_out(out, shape, a=a, b=b)
        if out.ndim == 2:
            _op.matmul_out(left, right, out)
        else:
            out.copy_(_op.matmul(left, right).reshape(shape))
        return out
    c = _op.matmul(left, right)
    return c if c.shape == shape else c.reshape(shape)


def _shares(out: Tensor, other: Tensor) -> bool:
    """Whether two tensors may share memory; tensors under tracing have none."""
    if torch.compiler.is_compiling() or out.numel() == 0 or other.numel() == 0:
        return False
    try:
        if out.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
            return False
        span = lambda t: (t.storage_offset(), t.storage_offset() + sum((n - 1) * s for n, s in zip(t.shape, t.stride())))
        (low, high), (start, end) = span(out), span(other)
        return low <= end and start <= high
    except (RuntimeError, NotImplementedError):
        return False


# linear


def _linear_cpu(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    out = x.new_empty((x.shape[0], w.shape[0]))
    _matmul_into(x, w.t(), out)
    return out if bias is None else out.add_(bias)


def _linear_cuda(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    out = _cuda.matmul(x, w.t())
    return out if bias is None else out.add_(bias)


_lib.impl("linear", _linear_cpu, "CPU")
_lib.impl("linear", _linear_cuda, "CUDA")


@torch.library.register_fake("warplap::linear", lib=_lib)
def _linear_fake(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty((x.shape[0], w.shape[0]))


def _save_linear(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _linear_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    x, w = ctx.saved_tensors
    needs_x, needs_w, needs_bias = ctx.needs_input_grad[:3]
    return (
        _op.matmul(grad, w) if needs_x else None,
        _op.matmul(grad.t(), x) if needs_w else None,
        grad.sum(0) if needs_bias else None,
    )


torch.library.register_autograd("warplap::linear", _linear_backward, setup_context=_save_linear, lib=_lib)

_ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


def linear(x: Tensor, w: Tensor, bias: Tensor | None, activation: str | None, out: Tensor | None) -> Tensor:
    _floats(x=x, w=w, bias=bias, out=out)
    _dims("w", w, 2)
    if activation is not None and activation not in _ACTIVATIONS:
        raise unknown_activation(activation)
    if x.ndim == 0 or x.shape[-1] != w.shape[1]:
        raise ValueError(f"x: has shape {list(x.shape)}, expected {w.shape[1]} columns as w has")
    if bias is not None and tuple(bias.shape) != (w.shape[0],):
        raise ValueError(f"bias: has shape {list(bias.shape)}, expected {[w.shape[0]]}")
    shape = (*x.shape[:-1], w.shape[0])
    if out is not None:
        _check_out(out, shape, x=x, w=w, bias=bias)
    y = _op.linear(_rows(x), w, bias)
    if activation is not None:
        y = _ACTIVATIONS[activation](y)
    y = y if y.shape == shape else y.reshape(shape)
    return y if out is None else out.copy_(y)


# attention


def _attention_out(q: Tensor, v: Tensor) -> Tensor:
    if q.shape[3] == v.shape[3]:
        return torch.empty_like(q)
    return q.new_empty((*q.shape[:3], v.shape[3]))


def _order(t: Tensor) -> str | None:
    """The order a tensor lies in without gaps: heads outside of positions, or the other way round."""
    if t.is_contiguous():
        return "bhsd"
    return "bshd" if t.transpose(1, 2).is_contiguous() else None


def _attention_cpu(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
    out = _attention_out(q, v)
    raced = mask is None or mask.ndim == 2
    if not (raced and _ordinary(q, k, v) and q.shape[3] <= 1024 and v.shape[3] <= 1024):
        gqa = q.shape[1] != k.shape[1]
        return out.copy_(F.scaled_dot_product_attention(q, k, v, mask, 0.0, is_causal, scale=scale, enable_gqa=gqa))
    order = _order(out)
    if order is None or any(_order(t) != order for t in (q, k, v)):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        whole = torch.empty_like(out, memory_format=torch.contiguous_format)
    else:
        whole = out
    _warplap.attention_into(q, k, v, None if mask is None else mask.contiguous(), is_causal, scale, whole)
    return out if whole is out else out.copy_(whole)


_lib.impl("attention", _attention_cpu, "CPU")
_lib.impl("attention", _cuda.attention, "CUDA")


@torch.library.register_fake("warplap::attention", lib=_lib)
def _attention_fake(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
    return _attention_out(q, v)


def _save_attention(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    q, k, v, mask, ctx.is_causal, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, mask, output)


def _attention_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The scores are computed once more; sums are in float32."""
    q, k, v, mask, out = ctx.saved_tensors
    heads, shared = q.shape[1], k.shape[1]
    wide = [t.float() for t in (q, k, v, grad, out)]
    if heads != shared:
        wide[1], wide[2] = (t.repeat_interleave(heads // shared, dim=1) for t in wide[1:3])
    qf, kf, vf, gf, of = wide
    scores = torch.matmul(qf, kf.transpose(-2, -1)) * ctx.scale
    if mask is not None:
        scores = scores + mask.float()
    if ctx.is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~seen, float("-inf"))
    top = scores.amax(-1, keepdim=True)
    weights = torch.exp(scores - torch.where(top == float("-inf"), torch.zeros_like(top), top))
    total = weights.sum(-1, keepdim=True)
    weights = weights / torch.where(total == 0, torch.ones_like(total), total)
    inner = torch.matmul(gf, vf.transpose(-2, -1)) - (gf * of).sum(-1, keepdim=True)
    down = weights * inner
    grad_q = torch.matmul(down, kf) * ctx.scale
    grad_k = torch.matmul(down.transpose(-2, -1), qf) * ctx.scale
    grad_v = torch.matmul(weights.transpose(-2, -1), gf)
    if heads != shared:
        grad_k, grad_v = (t.unflatten(1, (shared, heads // shared)).sum(2) for t in (grad_k, grad_v))
    grad_mask = None
    if mask is not None and ctx.needs_input_grad[3]:
        grad_mask = down.sum_to_size(mask.shape if mask.ndim == 4 else (1, 1, *mask.shape)).reshape(mask.shape)
        grad_mask = grad_mask.to(mask.dtype)
    return grad_q.to(q.dtype), grad_k.to(k.dtype), grad_v.to(v.dtype), grad_mask, None, None


torch.library.register_autograd("warplap::attention", _attention_backward, setup_context=_save_attention, lib=_lib)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    out: Tensor | None,
) -> Tensor:
    _floats(q=q, k=k, v=v, out=out)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.ndim < 2:
            raise ValueError(f"{name}: has {tensor.ndim} dimensions, expected at least 2")
        if tensor.ndim != q.ndim:
            raise ValueError(f"{name}: has {tensor.ndim} dimensions, expected {q.ndim} like q")
    four = [_four(t) for t in (q, k, v)]
    (b, h, sq, d), (_, hkv, sk, _), dv = four[0].shape, four[1].shape, four[2].shape[3]
    if tuple(four[1].shape) != (b, hkv, sk, d):
        raise ValueError(f"k: has shape {list(k.shape)}, expected the batch and the last size of q's {list(q.shape)}")
    if tuple(four[2].shape) != (b, hkv, sk, dv):
        raise ValueError(f"v: has shape {list(v.shape)}, expected the batch, heads and positions of k's {list(k.shape)}")
    if h != hkv and not (enable_gqa and hkv > 0 and h % hkv == 0):
        remedy = f"a divisor of q's {h}" if enable_gqa else f"{h} as q has; or say enable_gqa=True"
        raise ValueError(f"k: has {hkv} heads, expected {remedy}")
    if mask is not None:
        if is_causal:
            raise ValueError("mask: is given with is_causal, expected one of them")
        mask = _mask(mask, q, (b, h, sq, sk))
    shape = (*q.shape[:-1], dv)
    if d == 0:
        raise ValueError(f"q: has shape {list(q.shape)}, expected a last size above 0")
    scale = float(scale) if scale is not None else d**-0.5
    if out is not None:
        _check_out(out, shape, q=q, k=k, v=v, mask=mask)
    o = _op.attention(*four, mask, bool(is_causal), scale)
    o = o if o.shape == shape else o.reshape(shape)
    return o if out is None else out.copy_(o)


def _four(t: Tensor) -> Tensor:
    if t.ndim == 4:
        return t
    return t[(None,) * (4 - t.ndim)] if t.ndim < 4 else t.flatten(0, t.ndim - 4)


def _mask(mask: Tensor, q: Tensor, scores: tuple[int, ...]) -> Tensor:
    """The mask as what is added to the scores, of two dimensions where it is the same for all heads."""
    if mask.device != q.device:
        raise ValueError(f"mask: is on {mask.device}, expected {q.device} like q")
    if mask.ndim < 2 or mask.ndim > max(q.ndim, 4):
        raise ValueError(f"mask: has {mask.ndim} dimensions, expected 2 to {max(q.ndim, 2)}")
    if mask.ndim > 4:
        mask = mask.expand(*q.shape[:-2], *mask.shape[-2:]).flatten(0, mask.ndim - 4)
    if any(m not in (1, s) for m, s in zip(mask.shape[::-1], scores[::-1])):
        raise ValueError(f"mask: has shape {list(mask.shape)}, expected one that spreads to {list(scores)}")
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, float("-inf"))
    elif mask.dtype != q.dtype:
        raise TypeError(f"mask: holds {mask.dtype}, expected bool or {q.dtype} like q")
    while mask.ndim > 2 and mask.shape[0] == 1:
        mask = mask[0]
    if mask.ndim == 2:
        return mask.expand(scores[2], scores[3])
    return (mask if mask.ndim == 4 else mask[None]).expand(-1, -1, scores[2], scores[3])


# bsr_matmul


def _bsr_into(crow: Tensor, col: Tensor, values: Tensor, m: int, k: int, b: Tensor, out: Tensor) -> None:
    if b.shape[1] == 0:
        return
    _warplap.bsr_into(crow, col, values.contiguous(), m, k, b if b.t().is_contiguous() else b.contiguous(), out)


def _bsr_cpu(crow: Tensor, col: Tensor, values: Tensor, m: int, k: int, b: Tensor) -> Tensor:
    out = b.new_empty((m, b.shape[1]))
    _bsr_into(crow, col, values, m, k, b, out)
    return out


def _bsr_cuda_out(crow: Tensor, col: Tensor, values: Tensor, m: int, k: int, b: Tensor, out: Tensor) -> None:
    _cuda.bsr_matmul(crow, col, values, m, k, b, out)


_lib.impl("bsr_matmul", _bsr_cpu, "CPU")
_lib.impl("bsr_matmul_out", _bsr_into, "CPU")
_lib.impl("bsr_matmul", _cuda.bsr_matmul, "CUDA")
_lib.impl("bsr_matmul_out", _bsr_cuda_out, "CUDA")


@torch.library.register_fake("warplap::bsr_matmul", lib=_lib)
def _bsr_fake(crow: Tensor, col: Tensor, values: Tensor, m: int, k: int, b: Tensor) -> Tensor:
    return b.new_empty((m, b.shape[1]))


@torch.library.register_fake("warplap::bsr_matmul_out", lib=_lib)
def _bsr_out_fake(crow: Tensor, col: Tensor, values: Tensor, m: int, k: int, b: Tensor, out: Tensor) -> None:
    return None


def _save_bsr(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    crow, col, values, ctx.m, ctx.k, b = inputs
    ctx.save_for_backward(crow, col, values, b)


def block_rows(crow: Tensor, blocks: int) -> Tensor:
    """The block row of each stored block."""
    return torch.searchsorted(crow, torch.arange(blocks, device=crow.device, dtype=crow.dtype), right=True) - 1


def transposed(crow: Tensor, col: Tensor, values: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The parts of the transposed matrix."""
    rows = block_rows(crow, col.shape[0])
    order = torch.argsort(col, stable=True)
    ends = torch.arange(k // values.shape[1] + 1, device=col.device, dtype=col.dtype)
    turned = torch.searchsorted(col[order], ends).to(crow.dtype)
    return turned, rows[order].to(col.dtype), values[order].transpose(1, 2).contiguous()


def block_products(crow: Tensor, col: Tensor, grad: Tensor, b: Tensor, bs: int) -> Tensor:
    """The blocks of ``grad @ b.T`` that are stored, each ``bs`` by ``bs``."""
    left = grad.reshape(-1, bs, grad.shape[1])[block_rows(crow, col.shape[0])]
    right = b.reshape(-1, bs, b.shape[1])[col.long()]
    return torch.bmm(left, right.transpose(1, 2))


def _bsr_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    crow, col, values, b = ctx.saved_tensors
    grad_values = grad_b = None
    if ctx.needs_input_grad[2]:
        grad_values = block_products(crow, col, grad, b, values.shape[1])
    if ctx.needs_input_grad[5]:
        grad_b = _op.bsr_matmul(*transposed(crow, col, values, ctx.k), ctx.k, ctx.m, grad)
    return None, None, grad_values, None, None, grad_b


torch.library.register_autograd("warplap::bsr_matmul", _bsr_backward, setup_context=_save_bsr, lib=_lib)


def bsr_matmul(a: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
    if a.layout != torch.sparse_bsr:
        raise TypeError(f"a: has layout {a.layout}, expected torch.sparse_bsr (a.to_sparse_bsr((32, 32)))")
    if a.ndim != 2:
        raise ValueError(f"a: has {a.ndim} dimensions, expected 2")
    parts = a.crow_indices(), a.col_indices(), a.values()
    return bsr_parts(*parts, a.shape[0], a.shape[1], b, out, name="a")


def bsr_parts(
    crow: Tensor, col: Tensor, values: Tensor, m: int, k: int, b: Tensor, out: Tensor | None, name: str = "values"
) -> Tensor:
    _floats(**{name: values, "b": b, "out": out})
    _dims("b", b, 1, 2)
    bs = values.shape[1]
    if values.ndim != 3 or bs != values.shape[2]:
        raise ValueError(f"{name}: has blocks of {list(values.shape[1:])}, expected square ones")
    if bs % 8 or not 8 <= bs <= 128:
        raise ValueError(f"{name}: has blocks of {bs}, expected a multiple of 8 from 8 to 128")
    if b.shape[0] != k:
        raise ValueError(f"b: has shape {list(b.shape)}, expected {k} rows as a has columns")
    right = b.unsqueeze(1) if b.ndim == 1 else b
    shape = (m, *b.shape[1:])
    if out is None:
        c = _op.bsr_matmul(crow, col, values, m, k, right)
        return c if b.ndim == 2 else c.reshape(shape)
    _check_out(out, shape, **{name: values, "b": b})
    if out.is_contiguous():
        _op.bsr_matmul_out(crow, col, values, m, k, right, out if out.ndim == 2 else out.unsqueeze(1))
        return out
    return out.copy_(_op.bsr_matmul(crow, col, values, m, k, right).reshape(shape))


# Automatic mixed precision: floats are cast to the type of the region, as torch does for its own products.


def _autocast(name: str, device: str, key: str) -> None:
    op, excluded = getattr(_op, name), torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def cast(value: Any) -> Any:
        floating = isinstance(value, Tensor) and value.is_floating_point() and value.dtype != torch.float64
        return value.to(torch.get_autocast_dtype(device)) if floating else value

    def run(*args: Any) -> Tensor:
        with torch._C._ExcludeDispatchKeyGuard(excluded):
            return op(*map(cast, args))

    _lib.impl(name, run, key)


for _name in ("matmul", "linear", "attention", "bsr_matmul"):
    _autocast(_name, "cpu", "AutocastCPU")
    _autocast(_name, "cuda", "AutocastCUDA")
