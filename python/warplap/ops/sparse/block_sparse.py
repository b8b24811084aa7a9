"""``warplap.bsr_matmul``: the product of a block-sparse and a dense matrix."""

from __future__ import annotations

from typing import Any

from ... import _warplap
from ...arrays import numpy as arrays
from ...arrays.types import Array
from ...operator.call.fallback import kernel_or_torch
from ...operator.checks import check_out, dims, floats, is_double
from ...operator.declare import Operator
from ...operator.layout import aligned
from ...operator.optional_torch import Tensor, torch
from ...operator.public import Public, compiling
from ...operator.sparse_warning import sparse

_direct = _warplap.bsr_direct


def _no_bsr(a: Any) -> TypeError:
    return TypeError(f"a: expected a torch tensor of layout sparse_bsr or a SciPy bsr_array, found {type(a).__name__}")


def _problem(a: Any, b: Any, out: Any = None) -> str:
    b = b.reshape(-1, 1) if b.ndim == 1 else b
    if hasattr(a, "crow_indices"):
        return _warplap.bsr_problem(a.crow_indices(), a.col_indices(), a.values(), a.shape[0], a.shape[1], b)
    if not hasattr(a, "indptr"):
        raise _no_bsr(a)
    return _warplap.bsr_problem(a.indptr, a.indices, a.data, a.shape[0], a.shape[1], b)


# Over arrays.


def _of_arrays(a: Any, b: Any, out: Any) -> Any:
    np = arrays.numpy()
    if not (hasattr(a, "indptr") and hasattr(a, "indices") and hasattr(a, "blocksize")):
        raise _no_bsr(a)
    b = arrays.array(b, "b")
    if b.ndim not in (1, 2):
        raise ValueError(f"b: has {b.ndim} dimensions, expected 1 or 2")
    if not a.has_sorted_indices:
        a = a.sorted_indices()
    right = b[:, None] if b.ndim == 1 else b
    m, k = a.shape
    target = arrays.into(out, (m, *b.shape[1:]), right)
    flat = target.reshape(m, -1) if target.flags.c_contiguous else np.empty((m, right.shape[1]), target.dtype)
    values = np.ascontiguousarray(a.data)
    _warplap.bsr_into(a.indptr, a.indices, values, m, k, np.ascontiguousarray(right), flat)
    if not np.shares_memory(flat, target):
        target[...] = flat.reshape(target.shape)
    return target


# Over torch's tensors.


def _run_into(crow: Tensor, col: Tensor, values: Tensor, m: int, k: int, b: Tensor, out: Tensor) -> None:
    """Block-sparse times dense by whoever is fastest here and right."""
    if out.numel() == 0:
        return
    values, b = values.contiguous(), b if b.t().is_contiguous() else b.contiguous()
    if not b.is_cuda:
        _warplap.bsr_into(crow, col, values, m, k, b, out)
        return
    values, right = aligned(values), aligned(b)
    whole = out if out.data_ptr() % 16 == 0 else torch.empty_like(out)

    def by_kernel() -> None:
        _warplap.bsr_into(crow, col, values, m, k, right, whole)
        if whole is not out:
            out.copy_(whole)

    theirs = lambda: (out.copy_(torch.mm(sparse(crow, col, values, (m, k)), right)), None)[1]
    kernel_or_torch(by_kernel, theirs, who="torch.sparse")


def _run(crow: Tensor, col: Tensor, values: Tensor, m: int, k: int, b: Tensor) -> Tensor:
    out = b.new_empty((m, b.shape[1]))
    _run_into(crow, col, values, m, k, b, out)
    return out


def _shape(crow: Tensor, col: Tensor, values: Tensor, m: int, k: int, b: Tensor) -> Tensor:
    return b.new_empty((m, b.shape[1]))


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
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
        result = _kept.get(name)
        if result is None or result[0] != versions:
            if len(_kept) >= 128:
                _kept.clear()
            result = _kept[name] = (versions, (crow, col), _turned(crow, col, columns))
        turned, rows, order = result[2]
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
        grad, b = aligned(grad), aligned(b)
    theirs = lambda: (values.copy_(block_products(crow, col, grad, b, bs, bc)), None)[1]
    kernel_or_torch(lambda: _warplap.sampled_into(crow, col, grad, b, values), theirs, who="torch.bmm")
    return values


def _save_sampled(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4])


def _sampled_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    crow, col, g, b = ctx.saved_tensors
    m, k = g.shape[0], b.shape[0]
    grad_g = BSR_MATMUL.call(crow, col, grad, m, k, b) if ctx.needs_input_grad[2] else None
    grad_b = BSR_MATMUL.call(*transposed(crow, col, grad, k), k, m, g) if ctx.needs_input_grad[3] else None
    return None, None, grad_g, grad_b, None, None


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    crow, col, values, b = ctx.saved_tensors
    grad_values = grad_b = None
    if ctx.needs_input_grad[2]:
        grad_values = SAMPLED.call(crow, col, grad, b, *values.shape[1:])
    if ctx.needs_input_grad[5]:
        grad_b = BSR_MATMUL.call(*transposed(crow, col, values, ctx.k), ctx.k, ctx.m, grad)
    return None, None, grad_values, None, None, grad_b


def _sampled_shape(crow: Tensor, col: Tensor, grad: Tensor, b: Tensor, bs: int, bc: int) -> Tensor:
    return grad.new_empty((col.shape[0], bs, bc))


_parts = "Tensor crow, Tensor col, Tensor values, SymInt m, SymInt k, Tensor b"
BSR_MATMUL = Operator(
    f"bsr_matmul({_parts}) -> Tensor", _run, _shape, save=_save, backward=_backward, autocast=True
)
INTO = Operator(f"bsr_matmul_out({_parts}, Tensor(a!) out) -> ()", _run_into, lambda *args: None)
SAMPLED = Operator(
    "bsr_sampled(Tensor crow, Tensor col, Tensor grad, Tensor b, int bs, int bc) -> Tensor",
    _sampled, _sampled_shape, save=_save_sampled, backward=_sampled_backward,
)  # fmt: skip


def _of_tensors(a: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
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
        c = BSR_MATMUL.call(crow, col, values, m, k, right)
        return c if b.ndim == 2 else c.reshape(shape)
    check_out(out, shape, **{name: values, "b": b})
    if out.is_contiguous() or (out.ndim == 2 and out.t().is_contiguous()):
        INTO.dispatched(crow, col, values, m, k, right, out if out.ndim == 2 else out.unsqueeze(1))
        return out
    return out.copy_(BSR_MATMUL.call(crow, col, values, m, k, right).reshape(shape))


_public = Public(torch=_of_tensors, arrays=_of_arrays, problem=_problem, optional=("out",), operation="bsr")


@_public
def bsr_matmul(a: Any, b: Array, *, out: Array | None = None) -> Array:
    """The product of a block-sparse and a dense matrix.

    ``a`` is a torch tensor of layout ``torch.sparse_bsr`` or a SciPy ``bsr_matrix``/``bsr_array`` (NumPy in, NumPy
    out), with blocks of 8 to 128 rows and columns; ``b`` has shape (k, n) or (k,). Both ``b`` and ``out`` may be
    column-major. Differentiable in ``b`` and in ``a``'s values.
    """
    if not compiling():
        result = _direct(a, b, out)
        if result is not None:
            return result
    return _public.of({"a": a, "b": b, "out": out})
