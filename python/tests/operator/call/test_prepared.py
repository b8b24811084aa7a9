"""Any operation by its problem's text and tensors by slot."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import near

import warplap
from warplap import _warplap


def test_outputs_are_made_or_written(device):
    a, b = torch.randn(5, 7, device=device), torch.randn(7, 3, device=device)
    problem = "gemm:m=5,n=3,k=7,dtype=f32"
    near(warplap.run(problem, {"a": a, "b": b}), a.double() @ b.double())
    c = torch.empty(5, 3, device=device)
    assert warplap.run(problem, {"b": b, "a": a, "c": c}) is None
    near(c, a.double() @ b.double())


def test_two_outputs_come_as_a_pair_and_one_of_them_may_be_given():
    x, r = torch.randn(4, 6), torch.randn(4, 6)
    problem = "norm:rows=4,n=6,dtype=f32,residual=true,weight=false"
    y, total = warplap.run(problem, {"x": x, "residual": r})
    assert torch.equal(total, x + r)
    mine = torch.empty_like(x)
    near(warplap.run(problem, {"x": x, "residual": r, "sum": mine}), y)
    assert torch.equal(mine, total)


def test_strides_are_those_of_the_problem(device):
    q, k, v = (torch.randn(2, 5, 3, 8, device=device).transpose(1, 2) for _ in range(3))
    out = warplap.run("attention:b=2,h=3,sq=5,d=8,dtype=f32,layout=bshd", {"q": q, "k": k, "v": v})
    near(out, torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double()))
    with pytest.raises(ValueError, match="^q: has strides .*call .contiguous"):
        warplap.run("attention:b=2,h=3,sq=5,d=8,dtype=f32", {"q": q, "k": k, "v": v})


def test_attentions_gradients_are_those_of_autograd(device):
    q, k, v = (torch.randn(2, 3, 9, 8, device=device, requires_grad=True) for _ in range(3))
    grad = torch.randn(2, 3, 9, 8, device=device)
    scores = (q.double() @ k.double().transpose(-2, -1)) * 8**-0.5
    scores = scores.masked_fill(torch.ones(9, 9, dtype=torch.bool, device=device).triu(1), -torch.inf)
    out, lse = scores.softmax(-1) @ v.double(), scores.logsumexp(-1).float()
    right = torch.autograd.grad(out, (q, k, v), grad.double())
    tensors = {name: t.detach() for name, t in (("q", q), ("k", k), ("v", v), ("lse", lse))}
    tensors |= {"out": out.detach().float(), "grad": grad}
    gradients = warplap.run("attention_grad:b=2,h=3,sq=9,d=8,dtype=f32,causal=true", tensors)
    for got, want in zip(gradients, right):
        near(got, want.double())


def test_numpy_arrays_are_written():
    a, c = np.ones((2, 3), np.float32), np.empty((2, 2), np.float32)
    warplap.run("matmul:m=2,n=2,k=3,dtype=f32", {"a": a, "b": a.reshape(3, 2), "c": c})
    assert np.array_equal(c, np.full((2, 2), 3, np.float32))
    with pytest.raises(ValueError, match="^c: is missing: only torch's"):
        warplap.run("gemm:m=2,n=2,k=3,dtype=f32", {"a": a, "b": a.reshape(3, 2)})


def test_indices_are_looked_at_before_anything_is_read_through_them():
    dense = torch.zeros(32, 32)
    dense[:16, 16:] = torch.randn(16, 16)
    a, b = dense.to_sparse_bsr((16, 16)), torch.randn(32, 4)
    crow, col, values = a.crow_indices().int(), a.col_indices().int(), a.values()
    problem = _warplap.bsr_problem(crow, col, values, 32, 32, b)
    tensors = {"row_ptr": crow, "col_idx": col, "values": values, "b": b}
    near(warplap.run(problem, tensors), dense.double() @ b.double())
    with pytest.raises(ValueError):
        warplap.run(problem, {**tensors, "col_idx": col + 7})


@pytest.mark.parametrize(
    "problem,tensors,name",
    [
        ("gemm:m=2,n=2,k=2,dtype=f32", {"a": torch.ones(2, 2)}, "b: is missing"),
        ("gemm:m=2,n=2,k=2,dtype=f32", {"a": torch.ones(2, 3), "b": torch.ones(2, 2)}, "a: has shape"),
        ("gemm:m=2,n=2,k=2,dtype=f16", {"a": torch.ones(2, 2), "b": torch.ones(2, 2)}, "a: holds float32"),
        ("gemm:m=2,n=2,k=2,dtype=f32", {"q": torch.ones(2, 2)}, "tensors: has 'q'"),
        ("norm:rows=2,n=2,weight=false", {"x": torch.ones(2, 2), "bias": torch.ones(2)}, "bias: is given"),
        ("gemm:m=2,n=2", {}, ".*'k'"),
        ("nothing:m=2", {}, ".*nothing"),
    ],
)
def test_what_is_wrong_is_named(problem, tensors, name):
    with pytest.raises((TypeError, ValueError), match=f"^{name}"):
        warplap.run(problem, tensors)


def test_memory_that_is_shared_is_refused():
    a = torch.ones(2, 2)
    with pytest.raises(ValueError, match="^c: shares memory with a"):
        warplap.run("gemm:m=2,n=2,k=2,dtype=f32", {"a": a, "b": torch.ones(2, 2), "c": a})


def test_a_prepared_call_knows_its_slots():
    call = _warplap.Prepared("rmsnorm:rows=2,n=4,dtype=f16,bias=true")
    assert call.problem == "norm:rows=2,n=4,dtype=f16,kind=rms,bias=true"
    there = {"x": True, "residual": False, "weight": True, "bias": True, "y": True, "sum": False}
    there |= {"before": False, "seed": False, "scale": False}
    assert dict(call.slots) == there
    x = torch.ones(2, 4, dtype=torch.float16, requires_grad=True)
    assert call.direct(x, None, x[0], x[0]) is None, "a gradient is wanted"
