"""A layer with a block-sparse weight over torch tensors: ``x @ weight.T + bias``, rows in and rows out, and its gradients
likewise."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _warplap
from ..operator import cuda
from .block_sparse import gradient_of_blocks
from ..operator.compile import fake
from ..operator.library import lib
from ..operator.eager import operator
from .matmul import sum_of_rows
from ..operator.sparse_warning import sparse


def _run(
    crow: Tensor, col: Tensor, values: Tensor, bias: Tensor | None, n: int, x: Tensor, turned: bool
) -> Tensor:
    if x.is_cuda:
        found = _warplap.bsr_linear_direct(crow, col, values, bias, n, x, turned)
        if found is not None:
            return found
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
    x, values = cuda.aligned(x.contiguous()), cuda.aligned(values.contiguous())
    bias = None if bias is None else cuda.aligned(bias.contiguous())
    try:
        _warplap.bsr_into(crow, col, values, *stored, x.t(), y.t(), bias, turned)
    except NotImplementedError as why:
        cuda.tell("torch.sparse", why)
        weight = sparse(crow, col, values, stored).to_dense()
        return torch.nn.functional.linear(x, weight.t() if turned else weight, bias)
    return y


lib.impl("bsr_linear", _run, "CPU")
lib.impl("bsr_linear", _run, "CUDA")


@fake("bsr_linear")
def _fake(
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
            grad_values = gradient_of_blocks(crow, col, down.t(), across.t(), *values.shape[1:])
    if ctx.needs_input_grad[3]:
        grad_bias = sum_of_rows(grad)
    if ctx.needs_input_grad[5]:
        grad_x = linear(crow, col, values, None, x.shape[1], grad, not ctx.turned)
    return None, None, grad_values, grad_bias, None, grad_x, None


# ``linear(crow, col, values, bias, n, x, turned)``: x has shape (rows, k), the answer (rows, n); with ``turned`` the
# stored matrix has k rows and n columns.
linear = operator("bsr_linear", _run, _save, _backward).call
