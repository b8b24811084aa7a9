"""Cross entropy joined with the projection in front of it: right by double precision, whatever the chunks, and no
tensor of all logits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import near
from right_answers import right_entropy
from torch.utils._python_dispatch import TorchDispatchMode

import warplap
from warplap.ops.losses import linear_cross_entropy as ops_linear_cross_entropy
from warplap.ops.products import linear as layer

r = torch.randn
FORMS = list(itertools.product((0.0, 0.1), (0.0, 1e-2), ("mean", "sum", "none")))


def make_inputs(dtype=torch.float32, device="cpu", rows=(2, 9), k=16, n=50):
    x, w, bias = (r(*s, device=device).to(dtype).requires_grad_() for s in ((*rows, k), (n, k), (n,)))
    labels = torch.randint(0, n, rows, device=device)
    labels.view(-1)[3:7] = -100
    return x, w, bias, labels


def right(x, w, bias, labels, *rest):
    return right_entropy(F.linear(x.double(), w.double(), None if bias is None else bias.double()), labels, *rest)


@pytest.mark.parametrize("smoothing,zloss,reduction", FORMS)
@pytest.mark.parametrize("chunk", [None, 1, 4, 5, 18, 100])
def test_the_loss_and_all_gradients_are_right(smoothing, zloss, reduction, chunk, device):
    x, w, bias, labels = make_inputs(device=device)
    more = {"label_smoothing": smoothing, "z_loss": zloss, "reduction": reduction, "chunk": chunk}
    expected = right(x, w, bias, labels, -100, smoothing, zloss, reduction)
    got = warplap.linear_cross_entropy(x, w, labels, bias, **more)
    assert got.dtype == torch.float32 and got.shape == expected.shape
    near(got, expected)
    up = r(expected.shape, device=device)
    for a, b in zip(torch.autograd.grad(got, (x, w, bias), up), torch.autograd.grad(expected, (x, w, bias), up.double())):
        assert a.dtype == torch.float32
        near(a, b)
    with torch.no_grad():
        value = warplap.linear_cross_entropy(x, w, labels, bias, **more)
    near(value, expected)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_types_have_their_sums_in_float32(dtype, reduction, device):
    x, w, bias, labels = make_inputs(dtype, device, rows=(96,))
    labels = labels.int()
    with torch.no_grad():
        w *= 0.25
    expected = right(x, w, bias, labels, -100, 0.0, 0.0, reduction)
    got = warplap.linear_cross_entropy(x, w, labels, bias, reduction=reduction, chunk=7)
    near(got, expected, 1e-2)
    up = torch.full(expected.shape, 1 / 3, device=device)
    ours = torch.autograd.grad(got, (x, w, bias), up.to(got.dtype))
    for a, b in zip(ours, torch.autograd.grad(expected, (x, w, bias), up.double())):
        assert a.dtype == dtype
        off = (a.double() - b.double()).norm() / b.double().norm()
        assert off < 1e-2, off


def test_many_chunks_lose_nothing(device):
    x, w, _, labels = make_inputs(torch.bfloat16, device, rows=(1024,), k=8, n=20)
    (expected,) = torch.autograd.grad(right(x, w, None, labels), w)
    off = []
    for chunk in (1024, 2):
        (got,) = torch.autograd.grad(warplap.linear_cross_entropy(x, w, labels, chunk=chunk), w)
        off.append(((got.double() - expected.double()).norm() / expected.double().norm()).item())
    assert off[1] < 1.5 * off[0] + 1e-3, off


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_gradients_are_differences_of_losses(reduction):
    x, w, bias, labels = make_inputs(rows=(6,), k=5, n=7)
    loss = lambda *t: warplap.linear_cross_entropy(t[0], t[1], labels, t[2], label_smoothing=0.1, z_loss=0.01, reduction=reduction, chunk=4)
    gradients = torch.autograd.grad(loss(x, w, bias), (x, w, bias))
    with torch.no_grad():
        for i, gradient in enumerate(gradients):
            step = r(gradient.shape)
            to = lambda s: [t + (s * step if j == i else 0) for j, t in enumerate((x, w, bias))]
            slope = (loss(*to(1e-2)) - loss(*to(-1e-2))) / 2e-2
            assert abs(slope - (gradient * step).sum()) < 2e-3 * max(1.0, abs(slope)), (slope, (gradient * step).sum())


def test_only_what_is_wanted_is_computed(device):
    x, w, bias, labels = make_inputs(device=device)
    expected = torch.autograd.grad(right(x, w, bias, labels), (x, w, bias))
    for wanted in itertools.product((False, True), repeat=3):
        leaves = [t if want else t.detach() for t, want in zip((x, w, bias), wanted)]
        for reduction in ("mean", "none"):
            loss = warplap.linear_cross_entropy(leaves[0], leaves[1], labels, leaves[2], chunk=5, reduction=reduction)
            assert loss.requires_grad == any(wanted)
            if not any(wanted):
                continue
            loss = loss if reduction == "mean" else loss.sum() / (labels != -100).sum()
            there = [t for t, want in zip(leaves, wanted) if want]
            for a, b in zip(torch.autograd.grad(loss, there), [e for e, want in zip(expected, wanted) if want]):
                near(a, b)


def test_rows_that_do_not_count_and_labels_that_are_no_column(device):
    x, w, bias, labels = make_inputs(device=device, rows=(12,))
    labels[:8] = 3
    more = {"ignore_index": 3, "chunk": 4}
    labels[8:] = torch.tensor([1, 2, 4, 5], device=device)  # two chunks count for nothing
    got = warplap.linear_cross_entropy(x, w, labels, bias, **more)
    expected = right(x, w, bias, labels, 3)
    near(got, expected)
    for a, b in zip(*(torch.autograd.grad(loss, (x, w, bias)) for loss in (got, expected))):
        near(a, b)
    labels[:] = 3
    none = warplap.linear_cross_entropy(x, w, labels, bias, **more)
    assert none.isnan() and not any(g.any() for g in torch.autograd.grad(none, (x, w, bias)))
    labels[5] = 50
    assert warplap.linear_cross_entropy(x, w, labels, bias, **more).isnan()
    rows = warplap.linear_cross_entropy(x, w, labels, bias, reduction="none", **more)
    assert rows.isnan().nonzero().flatten().tolist() == [5]
    empty = warplap.linear_cross_entropy(x[:0], w, labels[:0], bias, reduction="sum")
    assert empty == 0 and not torch.autograd.grad(empty, w)[0].any()
    assert warplap.linear_cross_entropy(x[:0], w, labels[:0]).isnan()


class Made(TorchDispatchMode):
    """How many elements of what torch makes."""

    def __init__(self):
        super().__init__()
        self.outputs = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        self.outputs += [(func.overloadpacket.__name__, output.numel())] if isinstance(output, torch.Tensor) else []
        return output


def test_backward_makes_the_gradients_and_nothing_else():
    x, w, _, labels = make_inputs(torch.bfloat16, rows=(18,), k=16, n=500)
    loss = warplap.linear_cross_entropy(x, w, labels)
    with Made() as made:
        torch.autograd.grad(loss, (x, w))
    large = [name for name, count in made.outputs if count >= 500 * 16]
    assert large == ["empty_like", "mul"], "the gradient of w, by the gradient of the loss"


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_backward_of_logits_makes_no_zeros(reduction):
    logits, labels = torch.randn(18, 500, requires_grad=True), torch.arange(18)
    loss = warplap.cross_entropy(logits, labels, reduction=reduction).sum()
    with Made() as made:
        torch.autograd.grad(loss, logits)
    assert [name for name, count in made.outputs if count == 18 * 500] == ["mul"]


class Largest(TorchDispatchMode):
    """The most elements that a tensor had."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        for t in output if isinstance(output, (tuple, list)) else (output,):
            if isinstance(t, torch.Tensor):
                self.most = max(self.most, t.numel())
        return output


def test_logits_are_never_whole_in_memory(monkeypatch):
    x, w, bias, labels = make_inputs(rows=(64,), k=8, n=100)
    seen, run = [], layer.finished_run
    monkeypatch.setattr(layer, "finished_run", lambda *a: seen.append(run(*a).shape) or run(*a))
    numbers = (-100, 0.0, 0.0, 10)
    detached = [t.detach() for t in (x, w, bias)]
    with Largest() as largest, torch.no_grad():
        ops_linear_cross_entropy._walk(*detached, labels, *numbers, (True, True, True))
    assert largest.most == 10 * 100, "a chunk's logits; w has 800 elements"
    assert seen == [(10, 100)] * 6 + [(4, 100)]
    seen.clear()
    warplap.linear_cross_entropy(x, w, labels, chunk=32).backward()
    assert seen == [(32, 100)] * 2, "backward computes none of them again"
    monkeypatch.setattr(ops_linear_cross_entropy, "_MOST", 1000)
    monkeypatch.setattr(ops_linear_cross_entropy, "_EVEN", 4)
    seen.clear()
    warplap.linear_cross_entropy(x, w, labels)
    assert seen == [(12, 100)] * 5 + [(4, 100)]
    assert ops_linear_cross_entropy._rows_at_once(4096, 128256, 0) <= 4096


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_it_compiles_whole_with_its_gradients_and_changing_rows(backend, device):
    torch._dynamo.reset()

    def step(x, w, labels, bias, reduction):
        loss = warplap.linear_cross_entropy(x * 2, w, labels, bias, reduction=reduction, chunk=4)
        return loss if reduction == "mean" else (loss * torch.arange(loss.numel(), device=device)).sum()

    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend=backend)
    for rows, reduction in ((6, "mean"), (9, "mean"), (6, "none")):
        x, w, bias, labels = make_inputs(device=device, rows=(rows,))
        got, expected = compiled(x, w, labels, bias, reduction), step(x, w, labels, bias, reduction)
        near(got, expected)
        for a, b in zip(*(torch.autograd.grad(loss, (x, w, bias)) for loss in (got, expected))):
            near(a, b)
        with torch.no_grad():
            near(compiled(x, w, labels, bias, reduction), expected)


def test_its_operators_keep_torchs_rules(device):
    x, w, bias, labels = make_inputs(device=device, rows=(6,))
    ops, numbers = torch.ops.warplap, (-100, 0.1, 0.0, 4)
    plain = x.detach(), w.detach(), None, labels, *numbers
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(ops.linear_cross_entropy.default, (x, w, bias, labels, *numbers), test_utils=tests)
    every = [True, True, True]
    trained = ops.linear_cross_entropy_trained.default
    torch.library.opcheck(trained, (x, w, bias, labels, *numbers, True, every), test_utils=tests)
    torch.library.opcheck(trained, (*plain, False, [True, False, False]), test_utils=tests)
    torch.library.opcheck(ops.linear_cross_entropy_grad.default, (*plain, r(6, device=device), every[:2] + [False]), test_utils=tests)


def test_under_autocast_products_are_in_its_type(device):
    x, w, bias, labels = make_inputs(device=device)
    with torch.autocast(device, torch.bfloat16):
        loss = warplap.linear_cross_entropy(x, w, labels, bias)
    assert loss.dtype == torch.float32
    near(loss, right(x, w, bias, labels), 1e-2)
    assert all(g.dtype == torch.float32 for g in torch.autograd.grad(loss, (x, w, bias)))


def test_there_are_no_second_derivatives():
    x, w, bias, labels = make_inputs()
    for reduction in ("sum", "none"):
        loss = warplap.linear_cross_entropy(x, w, labels, bias, reduction=reduction).sum()
        with pytest.raises(NotImplementedError, match="second derivatives"):
            torch.autograd.grad(loss, w, create_graph=True)


@pytest.mark.parametrize(
    ("error", "name", "change"),
    [
        (ValueError, "chunk: is 0", {"chunk": 0}),
        (ValueError, "reduction: ", {"reduction": "most"}),
        (ValueError, r"labels: has shape \[2\]", {"labels": torch.zeros(2, dtype=torch.int64)}),
        (TypeError, "labels: holds torch.float32", {"labels": torch.zeros(3)}),
        (ValueError, "x: has shape", {"x": r(3, 5)}),
        (ValueError, "bias: has shape", {"bias": r(5)}),
        (TypeError, "w: holds torch.float16", {"w": r(6, 4).half()}),
        (TypeError, "x: is a ndarray", {"x": np.zeros((3, 4), np.float32)}),
    ],
)
def test_wrong_arguments_are_named(error, name, change):
    labels = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(error, match=name):
        warplap.linear_cross_entropy(**({"x": r(3, 4), "w": r(6, 4), "labels": labels, "bias": None} | change))
