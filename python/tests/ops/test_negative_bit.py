"""Imaginary parts of conjugated numbers: torch says that their sign is to be turned, and memory does not."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from conftest import near

import warplap

w, key, labels = torch.randn(5, 4), torch.randn(1, 2, 8, 4), torch.arange(8) % 4
CALLS = {
    "linear": (lambda x: warplap.linear(x, w), lambda x: F.linear(x, w), (8, 4)),
    "linear of a column": (lambda x: warplap.linear(x, w[:, :1]), lambda x: F.linear(x, w[:, :1]), (8, 1)),
    "matmul": (lambda x: warplap.matmul(x, w.t()), lambda x: x @ w.t(), (8, 4)),
    "matmul of a row": (lambda x: warplap.matmul(w, x), lambda x: w @ x, (4, 1)),
    "softmax": (warplap.softmax, lambda x: x.softmax(-1), (8, 4)),
    "softmax of a column": (lambda x: warplap.softmax(x.t()), lambda x: x.t().softmax(-1), (8, 1)),
    "norm": (warplap.norm, lambda x: F.rms_norm(x, (4,), eps=1e-6), (8, 4)),
    "gated": (lambda x: warplap.gated(x, x), lambda x: F.silu(x) * x, (8, 4)),
    "gated_linear": (lambda x: warplap.gated_linear(x, w, w), lambda x: F.silu(x @ w.t()) * (x @ w.t()), (8, 4)),
    "attention": (
        lambda x: warplap.attention(x, key, key), lambda x: F.scaled_dot_product_attention(x, key, key), (1, 2, 8, 4),
    ),
    "cross_entropy": (lambda x: warplap.cross_entropy(x, labels), lambda x: F.cross_entropy(x, labels), (8, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_sign_that_is_not_in_memory_counts(name):
    ours, torchs, shape = CALLS[name]
    x = torch.randn(shape, dtype=torch.complex64)
    plain, turned = x.imag, x.conj().imag
    assert turned.is_neg() and plain.stride() == turned.stride()
    for t in (plain, turned, plain, turned):  # what is known of one is not said of the other
        near(ours(t), torchs(t))
