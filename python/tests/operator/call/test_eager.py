"""Operators in a plain program are one node of torch's graph; who traces, casts or watches sees them by their names."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from conftest import Seen, near

import warplap


def leaves(*shapes, dtype=torch.float32):
    return [torch.randn(*shape, dtype=dtype).requires_grad_() for shape in shapes]


def sparse(values):
    crow, col = torch.tensor([0, 1, 3], dtype=torch.int32), torch.tensor([1, 0, 1], dtype=torch.int32)
    return torch.sparse_bsr_tensor(crow, col, values, (16, 16))


CALLS = {
    "matmul": (lambda a, b: warplap.matmul(a, b), lambda a, b: a @ b, [(5, 7), (7, 3)]),
    "linear": (
        lambda x, w, b: warplap.linear(x, w, b, "gelu"),
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        [(2, 3, 7), (5, 7), (5,)],
    ),
    "linear without bias": (lambda x, w: warplap.linear(x, w), F.linear, [(6, 7), (5, 7)]),
    "bsr_matmul": (
        lambda v, b: warplap.bsr_matmul(sparse(v), b),
        lambda v, b: sparse(v).to_dense() @ b,
        [(3, 8, 8), (16, 5)],
    ),
    "norm": (lambda x, w: warplap.norm(x, w), lambda x, w: F.rms_norm(x, w.shape, w, 1e-5), [(4, 16), (16,)]),
    "norm with residual": (
        lambda x, r, w: sum(warplap.norm(x, w, residual=r)),
        lambda x, r, w: F.rms_norm(x + r, w.shape, w, 1e-5) + (x + r),
        [(4, 16), (4, 16), (16,)],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_gradients_and_their_gradients_are_torchs(name):
    ours, theirs, shapes = CALLS[name]
    inputs = leaves(*shapes)
    reference_inputs = [g.detach().clone().requires_grad_() for g in inputs]
    got, right = ours(*inputs), theirs(*reference_inputs)
    near(got.detach(), right.detach())
    along = torch.randn_like(right)
    first = torch.autograd.grad(got, inputs, along, create_graph=True)
    second = torch.autograd.grad(right, reference_inputs, along, create_graph=True)
    for a, b in zip(first, second):
        near(a.detach(), b.detach())
    if name == "bsr_matmul":
        return  # torch has no second derivative of a sparse matrix made of its parts
    deeper = torch.autograd.grad(sum(g.square().sum() for g in first), inputs)
    expected = torch.autograd.grad(sum(g.square().sum() for g in second), reference_inputs)
    for a, b in zip(deeper, expected):
        near(a, b)


def test_a_plain_call_is_one_node_and_keeps_what_torch_would():
    warplap.set_mode("replay")  # where nothing is measured, nobody else can win
    a, b = leaves((5, 7), (7, 3))
    c = warplap.matmul(a, b)
    assert type(c.grad_fn).__name__ == "matmulBackward" and c.requires_grad
    assert {n[0].variable is t for n, t in zip(c.grad_fn.next_functions, (a, b))} == {True}
    with torch.no_grad():
        a.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        c.sum().backward()
    assert warplap.matmul(a, b.detach()).requires_grad and not warplap.matmul(a.detach(), b.detach()).requires_grad


def test_only_wanted_gradients_are_computed():
    a, b = leaves((5, 7), (7, 3))
    warplap.matmul(a, b.detach()).sum().backward()
    assert a.grad is not None and b.grad is None
    with torch.no_grad():
        assert warplap.matmul(a, b).grad_fn is None


def test_who_watches_sees_the_operator():
    a, b = leaves((5, 7), (7, 3))
    with Seen() as seen:
        warplap.matmul(a, b)
    assert any("warplap.matmul" in name for name in seen.names), seen.names
    traced = torch.fx.experimental.proxy_tensor.make_fx(lambda a, b: warplap.matmul(a, b))(a.detach(), b.detach())
    assert "warplap.matmul" in traced.code
    meta = warplap.matmul(torch.empty(5, 7, device="meta"), torch.empty(7, 3, device="meta"))
    assert meta.device.type == "meta" and meta.shape == (5, 3)


def test_mixed_precision_checkpoints_and_hooks_have_their_way():
    x, w = leaves((6, 7), (5, 7))
    with torch.autocast("cpu", torch.bfloat16):
        y = warplap.linear(x, w)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert x.grad.dtype == w.grad.dtype == torch.float32
    from torch.utils.checkpoint import checkpoint

    z, v = leaves((6, 7), (5, 7))
    checkpoint(lambda z, v: warplap.linear(z, v).relu(), z, v, use_reentrant=False).sum().backward()
    t, u = z.detach().clone().requires_grad_(), v.detach().clone().requires_grad_()
    F.linear(t, u).relu().sum().backward()
    near(z.grad, t.grad)
    near(v.grad, u.grad)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda s: packed.append(s) or s, lambda s: s):
        warplap.linear(z, v)
    assert len(packed) == 2
