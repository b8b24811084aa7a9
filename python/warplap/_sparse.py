"""A layer with a block-sparse weight over torch tensors: ``x @ weight.T + bias`` with rows in and rows out, and so are its
gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._blocks import gradient_of_blocks, into, transposed
from ._library import lib
from ._nodes import operator


def _run(crow: Tensor, col: Tensor, values: Tensor, bias: Tensor | None, n: int, x: Tensor) -> Tensor:
    y = x.new_empty((x.shape[0], n))
    if y.numel() > 0:
        # What kernels see is weight @ x.T, where a row of x is a column.
        into(crow, col, values, n, x.shape[1], x.t(), y.t())
    return y if bias is None else y.add_(bias)


lib.impl("bsr_linear", _run, "CPU")
lib.impl("bsr_linear", _run, "CUDA")


@torch.library.register_fake("warplap::bsr_linear", lib=lib)
def _fake(crow: Tensor, col: Tensor, values: Tensor, bias: Tensor | None, n: int, x: Tensor) -> Tensor:
    return x.new_empty((x.shape[0], n))


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    crow, col, values, _, _, x = inputs
    ctx.save_for_backward(crow, col, values, x)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    crow, col, values, x = ctx.saved_tensors
    grad_values = grad_bias = grad_x = None
    if ctx.needs_input_grad[2]:
        grad_values = gradient_of_blocks(crow, col, grad.t(), x.t(), *values.shape[1:])
    if ctx.needs_input_grad[3]:
        grad_bias = grad.sum(0)
    if ctx.needs_input_grad[5]:
        columns = x.shape[1]
        grad_x = linear(*transposed(crow, col, values, columns), None, columns, grad)
    return None, None, grad_values, grad_bias, None, grad_x


# ``linear(crow, col, values, bias, n, x)``: x has shape (rows, k), the answer (rows, n).
linear = operator("bsr_linear", _run, _save, _backward)
