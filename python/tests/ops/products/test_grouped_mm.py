"""grouped_mm: right for every deal of rows, differentiable, safe to compile, refused by name."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import near

import warplap
from warplap.ops.products import grouped_mm as ops_grouped_mm

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def right(x, w, offsets):
    """In double precision, expert by expert; rows of nobody are left out."""
    ends = [0, *offsets.tolist()]
    parts = [x[a:b].double() @ w[e].double() for e, (a, b) in enumerate(zip(ends, ends[1:]))]
    return torch.cat(parts)


def drawn(counts, k, n, device, dtype=torch.float32, turned=False):
    x = torch.randn(sum(counts), k, device=device).to(dtype)
    w = torch.randn((len(counts), n, k) if turned else (len(counts), k, n), device=device).to(dtype)
    offsets = torch.tensor(counts, device=device).cumsum(0).int()
    return x, w.transpose(-2, -1) if turned else w, offsets


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("turned", [False, True])
def test_it_is_right_for_every_type_layout_and_deal(dtype, turned, device):
    deals = ([3, 0, 7, 1], 16, 24), ([0, 0, 5], 33, 7), ([40], 64, 96), ([1] * 20, 8, 8), ([60, 2, 30], 72, 130)
    for counts, k, n in deals:
        x, w, offsets = drawn(counts, k, n, device, dtype, turned)
        y = warplap.grouped_mm(x, w, offsets)
        assert y.dtype == dtype and y.shape == (sum(counts), n) and y.device == x.device
        near(y, right(x, w, offsets))


def test_it_is_what_torch_computes(device):
    x, w, offsets = drawn([5, 0, 11, 16], 32, 48, device, torch.bfloat16, True)
    near(warplap.grouped_mm(x, w, offsets), torch._grouped_mm(x, w, offs=offsets).double())


def test_rows_behind_the_last_end_are_nobodys(device):
    x, w, _ = drawn([9, 7], 16, 8, device)
    offsets = torch.tensor([4, 10], dtype=torch.int32, device=device)
    near(warplap.grouped_mm(x, w, offsets)[:10], right(x, w, offsets))
    near(ops_grouped_mm.loop(x, w, offsets)[:10], right(x, w, offsets))


def test_rows_of_nobody_have_no_gradient_and_x_may_have_gaps(device):
    x, w, _ = drawn([9, 7], 32, 8, device)
    x, w = x[:, ::2].requires_grad_(True), w[:, :16].requires_grad_(True)
    offsets = torch.tensor([4, 10], dtype=torch.int32, device=device)
    for _ in range(3):  # memory that was numbers before
        torch.full((16, 16), float("nan"), device=device)
        warplap.grouped_mm(x, w, offsets)[:10].sum().backward()
        assert not x.grad[10:].any() and torch.isfinite(x.grad).all() and torch.isfinite(w.grad).all()
        wide_x, wide_w = (t.detach().double().requires_grad_(True) for t in (x, w))
        right(wide_x, wide_w, offsets).sum().backward()
        near(x.grad, wide_x.grad)
        near(w.grad, wide_w.grad)
        x.grad = w.grad = None


@pytest.mark.parametrize("turned", [False, True])
def test_gradients_are_those_of_torch_and_have_gradients(turned, device):
    x, w, offsets = drawn([3, 0, 6, 2], 8, 16, device, turned=turned)
    x, w = x.detach().requires_grad_(True), w.detach().requires_grad_(True)
    wide = [t.detach().double().requires_grad_(True) for t in (x, w)]
    up = torch.randn(11, 16, device=device)
    ours = torch.autograd.grad((warplap.grouped_mm(x, w, offsets) * up).sum(), (x, w), create_graph=True)
    theirs = torch.autograd.grad((right(*wide, offsets) * up).sum(), wide, create_graph=True)
    for one, other in zip(ours, theirs):
        near(one, other)
    second = torch.autograd.grad(sum(g.square().sum() for g in ours), (x, w))
    for one, other in zip(second, torch.autograd.grad(sum(g.square().sum() for g in theirs), wide)):
        near(one, other, 1e-4)


def test_gradients_in_half_precision_for_one_of_both(device):
    x, w, offsets = drawn([8, 16, 0, 24], 32, 64, device, torch.bfloat16)
    for i in (0, 1):
        inputs = [x.detach(), w.detach()]
        inputs[i].requires_grad_(True)
        (ours,) = torch.autograd.grad(warplap.grouped_mm(*inputs, offsets).sum(), inputs[i])
        wide = [t.detach().double() for t in (x, w)]
        wide[i].requires_grad_(True)
        (theirs,) = torch.autograd.grad(right(*wide, offsets).sum(), wide[i])
        assert ours.dtype == torch.bfloat16
        near(ours, theirs)


def test_numpy_in_numpy_out():
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((9, 12)).astype(np.float32), rng.standard_normal((4, 12, 5)).astype(np.float32)
    offsets = np.array([2, 2, 5, 9], np.int32)
    for dtype in (np.float32, np.float16):
        y = warplap.grouped_mm(x.astype(dtype), w.astype(dtype), offsets)
        assert isinstance(y, np.ndarray) and y.dtype == dtype
        near(torch.from_numpy(y), right(*map(torch.from_numpy, (x, w, offsets))), 1e-3)
    assert warplap.grouped_mm(np.empty((0, 12), np.float32), w, np.zeros(4, np.int32)).shape == (0, 5)


def test_odd_sizes_strides_and_types_go_where_they_belong(device):
    x, w, offsets = drawn([4, 0, 6], 20, 12, device)
    near(warplap.grouped_mm(x[:, ::2], w[:, ::2], offsets), right(x[:, ::2], w[:, ::2], offsets))
    near(warplap.grouped_mm(x.t().contiguous().t(), w[:, :, 3:], offsets), right(x, w[:, :, 3:], offsets))
    double = warplap.grouped_mm(x.double(), w.double(), offsets)
    assert double.dtype == torch.float64
    near(double, right(x, w, offsets))
    for rows, k, n in ((0, 4, 3), (5, 0, 3), (5, 4, 0)):
        ends = torch.full((2,), rows, dtype=torch.int32, device=device)
        y = warplap.grouped_mm(torch.ones(rows, k, device=device), torch.ones(2, k, n, device=device), ends)
        assert y.shape == (rows, n) and (y == 0).all()
    # More experts than any problem has.
    x, w, offsets = drawn([1] * 1100, 3, 2, device)
    near(warplap.grouped_mm(x, w, offsets), right(x, w, offsets))


W, ENDS = torch.ones(2, 4, 5), torch.tensor([1, 3], dtype=torch.int32)


@pytest.mark.parametrize(
    "call,error,name",
    [
        (lambda x: warplap.grouped_mm(x, W[0], ENDS), ValueError, "w"),
        (lambda x: warplap.grouped_mm(x[0], W, ENDS), ValueError, "x"),
        (lambda x: warplap.grouped_mm(x[:, :3], W, ENDS), ValueError, "w"),
        (lambda x: warplap.grouped_mm(x, W, ENDS[:1]), ValueError, "offsets"),
        (lambda x: warplap.grouped_mm(x, W, ENDS.long()), TypeError, "offsets"),
        (lambda x: warplap.grouped_mm(x, W.half(), ENDS), TypeError, "w"),
        (lambda x: warplap.grouped_mm(x.long(), W.long(), ENDS), TypeError, "x"),
        (lambda x: warplap.grouped_mm(x, W, ENDS.flip(0)), ValueError, "offsets"),
        (lambda x: warplap.grouped_mm(x, W, ENDS - 2), ValueError, "offsets"),
        (lambda x: warplap.grouped_mm(x, W, ENDS + 1), ValueError, "offsets"),
        (lambda x: warplap.grouped_mm(x.numpy(), W.numpy(), (ENDS + 1).numpy()), ValueError, "offsets"),
        (lambda x: warplap.grouped_mm(x.numpy(), W.numpy(), ENDS.long().numpy()), TypeError, "offsets"),
    ],
)
def test_what_is_wrong_is_named(call, error, name):
    with pytest.raises(error, match=f"^{name}: [^\n]+$"):
        call(torch.ones(3, 4))


def test_it_compiles_whole_and_rows_recompile_nothing(device):
    def step(x, w, offsets):
        return warplap.grouped_mm(x * 2, w, offsets) * 3

    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend="aot_eager")
    for counts in ([2, 3], [4, 5]):
        x, w, offsets = drawn(counts, 8, 16, device)
        x, w = x.requires_grad_(True), w.requires_grad_(True)
        ours, theirs = compiled(x, w, offsets), step(x, w, offsets)
        near(ours, theirs)
        for one, other in zip(*(torch.autograd.grad(y.square().sum(), (x, w)) for y in (ours, theirs))):
            near(one, other)


def test_the_operator_keeps_torchs_rules(device):
    x, w, offsets = drawn([3, 0, 5], 8, 16, device)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    for tensor in (x, w):
        tensor.requires_grad_(True)
    torch.library.opcheck(torch.ops.warplap.grouped_mm.default, (x, w, offsets), test_utils=tests)


def test_it_is_tuned_benchmarked_and_explained_by_its_arguments(device):
    x, w, offsets = drawn([5, 0, 11, 16], 32, 48, device, torch.bfloat16, True)
    (tuned,) = warplap.tune([(warplap.grouped_mm, x, w, offsets)])
    assert tuned.problem == "grouped:rows=32,n=48,k=32,experts=4,dtype=bf16,w=col"
    shown = str(warplap.benchmark(warplap.grouped_mm, x, w, offsets))
    assert "torch_grouped_mm" in shown and "wrong" not in shown.lower(), shown


def test_it_works_without_torch():
    program = """
import sys
sys.modules["torch"] = None
import numpy as np, warplap
warplap.configure(in_memory=True, budget=0.05)
x, w = np.ones((3, 2), np.float32), np.arange(8, dtype=np.float32).reshape(2, 2, 2)
y = warplap.grouped_mm(x, w, np.array([1, 3], np.int32))
assert y.tolist() == [[2, 4], [10, 12], [10, 12]]
"""
    subprocess.run([sys.executable, "-c", program], check=True)
