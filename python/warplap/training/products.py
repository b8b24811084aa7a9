"""matmul and linear of plain tensors where gradients are wanted: straight to who won the whole step.

A lookup and a call, by what decides who is fastest; everything else (tensors that do not fit, somebody who traces) goes
the general way.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import _warplap
from ..ops.linear import ACTIVATIONS, linear_node
from ..operator.library import rows
from ..operator.eager import modes
from ..ops.matmul import matmul_node
from .steps import Call, Steps

_keeps = torch.is_grad_enabled


def _product_problem(a: Tensor, b: Tensor) -> str:
    return _warplap.matmul_problem(rows(a), b.unsqueeze(1) if b.ndim == 1 else b)


def _layer_problem(x: Tensor, w: Tensor, bias: Tensor | None) -> str:
    return _warplap.linear_problem(rows(x), w, bias)


_products = Steps("train_matmul", "ab", _product_problem)
_layers = Steps("train_linear", "xwb", _layer_problem)
_of_products, _of_layers = _products.chosen, _layers.chosen


def matmul(a: Tensor, b: Tensor) -> Tensor | None:
    """The product of plain tensors by whoever won; None where it is not for this way to compute."""
    wants_a, wants_b = a.requires_grad, b.requires_grad
    if not ((wants_a or wants_b) and _keeps()):
        return None
    key = a.shape, b.shape, wants_a, wants_b, a.dtype, a.is_cuda
    chosen = _of_products.get(key) or _choose_product(key, a, b)
    if chosen is None or modes():  # who traces with torch.jit has sizes that no key knows
        return None
    try:
        return chosen(a, b)
    except RuntimeError:  # what is wrong is said in our words on the general way
        return None


def linear(x: Tensor, w: Tensor, bias: Tensor | None, activation: str | None) -> Tensor | None:
    """The layer over plain tensors by whoever won; None where it is not for this way to compute."""
    wants_x, wants_w = x.requires_grad, w.requires_grad
    size, wants_bias = (None, False) if bias is None else (bias.shape, bias.requires_grad)
    if not ((wants_x or wants_w or wants_bias) and _keeps()):
        return None
    key = x.shape, w.shape, size, wants_x, wants_w, wants_bias, activation, x.dtype, x.is_cuda
    chosen = _of_layers.get(key) or _choose_layer(key, x, w, bias, activation)
    if chosen is None or modes():
        return None
    try:
        return chosen(x, w, bias)
    except RuntimeError:
        return None


def _choose_product(key: Any, a: Tensor, b: Tensor) -> Call | None:
    if a.ndim == 0 or not 1 <= b.ndim <= 2:  # batches are torch's own
        return None
    return _products.choose(key, (a, b), "none", matmul_node, torch.matmul)


def _choose_layer(key: Any, x: Tensor, w: Tensor, bias: Tensor | None, activation: str | None) -> Call | None:
    if x.ndim == 0:
        return None
    if activation is None:
        return _layers.choose(key, (x, w, bias), "none", linear_node, F.linear)
    finish = ACTIVATIONS.get(activation)
    if finish is None:
        return None
    own: Call = lambda x, w, bias: finish(linear_node(x, w, bias))
    theirs: Call = lambda x, w, bias: finish(F.linear(x, w, bias))
    return _layers.choose(key, (x, w, bias), activation, own, theirs)
