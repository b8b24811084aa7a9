"""topk_softmax: right in all its forms, equal ones in their order, differentiable, safe to compile."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import near

import warplap
from warplap.ops import topk_softmax as ops_topk_softmax

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def right(x, k, renormalize=True):
    """In double precision, by lists that Python sorts: a stable sort."""
    x = x.detach().double()
    flat = x.reshape(-1, x.shape[-1])
    places = [sorted(range(len(row)), key=lambda i: -row[i])[:k] for row in flat.tolist()]
    places = torch.tensor(places, device=x.device).reshape(*x.shape[:-1], k)
    return weights_at(x, places, renormalize), places


def weights_at(x, places, renormalize):
    weights = torch.softmax(x, -1).gather(-1, places)
    return weights / weights.sum(-1, keepdim=True) if renormalize else weights


def same(got, expected):
    (weights, indices), (right_weights, right_indices) = got, expected
    assert weights.dtype == torch.float32 and indices.dtype == torch.int32
    assert torch.equal(indices.long(), right_indices)
    near(weights, right_weights)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("renormalize", [True, False])
def test_it_is_right_in_every_type_and_shape(dtype, renormalize, device):
    for shape, k in (((6, 8), 2), ((2, 3, 64), 6), ((130,), 8), ((5, 1), 1), ((3, 13), 13), ((4, 300), 40)):
        x = (4 * torch.randn(shape, device=device)).to(dtype)
        outputs = warplap.topk_softmax(x, k, renormalize=renormalize)
        assert all(t.shape == (*shape[:-1], k) and t.device == x.device for t in outputs)
        same(outputs, right(x, k, renormalize))


def test_equal_ones_are_taken_in_their_order(device):
    same(warplap.topk_softmax(torch.zeros(3, 100, device=device), 7), right(torch.zeros(3, 100, device=device), 7))
    x = torch.randint(-2, 3, (40, 90), device=device).float()
    for dtype in DTYPES:
        same(warplap.topk_softmax(x.to(dtype), 33), right(x, 33))
    zeros = torch.tensor([[-0.0, 0.0, -0.0, 0.0]], device=device)
    assert warplap.topk_softmax(zeros, 4)[1].tolist() == [[0, 1, 2, 3]]
    assert ops_topk_softmax.by_torch(zeros, k=4, renormalize=True)[1].tolist() == [[0, 1, 2, 3]]


def test_hidden_experts_weigh_nothing_and_come_last(device):
    x = torch.randn(30, 16, device=device)
    x[:, 3:] = -math.inf
    for renormalize in (True, False):
        weights, indices = warplap.topk_softmax(x, 5, renormalize=renormalize)
        same((weights, indices), right(x, 5, renormalize))
        assert (weights[:, 3:] == 0).all() and indices[:, 3:].tolist() == [[3, 4]] * 30


def test_what_is_no_number_has_places_and_no_weights(device):
    x = torch.zeros(4, 10, device=device)
    x[0, 4] = math.nan
    x[1] = -math.inf
    x[2, 7] = math.inf
    for way in (warplap.topk_softmax, ops_topk_softmax.by_torch):
        for renormalize in (True, False):
            weights, indices = way(x, k=3, renormalize=renormalize)
            assert indices.tolist() == [[4, 0, 1], [0, 1, 2], [7, 0, 1], [0, 1, 2]]
            assert weights[:2].isnan().all() and weights[2].isnan().any() and weights[3].isfinite().all()


@pytest.mark.parametrize("renormalize", [True, False])
def test_gradients_are_those_of_torch_and_have_gradients(renormalize, device):
    x = torch.randn(2, 3, 12, device=device, requires_grad=True)
    wide = x.detach().double().requires_grad_(True)
    up = torch.randn(2, 3, 4, device=device)
    weights, indices = warplap.topk_softmax(x, 4, renormalize=renormalize)
    assert weights.requires_grad and not indices.requires_grad
    theirs = weights_at(wide, indices.long(), renormalize)
    (ours,) = torch.autograd.grad((weights * up).sum(), x, create_graph=True)
    (expected,) = torch.autograd.grad((theirs * up).sum(), wide, create_graph=True)
    near(ours, expected)
    second, second_right = (torch.autograd.grad(g.square().sum(), of)[0] for g, of in ((ours, x), (expected, wide)))
    near(second, second_right, 1e-4)


def test_gradients_in_half_precision_and_behind_hidden_experts(device):
    x = torch.randn(8, 32, device=device).bfloat16()
    x[:, 5:12] = -math.inf
    x.requires_grad_(True)
    for renormalize in (True, False):
        weights, indices = warplap.topk_softmax(x, 6, renormalize=renormalize)
        (ours,) = torch.autograd.grad(weights.square().sum(), x)
        wide = x.detach().double().requires_grad_(True)
        (expected,) = torch.autograd.grad(weights_at(wide, indices.long(), renormalize).square().sum(), wide)
        assert ours.dtype == torch.bfloat16
        near(ours, expected)


def test_numpy_in_numpy_out():
    x = np.random.default_rng(1).standard_normal((3, 4, 30)).astype(np.float32)
    for array in (x, x.astype(np.float16), x.transpose(1, 0, 2)):
        weights, indices = warplap.topk_softmax(array, 5, renormalize=False)
        assert isinstance(weights, np.ndarray) and indices.dtype == np.int32
        same(map(torch.from_numpy, (weights, indices)), right(torch.from_numpy(array), 5, False))
    weights, indices = warplap.topk_softmax(np.empty((0, 8), np.float32), 2)
    assert weights.shape == indices.shape == (0, 2)


def test_odd_shapes_sizes_and_types_go_where_they_belong(device):
    wide = torch.randn(6, 20, device=device)
    for x in (wide[:, ::2], wide.t(), wide[0], wide[1:, 1:], wide[None, None]):
        same(warplap.topk_softmax(x, 3), right(x, 3))
    for shape in ((0, 5), (2, 0, 5)):
        weights, indices = warplap.topk_softmax(torch.empty(shape, device=device), 2)
        assert weights.shape == indices.shape == (*shape[:-1], 2)
        assert weights.dtype == torch.float32 and indices.dtype == torch.int32
    double = wide.double()
    weights, indices = warplap.topk_softmax(double, 3)
    assert weights.dtype == torch.float64 and torch.equal(indices.long(), right(double, 3)[1])
    # More than any problem has.
    for shape, k in (((3, 5000), 8), ((3, 200), 100)):
        x = torch.randn(shape, device=device)
        same(warplap.topk_softmax(x, k), right(x, k))


@pytest.mark.parametrize(
    "call,error,name",
    [
        (lambda x: warplap.topk_softmax(x, 5), ValueError, "k"),
        (lambda x: warplap.topk_softmax(x, 0), ValueError, "k"),
        (lambda x: warplap.topk_softmax(x, 2.0), TypeError, "k"),
        (lambda x: warplap.topk_softmax(x, None), TypeError, "k"),
        (lambda x: warplap.topk_softmax(x, True), TypeError, "k"),
        (lambda x: warplap.topk_softmax(x.long(), 2), TypeError, "x"),
        (lambda x: warplap.topk_softmax(x.sum(), 1), ValueError, "x"),
        (lambda x: warplap.topk_softmax([[1.0]], 1), TypeError, "x"),
        (lambda x: warplap.topk_softmax(x.numpy(), 5), ValueError, "k"),
        (lambda x: warplap.topk_softmax(x.double().numpy(), 2), TypeError, "x"),
        (lambda x: warplap.topk_softmax(np.ones((2, 100), np.float32), 65), ValueError, "k"),
        (lambda x: warplap.topk_softmax(np.ones((2, 5000), np.float32), 2), ValueError, "x"),
    ],
)
def test_what_is_wrong_is_named(call, error, name):
    with pytest.raises(error, match=f"^{name}: [^\n]+$"):
        call(torch.ones(3, 4))


def test_it_compiles_whole_and_shapes_recompile_nothing(device):
    def step(x):
        weights, indices = warplap.topk_softmax(x * 2, 3)
        return weights * 3, indices

    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (5, 9):
        x = torch.randn(rows, 16, device=device, requires_grad=True)
        (ours, indices), (theirs, right_indices) = compiled(x), step(x)
        near(ours, theirs)
        assert torch.equal(indices, right_indices)
        up = torch.randn_like(ours)
        near(*(torch.autograd.grad((y * up).sum(), x)[0] for y in (ours, theirs)))


def test_a_region_of_autocast_changes_nothing(device):
    x = torch.randn(6, 16, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        same(warplap.topk_softmax(x, 4), right(x, 4))


def test_the_operator_keeps_torchs_rules(device):
    x = torch.randn(6, 8, device=device, requires_grad=True)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    for renormalize in (True, False):
        torch.library.opcheck(torch.ops.warplap.topk_softmax.default, (x, 3, renormalize), test_utils=tests)


def test_it_is_tuned_benchmarked_and_explained_by_its_arguments(device):
    x = torch.randn(16, 128, device=device)
    tuned = warplap.tune([(warplap.topk_softmax, x, 8)])[0]
    assert tuned.problem == "topk_softmax:rows=16,n=128,k=8,dtype=f32,renormalize=true"
    shown = str(warplap.benchmark(warplap.topk_softmax, x.bfloat16(), 8, renormalize=False))
    assert "torch_topk_softmax" in shown and "wrong" not in shown.lower(), shown
    assert "torch_topk_softmax" in str(warplap.benchmark("topk_softmax:rows=9,n=40,k=40,dtype=f16,renormalize=true"))


def test_it_works_without_torch():
    program = """
import sys
sys.modules["torch"] = None
import numpy as np, warplap
warplap.configure(in_memory=True, budget=0.05)
x = np.array([[0.0, 2.0, 1.0, 2.0]], np.float32)
weights, indices = warplap.topk_softmax(x, 2)
assert indices.tolist() == [[1, 3]] and np.allclose(weights, 0.5)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
