"""Compiled training steps with norms: their gradients are the kernel's, right, and of the elements that were kept."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from conftest import Seen, near
from torch._inductor.utils import fresh_cache, run_fw_bw_and_get_code

import warplap
from warplap.ops import dropout as dropping

SEED = (5, 9)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    with fresh_cache():
        yield
    torch._dynamo.reset()


def drawn(shape, residual, weight, bias, dtype, device):
    make = lambda *size: torch.randn(*size, device=device).to(dtype).requires_grad_(True)
    n = shape[-1]
    return make(*shape), make(*shape) if residual else None, make(n) if weight else None, make(n) if bias else None


def step(kind, residual, dropout, sum_too):
    """A layer, and what is read of it."""

    def run(x, r, w, b):
        seed = torch.tensor(SEED, device=x.device) if dropout else None
        result = warplap.norm(x.sin(), w, b, residual=r, kind=kind, dropout=dropout, seed=seed)
        y, total = result if isinstance(result, tuple) else (result, None)
        return (y.cos(), total.sin()) if sum_too else (y.cos(),)

    return run


def right(x, r, w, b, kind, dropout, sum_too):
    """The same in double precision."""
    x, r, w, b = (t if t is None else t.double() for t in (x, r, w, b))
    total = x.sin()
    if dropout:
        kept = dropping.factors(x.numel(), torch.tensor(SEED, device=x.device), dropout)
        total = total * kept.view(x.shape)
    total = total if r is None else total + r
    if kind == "layer":
        y = F.layer_norm(total, total.shape[-1:], w, b)
    else:
        y = F.rms_norm(total, total.shape[-1:], w, 1e-5)
        y = y if b is None else y + b
    return (y.cos(), total.sin()) if sum_too else (y.cos(),)


def check(run, inputs, share=1e-4):
    """Gradients of a compiled step, held to double precision."""
    kind, residual, dropout, sum_too, compiled = run
    tensors = [t for t in inputs if t is not None]
    got, want = compiled(*inputs), right(*inputs, kind, dropout, sum_too)
    along = [torch.randn_like(t) for t in got]
    for a, b in zip(got, want):
        near(a, b, share)
    ours = torch.autograd.grad(got, tensors, along)
    for a, b, t in zip(ours, torch.autograd.grad(want, tensors, [t.double() for t in along]), tensors):
        assert a.dtype == t.dtype
        near(a, b, share)


# Kind, residual, dropout, whether the sum is read.
FORMS = [
    form
    for form in itertools.product(("rms", "layer"), (False, True), (0.0, 0.3), (False, True))
    if form[1] or form[2] or not form[3]
]


@pytest.mark.parametrize("kind,residual,dropout,sum_too", FORMS)
def test_gradients_are_right_and_one_operator_under_every_tracer(kind, residual, dropout, sum_too, device):
    lines = (True, True), (True, False), (False, True)
    for (weight, bias), dtype in itertools.product(lines, (torch.float32, torch.bfloat16)):
        torch._dynamo.reset()
        inputs = drawn((2, 5, 24), residual, weight, bias, dtype, device)
        compiled = torch.compile(step(kind, residual, dropout, sum_too), fullgraph=True, backend="aot_eager")
        with Seen() as seen:
            check((kind, residual, dropout, sum_too, compiled), inputs)
        assert "warplap.norm_grad.default" in seen.names
        if dropout:  # the test's own right answer shifts too, so that it is looked at without
            with Seen() as seen:
                torch.autograd.grad(compiled(*inputs)[0].sum(), inputs[0])
            assert not any("shift" in name for name in seen.names), seen.names


@pytest.mark.parametrize("kind,residual,dropout,sum_too,dtype", [
    ("layer", True, 0.3, False, torch.bfloat16), ("rms", False, 0.0, False, torch.float32),
])  # fmt: skip
def test_inductors_backward_is_a_call_of_the_kernel(kind, residual, dropout, sum_too, dtype, device):
    inputs = drawn((4, 40), residual, True, True, dtype, device)
    compiled = torch.compile(step(kind, residual, dropout, sum_too), fullgraph=True)
    _, codes = run_fw_bw_and_get_code(lambda: compiled(*inputs)[0])
    backward = codes[-1]
    assert len(codes) == 2 and "torch.ops.warplap.run_norm_grad(" in backward
    assert "norm_grad.default(" not in backward and "3528531795" not in backward, "Philox is the kernel's"
    check((kind, residual, dropout, sum_too, compiled), inputs)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_autocast_around_a_compiled_step_changes_nothing_of_it(dtype, device):
    run = ("layer", True, 0.3, True)
    compiled = torch.compile(step(*run), fullgraph=True, backend="aot_eager")
    inputs = drawn((2, 5, 24), True, True, True, dtype, device)

    def cast(*inputs):
        with torch.autocast(device, torch.bfloat16):
            return compiled(*inputs)

    with Seen() as seen:
        check((*run, cast), inputs)
    assert "warplap.norm_grad.default" in seen.names


def test_a_block_of_the_backend_trains_with_the_same_elements_forward_and_backward(device):
    norm = torch.nn.LayerNorm(64).to(device)
    fused = torch.compile(lambda x, r: norm(r + F.dropout(x, 0.5)), backend="warplap")
    x, r = (torch.randn(8, 64, device=device, requires_grad=True) for _ in range(2))
    y = fused(x, r)
    of_x, of_r = torch.autograd.grad(y, (x, r), torch.randn_like(y))
    kept = of_x != 0
    assert 0.3 < kept.float().mean() < 0.7
    near(of_x, torch.where(kept, 2 * of_r, torch.zeros_like(of_r)), 1e-4)
    near(y, F.layer_norm(r + torch.where(kept, 2 * x, torch.zeros_like(x)), (64,), norm.weight, norm.bias), 1e-4)


def test_sizes_may_change_and_be_none(device):
    compiled = torch.compile(step("layer", True, 0.3, True), fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (3, 8, 5):
        check(("layer", True, 0.3, True, compiled), drawn((rows, 2, 24), True, True, True, torch.float32, device))
    empty = drawn((0, 2, 24), True, True, True, torch.float32, device)
    for t in torch.autograd.grad(step("layer", True, 0.3, True)(*empty), empty, [torch.ones_like(empty[0])] * 2):
        assert not t.any()


def test_one_dimension_is_one_row(device):
    compiled = torch.compile(step("rms", True, 0.0, True), fullgraph=True, backend="aot_eager")
    check(("rms", True, 0.0, True, compiled), drawn((24,), True, True, True, torch.float32, device))


def test_a_sum_that_alone_is_read_has_its_gradient(device):
    inputs = drawn((3, 24), True, True, True, torch.float32, device)
    for dropout in (0.0, 0.3):
        run = step("layer", True, dropout, True)
        for call in (run, torch.compile(run, fullgraph=True, backend="aot_eager")):
            wanted = right(*inputs, "layer", dropout, True)[1]
            for a, b in zip(*(torch.autograd.grad(t.sum(), inputs[:2]) for t in (call(*inputs)[1], wanted))):
                near(a, b, 1e-4)


def test_gradients_of_gradients_and_transforms_take_the_formula(device):
    for dropout in (0.0, 0.3):
        inputs = drawn((3, 24), True, True, True, torch.float32, device)
        x, run = inputs[0], step("layer", True, dropout, False)
        second = []
        for y in (run(*inputs)[0], right(*inputs, "layer", dropout, False)[0]):
            (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
            second.append(torch.autograd.grad(first.square().sum(), x)[0])
        near(*second, 1e-3)
    x, w = torch.randn(3, 8, device=device), torch.randn(8, device=device)
    ours, theirs = lambda x: warplap.norm(x, w), lambda x: F.rms_norm(x, (8,), w, 1e-5)
    x.requires_grad_(True)
    along = torch.randn(4, 3, 8, device=device)
    rows = [torch.autograd.grad(call(x), x, along, is_grads_batched=True)[0] for call in (ours, theirs)]
    near(*rows, 1e-4)


def test_the_operator_keeps_torchs_rules(device):
    grad, total, w, more = (torch.randn(*size, device=device) for size in ((3, 4, 8), (3, 4, 8), (8,), (3, 4, 8)))
    seed = torch.tensor(SEED, device=device)
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    for args in (
        (grad, total, w, more, seed, True, 1e-5, 0.3, True),
        (grad.transpose(0, 1).contiguous().transpose(0, 1), total, None, None, None, False, 1e-5, 0.0, False),
        (grad[0, 0], total[0, 0], None, None, None, False, 1e-5, 0.0, True),
    ):
        torch.library.opcheck(torch.ops.warplap.norm_grad.default, args, test_utils=tests)
    with warplap.off():
        wanted = torch.ops.warplap.norm_grad(grad, total, w, more, seed, True, 1e-5, 0.3, True)
    gradients = torch.ops.warplap.norm_grad(grad, total, w, more, seed, True, 1e-5, 0.3, True)
    assert len(gradients) == 4
    for a, b in zip(gradients, wanted):
        near(a, b, 1e-4)
