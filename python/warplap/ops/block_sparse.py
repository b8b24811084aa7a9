"""bsr_matmul over torch tensors: kernels, shapes under tracing, gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _warplap
from ..operator import cuda
from ..operator.torch_fallback import is_double
from ..operator.compile import fake
from ..operator.library import check_out, dims, floats, lib, op
from ..operator.eager import operator


def _bsr_into(crow: Tensor, col: Tensor, values: Tensor, m: int, k: int, b: Tensor, out: Tensor) -> None:
    if b.shape[1] == 0:
        return
    _warplap.bsr_into(crow, col, values.contiguous(), m, k, b if b.t().is_contiguous() else b.contiguous(), out)


def _bsr_cpu(crow: Tensor, col: Tensor, values: Tensor, m: int, k: int, b: Tensor) -> Tensor:
    out = b.new_empty((m, b.shape[1]))
    _bsr_into(crow, col, values, m, k, b, out)
    return out


def _bsr_cuda_out(crow: Tensor, col: Tensor, values: Tensor, m: int, k: int, b: Tensor, out: Tensor) -> None:
    cuda.bsr_matmul(crow, col, values, m, k, b, out)


lib.impl("bsr_matmul", _bsr_cpu, "CPU")
lib.impl("bsr_matmul_out", _bsr_into, "CPU")
lib.impl("bsr_matmul", cuda.bsr_matmul, "CUDA")
lib.impl("bsr_matmul_out", _bsr_cuda_out, "CUDA")


@fake("bsr_matmul")
def _bsr_fake(crow: Tensor, col: Tensor, values: Tensor, m: int, k: int, b: Tensor) -> Tensor:
    return b.new_empty((m, b.shape[1]))


@fake("bsr_matmul_out")
def _bsr_out_fake(crow: Tensor, col: Tensor, values: Tensor, m: int, k: int, b: Tensor, out: Tensor) -> None:
    return None


def _save_bsr(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    crow, col, values, ctx.m, ctx.k, b = inputs
    ctx.save_for_backward(crow, col, values, b)


def gathered(w: Tensor, mask: Tensor, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """The square blocks of a matrix where ``mask`` is true: crow, col and values."""
    counts = mask.sum(1)
    crow = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(torch.int32)
    place = mask.nonzero()
    tiles = w.reshape(mask.shape[0], block, mask.shape[1], block).transpose(1, 2)
    return crow, place[:, 1].to(torch.int32), tiles[place[:, 0], place[:, 1]].contiguous()


def block_rows(crow: Tensor, blocks: int) -> Tensor:
    """The block row of each stored block."""
    return torch.searchsorted(crow, torch.arange(blocks, device=crow.device, dtype=crow.dtype), right=True) - 1


def _turned(crow: Tensor, col: Tensor, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """Where the blocks of the transposed matrix lie, and which they were."""
    rows = block_rows(crow, col.shape[0])
    order = torch.argsort(col, stable=True)
    ends = torch.arange(columns + 1, device=col.device, dtype=col.dtype)
    turned = torch.searchsorted(col[order], ends).to(crow.dtype)
    return turned, rows[order].to(col.dtype), order


# Where the blocks of transposed matrices lie, by the indices they were made from: a layer in training asks for the same
# ones at every step. The tensors are kept, so that no others come to lie at their addresses.
_kept: dict[tuple[int, ...], tuple[tuple[int, int], tuple[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]] = {}


def transposed(crow: Tensor, col: Tensor, values: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The parts of the transposed matrix."""
    columns = k // values.shape[2]
    plain = type(crow) is type(col) is Tensor and torch._C._len_torch_dispatch_stack() == 0
    if torch.compiler.is_compiling() or not plain or crow.device.type == "meta":
        turned, rows, order = _turned(crow, col, columns)
    else:
        name = (crow.data_ptr(), col.data_ptr(), crow.shape[0], col.shape[0], columns)
        versions = (crow._version, col._version)
        found = _kept.get(name)
        if found is None or found[0] != versions:
            if len(_kept) >= 128:
                _kept.clear()
            found = _kept[name] = (versions, (crow, col), _turned(crow, col, columns))
        turned, rows, order = found[2]
    return turned, rows, values[order].transpose(1, 2).contiguous()


def block_products(crow: Tensor, col: Tensor, grad: Tensor, b: Tensor, bs: int, bc: int) -> Tensor:
    """The blocks of ``grad @ b.T`` that are stored, each ``bs`` by ``bc``."""
    left = grad.reshape(-1, bs, grad.shape[1])[block_rows(crow, col.shape[0])]
    right = b.reshape(-1, bc, b.shape[1])[col.long()]
    return torch.bmm(left, right.transpose(1, 2))


def _plain(t: Tensor) -> Tensor:
    return t if t.is_contiguous() or t.t().is_contiguous() else t.contiguous()


def _sampled(crow: Tensor, col: Tensor, grad: Tensor, b: Tensor, bs: int, bc: int) -> Tensor:
    values = grad.new_empty((col.shape[0], bs, bc))
    if grad.shape[1] == 0:
        return values.zero_()
    if bs != bc:  # the variants take square blocks
        return values.copy_(block_products(crow, col, grad, b, bs, bc))
    grad, b = _plain(grad), _plain(b)
    if grad.is_cuda:
        grad, b = cuda.aligned(grad), cuda.aligned(b)
    try:
        _warplap.sampled_into(crow, col, grad, b, values)
    except NotImplementedError as why:
        cuda.tell("torch.bmm", why)
        values.copy_(block_products(crow, col, grad, b, bs, bc))
    return values


lib.impl("bsr_sampled", _sampled, "CPU")
lib.impl("bsr_sampled", _sampled, "CUDA")


@fake("bsr_sampled")
def _sampled_fake(crow: Tensor, col: Tensor, grad: Tensor, b: Tensor, bs: int, bc: int) -> Tensor:
    return grad.new_empty((col.shape[0], bs, bc))


def _save_sampled(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4])


def _sampled_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    crow, col, g, b = ctx.saved_tensors
    m, k = g.shape[0], b.shape[0]
    grad_g = _product(crow, col, grad, m, k, b) if ctx.needs_input_grad[2] else None
    grad_b = _product(*transposed(crow, col, grad, k), k, m, g) if ctx.needs_input_grad[3] else None
    return None, None, grad_g, grad_b, None, None


gradient_of_blocks = operator("bsr_sampled", _sampled, _save_sampled, _sampled_backward).call


def _bsr_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    crow, col, values, b = ctx.saved_tensors
    grad_values = grad_b = None
    if ctx.needs_input_grad[2]:
        grad_values = gradient_of_blocks(crow, col, grad, b, *values.shape[1:])
    if ctx.needs_input_grad[5]:
        grad_b = _product(*transposed(crow, col, values, ctx.k), ctx.k, ctx.m, grad)
    return None, None, grad_values, None, None, grad_b


def _bsr_run(crow: Tensor, col: Tensor, values: Tensor, m: int, k: int, b: Tensor) -> Tensor:
    return (cuda.bsr_matmul if b.is_cuda else _bsr_cpu)(crow, col, values, m, k, b)


_product = operator("bsr_matmul", _bsr_run, _save_bsr, _bsr_backward).call


def bsr_matmul(a: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
    if a.layout != torch.sparse_bsr:
        raise TypeError(f"a: has layout {a.layout}, expected torch.sparse_bsr (a.to_sparse_bsr((32, 32)))")
    if a.ndim != 2:
        raise ValueError(f"a: has {a.ndim} dimensions, expected 2")
    if is_double(a, b, out) and b.ndim in (1, 2) and b.shape[0] == a.shape[1]:
        c = torch.mm(a, b.unsqueeze(1) if b.ndim == 1 else b)
        c = c if b.ndim == 2 else c.squeeze(1)
        return c if out is None else out.copy_(c)
    parts = a.crow_indices(), a.col_indices(), a.values()
    return bsr_parts(*parts, a.shape[0], a.shape[1], b, out, name="a")


def bsr_parts(
    crow: Tensor, col: Tensor, values: Tensor, m: int, k: int, b: Tensor, out: Tensor | None, name: str = "values"
) -> Tensor:
    floats(**{name: values, "b": b, "out": out})
    dims("b", b, 1, 2)
    blocks = list(values.shape[1:])
    if len(blocks) != 2 or any(side % 8 or not 8 <= side <= 128 for side in blocks):
        raise ValueError(f"{name}: has blocks of {blocks}, expected multiples of 8 from 8 to 128")
    if b.shape[0] != k:
        raise ValueError(f"b: has shape {list(b.shape)}, expected {k} rows as a has columns")
    right = b.unsqueeze(1) if b.ndim == 1 else b
    shape = (m, *b.shape[1:])
    if out is None:
        c = _product(crow, col, values, m, k, right)
        return c if b.ndim == 2 else c.reshape(shape)
    check_out(out, shape, **{name: values, "b": b})
    if out.is_contiguous() or (out.ndim == 2 and out.t().is_contiguous()):
        op.bsr_matmul_out(crow, col, values, m, k, right, out if out.ndim == 2 else out.unsqueeze(1))
        return out
    return out.copy_(_product(crow, col, values, m, k, right).reshape(shape))
