"""Who answers while nothing is decided: the call that a program would make without us, in every such state."""

from __future__ import annotations

import logging
import threading

import pytest
import torch
import torch.nn.functional as F

import warplap
from conftest import near

r = torch.randn


def blocks(m=64, k=64, bs=16):
    kept = (torch.arange(m // bs)[:, None] + torch.arange(k // bs)) % 2 == 0
    return (r(m, k) * kept.repeat_interleave(bs, 0).repeat_interleave(bs, 1)).to_sparse_bsr((bs, bs))


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


x, w, bias, q = r(24, 64), r(48, 64), r(48), r(2, 4, 24, 16)
labels = torch.arange(24) % 48
sparse = blocks()
angles = torch.rand(24, 8)
int8 = torch.randint(-9, 9, (32, 64), dtype=torch.int8)

# The call of ours, the one of torch's, and the tensors: of these gradients are asked where torch has them.
CALLS = {
    "matmul": (lambda a, b: warplap.matmul(a, b), lambda a, b: a @ b, (x, w.T.contiguous())),
    "linear": (warplap.linear, F.linear, (x, w, bias)),
    "linear gelu": (lambda *t: warplap.linear(*t, "gelu"), lambda *t: F.gelu(F.linear(*t)), (x, w, bias)),
    "gated_linear": (warplap.gated_linear, lambda a, g, u: F.silu(F.linear(a, g)) * F.linear(a, u), (x, w, r(48, 64))),
    "gated": (warplap.gated, lambda a, b: F.silu(a) * b, (x, r(24, 64))),
    "attention": (
        lambda *t: warplap.attention(*t, is_causal=True),
        lambda *t: F.scaled_dot_product_attention(*t, is_causal=True), (q, r(2, 4, 24, 16), r(2, 4, 24, 16)),
    ),
    "rms": (lambda *t: warplap.norm(*t), lambda *t: F.rms_norm(t[0], (64,), t[1], 1e-5), (x, r(64))),
    "layer": (lambda *t: warplap.norm(*t, kind="layer"), lambda a, *t: F.layer_norm(a, (64,), *t), (x, r(64), r(64))),
    "softmax": (warplap.softmax, lambda a: a.softmax(-1), (x,)),
    "softmax scaled": (lambda a: warplap.softmax(a, scale=0.3), lambda a: (a * 0.3).softmax(-1), (x,)),
    "cross_entropy": (lambda a: warplap.cross_entropy(a, labels), lambda a: F.cross_entropy(a.float(), labels), (r(24, 48),)),
    "bsr_matmul": (lambda b: warplap.bsr_matmul(sparse, b), lambda b: sparse.to_dense() @ b, (r(64, 32),)),
    "rope": (
        lambda a: warplap.rope(a, None, angles.cos(), angles.sin(), heads_dim=1), lambda a: turned(a, angles.cos(), angles.sin()), (q,),
    ),
    "int_mm": (lambda: warplap.int_mm(int8, int8.T), lambda: torch._int_mm(int8, int8.T), ()),
}  # fmt: skip
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


class Choices(logging.Handler):
    """Who was chosen for what."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.all = []

    def emit(self, record):
        text = record.getMessage()
        # What another thread decides in the background is no answer of this call's.
        if " answers: " in text and threading.current_thread() is threading.main_thread():
            problem, _, rest = text.partition(": ")
            self.all.append((problem, rest.split("[")[0].split(" ")[0]))


@pytest.fixture
def chosen():
    log, choices = logging.getLogger("warplap"), Choices()
    level = log.level
    log.addHandler(choices)
    log.setLevel(logging.DEBUG)
    yield choices.all
    log.removeHandler(choices)
    log.setLevel(level)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("grad", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("state", ["off", "replay", "background"])
@pytest.mark.parametrize("name", CALLS)
def test_what_is_not_decided_is_torchs_own(name, state, grad, dtype, chosen):
    ours, torchs, inputs = CALLS[name]
    if grad and not inputs:
        pytest.skip("whole numbers have no gradient")
    inputs = [t.to(DTYPES[dtype]).requires_grad_(grad) for t in inputs]
    if name == "bsr_matmul" and dtype != "f32":
        pytest.skip("torch's block-sparse product on a CPU has one type")
    if state == "background":  # what is in the queue of a background thread is no answer of this call's
        warplap.configure(budget=1.0)
    right = torchs(*inputs)
    for _ in range(2):  # once to choose, once by what was chosen
        with warplap.set_mode(state):
            output = ours(*inputs)
            gradients = torch.autograd.grad(output.float().square().sum(), inputs, retain_graph=True) if grad else ()
            by = [who for problem, who in chosen]
        near(output, right.to(output.dtype), 1e-2 if dtype == "bf16" else 2e-5)
        if grad:
            torchs_gradients = torch.autograd.grad(right.float().square().sum(), inputs, retain_graph=True)
            for mine, own in zip(gradients, torchs_gradients):
                near(mine, own, 1e-3)
    assert all(who.startswith("torch_") for who in by), chosen


def test_a_step_that_is_not_decided_is_torchs_own_step():
    rows = r(24, 64, requires_grad=True)
    with warplap.set_mode("off"):
        for call, name in (
            (lambda: warplap.norm(rows, torch.ones(64)), "RmsNorm"),
            (lambda: warplap.norm(rows, torch.ones(64), kind="layer"), "NativeLayerNorm"),
            (lambda: warplap.cross_entropy(rows, labels), "NllLoss"),
        ):
            call().sum().backward()
            nodes, node_names = [call().grad_fn], ""
            while nodes:
                node = nodes.pop()
                node_names += node.name() + " "
                nodes += [after for after, _ in node.next_functions if after is not None]
            assert "warplap" not in node_names, (name, node_names)
