"""A layer with a block-sparse weight over torch tensors: ``x @ weight.T + bias``, rows in and rows out, and its
gradients likewise. x has shape (rows, k), the answer (rows, n); with ``turned`` the stored matrix has k rows and n
columns."""

from __future__ import annotations

from typing import Any

from ... import _warplap
from ...operator.call.fallback import kernel_or_torch
from ...operator.declare import Operator
from ...operator.layout import aligned, kernel_input
from ...operator.optional_torch import F, Tensor, torch
from ...operator.sparse_warning import sparse
from ..products.matmul import sum_of_rows
from .block_sparse import SAMPLED


def _run(
    crow: Tensor, col: Tensor, values: Tensor, bias: Tensor | None, n: int, x: Tensor, turned: bool
) -> Tensor:
    if x.is_cuda:
        result = _warplap.bsr_linear_direct(crow, col, values, bias, n, x, turned)
        if result is not None:
            return result
    y = x.new_empty((x.shape[0], n))
    if y.numel() == 0:
        return y
    # What kernels see is weight @ x.T, where a row of x is a column. With ``turned`` the weight is the stored matrix
    # transposed.
    k = x.shape[1]
    stored = (k, n) if turned else (n, k)
    if not x.is_cuda:
        # Kernels of the CPU write rows of what is y transposed.
        made = x.new_empty((n, x.shape[0]))
        right = x.t() if x.is_contiguous() else x.t().contiguous()
        _warplap.bsr_into(crow, col, values.contiguous(), *stored, right, made, None, turned)
        # Apart: torch turns in patches where it only copies, and in single elements where it adds too.
        y.copy_(made.t())
        return y if bias is None else y.add_(bias)
    x, values = aligned(x.contiguous()), aligned(values.contiguous())
    bias = kernel_input(bias)

    def by_kernel() -> Tensor:
        _warplap.bsr_into(crow, col, values, *stored, x.t(), y.t(), bias, turned)
        return y

    def theirs() -> Tensor:
        weight = sparse(crow, col, values, stored).to_dense()
        return F.linear(x, weight.t() if turned else weight, bias)

    return kernel_or_torch(by_kernel, theirs, who="torch.sparse")


def _shape(
    crow: Tensor, col: Tensor, values: Tensor, bias: Tensor | None, n: int, x: Tensor, turned: bool
) -> Tensor:
    return x.new_empty((x.shape[0], n))


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    crow, col, values, _, _, x, ctx.turned = inputs
    ctx.save_for_backward(crow, col, values, x)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    crow, col, values, x = ctx.saved_tensors
    grad_values = grad_bias = grad_x = None
    if ctx.needs_input_grad[2]:
        down, across = (x, grad) if ctx.turned else (grad, x)
        if grad.is_cuda and not torch.is_grad_enabled():
            grad_values = _warplap.bsr_blocks_direct(crow, col, values, down, across)
        if grad_values is None:
            grad_values = SAMPLED.call(crow, col, down.t(), across.t(), *values.shape[1:])
    if ctx.needs_input_grad[3]:
        grad_bias = sum_of_rows(grad)
    if ctx.needs_input_grad[5]:
        grad_x = BSR_LINEAR.call(crow, col, values, None, x.shape[1], grad, not ctx.turned)
    return None, None, grad_values, grad_bias, None, grad_x, None


BSR_LINEAR = Operator(
    "bsr_linear(Tensor crow, Tensor col, Tensor values, Tensor? bias, SymInt n, Tensor x, bool turned) -> Tensor",
    _run, _shape, save=_save, backward=_backward, autocast=True,
)  # fmt: skip
