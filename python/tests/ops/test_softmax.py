"""softmax, and cross_entropy behind it: right in all their forms, differentiable, safe to compile."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import near
from right_answers import right_entropy

import warplap
from warplap.ops import softmax as ops_softmax

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def right_softmax(x, mask=None, scale=1.0):
    scores = x.double() * scale
    return torch.softmax(scores if mask is None else scores + mask.double(), -1)


def hiding(*shape, dtype=torch.float32, device="cpu"):
    """A mask that hides some, and not all of a row."""
    mask = torch.randn(shape, device=device).to(dtype)
    mask[..., 1:].masked_fill_(torch.rand(shape, device=device)[..., 1:] > 0.7, -math.inf)
    return mask


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_is_right_in_every_type_with_every_mask(dtype, device):
    x = torch.randn(2, 3, 4, 40, device=device).to(dtype)
    near(warplap.softmax(x), right_softmax(x))
    near(warplap.softmax(x, scale=0.125), right_softmax(x, scale=0.125))
    for shape in ((40,), (4, 40), (2, 1, 1, 40), (3, 4, 40), (2, 3, 4, 40), (2, 1, 4, 40), (1, 3, 1, 40), (4, 1)):
        mask = hiding(*shape, dtype=dtype, device=device)
        output = warplap.softmax(x, mask, scale=0.3)
        assert output.dtype == dtype and output.device == x.device
        near(output, right_softmax(x, mask, 0.3))


def test_rows_share_rows_of_a_mask_without_it_being_written_out():
    shape = (2, 3, 4, 40)
    assert ops_softmax.shared(shape, (40,)) == (1, 1)
    assert ops_softmax.shared(shape, (4, 40)) == (4, 1)
    assert ops_softmax.shared(shape, (2, 1, 1, 40)) == (2, 12)
    assert ops_softmax.shared(shape, (1, 3, 1, 40)) == (3, 4)
    assert ops_softmax.shared(shape, shape) == (24, 1)
    assert ops_softmax.shared(shape, (2, 1, 4, 40)) is None
    x = torch.randn(2, 3, 4, 40)
    asked = warplap.explain(warplap.softmax, x, torch.zeros(2, 1, 1, 40), scale=0.5)
    assert "softmax:rows=24,n=40,dtype=f32,scale=0.5,mask=2,each=12" in str(asked)


def test_booleans_hide_where_they_are_false(device):
    x, seen = torch.randn(3, 5, device=device), torch.rand(3, 5, device=device) > 0.5
    seen[:, 0] = True
    near(warplap.softmax(x, seen), torch.softmax(x.double().masked_fill(~seen, -math.inf), -1))


def test_gradients_of_softmax_are_those_of_torch(device):
    for shape in ((5,), (4, 5), (2, 1, 1, 5), (2, 1, 4, 5)):
        x = torch.randn(2, 3, 4, 5, device=device, requires_grad=True)
        mask = torch.randn(shape, device=device, requires_grad=True)
        up = torch.randn(2, 3, 4, 5, device=device)
        ours = torch.autograd.grad((warplap.softmax(x, mask, scale=0.7) * up).sum(), (x, mask))
        theirs = torch.autograd.grad((right_softmax(x, mask, 0.7) * up).sum(), (x, mask))
        for got, expected in zip(ours, theirs):
            near(got, expected)


def test_gradients_of_softmax_have_gradients(device):
    x = torch.randn(3, 6, device=device, requires_grad=True)

    def second(y):
        (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    near(second(warplap.softmax(x, scale=2.0)), second(right_softmax(x, scale=2.0)), 1e-4)


def test_numpy_in_numpy_out():
    x = np.random.default_rng(1).standard_normal((3, 4, 30)).astype(np.float32)
    mask = np.zeros((4, 30), np.float32)
    mask[:, 20:] = -np.inf
    near(torch.from_numpy(warplap.softmax(x, mask, scale=2.0)), right_softmax(*map(torch.from_numpy, (x, mask)), 2.0))
    labels = np.arange(12).reshape(3, 4)
    for reduction in ("mean", "sum", "none"):
        loss = warplap.cross_entropy(x, labels, label_smoothing=0.1, reduction=reduction)
        right = right_entropy(*map(torch.from_numpy, (x, labels)), smoothing=0.1, reduction=reduction)
        near(torch.as_tensor(np.asarray(loss)), right)


def test_odd_shapes_and_types_go_where_they_belong(device):
    wide = torch.randn(6, 20, device=device)
    for x in (wide[:, ::2], wide.t(), wide[0], wide[1:, 1:], wide[None, None]):
        near(warplap.softmax(x), right_softmax(x))
        labels = torch.zeros(x.shape[:-1], dtype=torch.int64, device=device)
        near(warplap.cross_entropy(x, labels), right_entropy(x, labels))
    assert warplap.softmax(torch.empty(0, 5, device=device)).shape == (0, 5)
    double = wide.double().requires_grad_(True)
    assert torch.equal(warplap.softmax(double), torch.softmax(double, -1))
    assert warplap.cross_entropy(double, torch.zeros(6, dtype=torch.int64, device=device)).dtype == torch.float64


@pytest.mark.parametrize(
    "call,error,name",
    [
        (lambda x, y: warplap.softmax(x, torch.ones(5)), ValueError, "mask"),
        (lambda x, y: warplap.softmax(x, torch.ones(4, dtype=torch.float16)), TypeError, "mask"),
        (lambda x, y: warplap.softmax(x, scale=math.inf), ValueError, "scale"),
        (lambda x, y: warplap.softmax(x.long()), TypeError, "x"),
        (lambda x, y: warplap.softmax(x.sum()), ValueError, "x"),
        (lambda x, y: warplap.cross_entropy(x, y[:2]), ValueError, "labels"),
        (lambda x, y: warplap.cross_entropy(x, y.float()), TypeError, "labels"),
        (lambda x, y: warplap.cross_entropy(x.long(), y), TypeError, "logits"),
        (lambda x, y: warplap.cross_entropy(x, y, reduction="max"), ValueError, "reduction"),
        (lambda x, y: warplap.cross_entropy(x, y, label_smoothing=2.0), ValueError, "label_smoothing"),
        (lambda x, y: warplap.cross_entropy(x, y, z_loss=-1.0), ValueError, "z_loss"),
    ],
)
def test_what_is_wrong_is_named(call, error, name):
    with pytest.raises(error, match=f"^{name}: "):
        call(torch.ones(3, 4), torch.zeros(3, dtype=torch.int64))


def test_they_compile_whole_and_shapes_recompile_nothing(device):
    def step(x, y):
        return warplap.cross_entropy(warplap.softmax(x * 2, scale=0.5) * 3, y)

    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (5, 9):
        x, y = torch.randn(rows, 16, device=device, requires_grad=True), torch.arange(rows, device=device)
        near(compiled(x, y), step(x, y))
        ours, theirs = (torch.autograd.grad(f(x, y), x)[0] for f in (compiled, step))
        near(ours, theirs)


def test_the_operators_keep_torchs_rules(device):
    x, mask = torch.randn(6, 8, device=device, requires_grad=True), torch.randn(2, 8, device=device)
    labels = torch.arange(6, device=device)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    ops = torch.ops.warplap
    torch.library.opcheck(ops.softmax.default, (x, mask, 0.5, 3), test_utils=tests)
    torch.library.opcheck(ops.softmax_grad.default, (x.detach(), torch.randn_like(x), 0.5), test_utils=tests)
    numbers = (-100, 0.1, 0.0, True)
    torch.library.opcheck(ops.cross_entropy.default, (x.detach(), labels, *numbers), test_utils=tests)
    torch.library.opcheck(ops.cross_entropy_trained.default, (x, labels, *numbers), test_utils=tests)


def test_they_are_tuned_benchmarked_and_explained_by_their_arguments(device):
    x, labels = torch.randn(16, 128, device=device), torch.arange(16, device=device)
    assert warplap.tune([(warplap.softmax, x)])[0].problem == "softmax:rows=16,n=128,dtype=f32"
    tuned = warplap.tune([(warplap.cross_entropy, x, labels)])[0]
    assert tuned.problem == "cross_entropy:rows=16,n=128,dtype=f32"
    assert "torch_softmax" in str(warplap.benchmark(warplap.softmax, x))
    assert "torch_cross_entropy" in str(warplap.benchmark(warplap.cross_entropy, x, labels))
    assert "torch_softmax_grad" in str(warplap.benchmark("softmax_grad:rows=16,n=128,dtype=f32"))
    for problem in ("cross_entropy:rows=16,n=128,dtype=bf16,grad=true,smoothing=0.1,zloss=0.01", "softmax:rows=16,n=8,dtype=bf16,mask=2,each=8,scale=0.3"):
        report = warplap.benchmark(problem)
        assert "wrong" not in str(report).lower(), report


def test_torchs_ways_are_those_of_the_problems():
    x, mask = torch.randn(10, 6), torch.randn(2, 6)
    spread = mask[(torch.arange(10) // 3) % 2]
    near(ops_softmax.by_torch(x, mask, scale=0.5, each=3), right_softmax(x, spread, 0.5))


def test_they_work_without_torch():
    program = """
import sys
sys.modules["torch"] = None
import numpy as np, warplap
warplap.configure(in_memory=True, budget=0.05)
x = np.arange(12, dtype=np.float32).reshape(3, 4)
y = warplap.softmax(x)
right = np.exp(x - x.max(-1, keepdims=True))
assert np.allclose(y, right / right.sum(-1, keepdims=True), atol=1e-6)
loss = warplap.cross_entropy(x, np.array([0, 1, 2]))
assert np.allclose(loss, -np.log((right / right.sum(-1, keepdims=True))[np.arange(3), np.arange(3)]).mean(), atol=1e-5)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
