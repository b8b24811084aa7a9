"""linear: one product with its bias and activation, right in every library, and torch's own among those who race."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import near

import warplap
import warplap.nn

ACTIVATIONS = {
    None: lambda y: y,
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}
TEXT = "gemm:m=10,n=12,k=16,dtype=f32,b=col"


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_linear_is_torchs_linear_with_an_activation(activation, device):
    act = ACTIVATIONS[activation]
    x, w, bias = (torch.randn(*s, device=device) for s in ((2, 5, 16), (12, 16), (12,)))
    right = act(F.linear(x, w, bias))
    near(warplap.linear(x, w, bias, activation), right)
    near(warplap.linear(x[0], w, bias, activation), right[0])
    out = torch.empty(2, 5, 12, device=device)
    assert warplap.linear(x, w, bias, activation, out=out) is out
    near(out, right)
    flat = torch.empty(5, 12, device=device)
    assert warplap.linear(x[0], w, bias, activation, out=flat) is flat
    near(flat, right[0])
    near(warplap.linear(x, w, activation=activation), act(F.linear(x, w)))
    arrays = [t.cpu().numpy() for t in (x, w, bias)]
    near(torch.from_numpy(warplap.linear(*arrays, activation)), right.cpu())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_and_odd_layouts(dtype, device):
    x, w = torch.randn(7, 40, device=device).to(dtype), torch.randn(40, 9, device=device).to(dtype).t()
    bias = torch.randn(18, device=device).to(dtype)[::2]
    for activation in (None, "gelu"):
        right = ACTIVATIONS[activation](F.linear(x.double(), w.double(), bias.double()))
        near(warplap.linear(x, w, bias, activation), right)
        every = F.linear(x[:, ::2].double(), w[:, ::2].double(), bias.double())
        near(warplap.linear(x[:, ::2], w[:, ::2], bias, activation), ACTIVATIONS[activation](every))


def test_nothing_is_left_out_where_there_is_nothing_to_add_up():
    w, bias = torch.zeros(3, 0), torch.tensor([1.0, -2.0, 0.5])
    near(warplap.linear(torch.zeros(2, 0), w, bias, "relu"), bias.relu().expand(2, 3))
    assert warplap.linear(torch.zeros(0, 4), torch.zeros(3, 4), bias).shape == (0, 3)
    empty = warplap.linear(np.zeros((2, 0), np.float32), w.numpy(), bias.numpy(), "relu")
    np.testing.assert_array_equal(empty, bias.relu().expand(2, 3).numpy())
    assert warplap.linear(np.zeros((0, 4), np.float32), np.zeros((3, 4), np.float32)).shape == (0, 3)


def test_the_problem_is_a_gemm_with_its_bias_and_activation():
    x, w, bias = torch.randn(2, 5, 16), torch.randn(12, 16), torch.randn(12)
    problem = lambda *args, **named: warplap.explain(warplap.linear, x, *args, **named).problem
    assert problem(w) == TEXT
    assert problem(w, bias) == f"{TEXT},bias=true"
    assert problem(w, bias, "gelu") == f"{TEXT},bias=true,act=gelu"
    assert problem(w, activation="silu") == f"{TEXT},act=silu"
    assert problem(w, bias, "tanh") == f"{TEXT},bias=true,act=tanh"
    assert warplap.explain("linear", x.numpy(), w.numpy(), bias.numpy(), "relu").problem == f"{TEXT},bias=true,act=relu"


def test_what_was_tuned_by_its_text_serves_a_call_and_the_other_way_round():
    x, w, bias = torch.randn(10, 16), torch.randn(12, 16), torch.randn(12)
    (tuned,) = warplap.tune(f"{TEXT},bias=true,act=gelu", progress=False)
    with warplap.replay():
        near(warplap.linear(x, w, bias, "gelu"), F.gelu(F.linear(x, w, bias)))
        explanation = warplap.explain(warplap.linear, x, w, bias, "gelu")
        assert explanation.how == "stored" and explanation.variant == tuned.variant
    warplap.linear(x, w, bias)
    assert {row["problem"] for row in warplap.store.ls()} == {f"{TEXT},bias=true", f"{TEXT},bias=true,act=gelu"}
    explanation = warplap.explain(warplap.linear, x, w, bias)
    (again,) = warplap.tune([(warplap.linear, x, w, bias)], progress=False)
    assert again.from_store or explanation.record["verdict"]["grade"] != "clean"
    assert {row["variant"] for row in warplap.benchmark(warplap.linear, x, w, bias)} >= {"torch_linear", "reference"}


@pytest.mark.parametrize(
    "rest",
    ["bias=true", "act=relu", "bias=true,act=gelu", "bias=true,act=gelu_tanh", "act=silu", "act=tanh", "act=sigmoid"],
)
@pytest.mark.parametrize("shape", ["m=10,n=12,k=16,b=col", "m=6,n=5,k=8,ldc=7,batch=3"])
def test_torchs_linear_races_and_its_plain_product_stands_aside(shape, rest):
    table = {row["variant"]: row for row in warplap.benchmark(f"gemm:{shape},dtype=f32,{rest}", budget=1.5)}
    assert table["torch_linear"]["time_us"] > 0, table["torch_linear"]
    for problem, aside in ((f"gemm:{shape},dtype=f32,{rest}", "torch_mm"), (f"gemm:{shape},dtype=f32", "torch_linear")):
        fits = {v["variant"]: v["fits"] for v in warplap.explain(problem).variants if v["variant"].startswith("torch_")}
        assert fits.keys() >= {"torch_mm", "torch_linear"} and [n for n, f in fits.items() if not f] == [aside]


def test_a_callable_gets_the_bias_and_what_it_returns_is_not_copied():
    code = f"""
import torch, torch.nn.functional as F, warplap
gave, got = [], []
def mine(a, b, bias):
    got[:] = [a, b, bias]
    gave.append(torch.addmm(bias, a, b))
    return gave[-1]
for v in warplap.explain("{TEXT},bias=true").variants:  # it takes the reference's place, the others stand aside
    fit = None if v["reference"] else lambda problem: "not asked"
    warplap.add_variant("gemm", v["variant"], mine, fit, returns=True)
warplap.configure(in_memory=True, budget=0.05)
x, w, bias = torch.randn(10, 16), torch.randn(12, 16), torch.randn(12)
for _ in range(2):
    y = warplap.linear(x, w, bias)
    assert y is gave[-1] and got[0] is x and got[2] is bias
    assert got[1].data_ptr() == w.data_ptr() and got[1].shape == (16, 12)
into = torch.empty(10, 12)
assert warplap.linear(x, w, bias, out=into) is into and torch.equal(into, y)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu", "tanh"])
def test_gradients_are_torchs(activation, device):
    shapes = ((2, 4, 8), (3, 8), (3,))
    x, w, bias = (torch.randn(*s, device=device, requires_grad=True) for s in shapes)
    for flat in (x, x[0]):
        mine = torch.autograd.grad(warplap.linear(flat, w, bias, activation).square().sum(), (x, w, bias))
        right = ACTIVATIONS[activation](F.linear(flat, w, bias)).square().sum()
        assert all(near(m, r, 1e-4) for m, r in zip(mine, torch.autograd.grad(right, (x, w, bias))))
    only = torch.autograd.grad(warplap.linear(x.detach(), w.detach(), bias, activation).sum(), bias)
    near(only[0], torch.autograd.grad(ACTIVATIONS[activation](F.linear(x, w, bias)).sum(), bias)[0], 1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_bias_gets_the_sum_of_many_rows(dtype, device):
    x = torch.randn(2048, 24, device=device).to(dtype)
    w, bias = torch.randn(40, 24, device=device).to(dtype), torch.randn(40, device=device).to(dtype).requires_grad_()
    along = torch.randn(2048, 40, device=device).to(dtype)
    for _ in range(2):
        gradient = torch.autograd.grad(warplap.linear(x, w, bias), bias, along)[0]
        near(gradient, along.double().sum(0).to(dtype))
    # Gradients that are one number everywhere lie nowhere.
    spread = torch.autograd.grad(warplap.linear(x, w, bias).sum(), bias)[0]
    near(spread, torch.full_like(bias, 2048))


def test_a_layer_is_torchs_with_its_activation():
    mine, theirs = warplap.nn.Linear(16, 12, activation="gelu"), torch.nn.Linear(16, 12)
    mine.load_state_dict(theirs.state_dict())
    x = torch.randn(3, 5, 16)
    near(mine(x), F.gelu(theirs(x)))
    with torch.no_grad():
        near(mine(x), F.gelu(theirs(x)))
    mine(x).sum().backward()
    F.gelu(theirs(x)).sum().backward()
    assert near(mine.weight.grad, theirs.weight.grad, 1e-4) and near(mine.bias.grad, theirs.bias.grad, 1e-4)
    assert "activation='gelu'" in repr(mine) and warplap.nn.Linear(4, 2, bias=False)(torch.zeros(1, 4)).shape == (1, 2)


@pytest.mark.parametrize(
    ("error", "name", "call"),
    [
        (ValueError, "bias:", lambda: warplap.linear(torch.zeros(2, 3), torch.zeros(4, 3), torch.zeros(3))),
        (TypeError, "bias:", lambda: warplap.linear(torch.zeros(2, 3), torch.zeros(4, 3), torch.zeros(4).half())),
        (ValueError, "activation:", lambda: warplap.linear(torch.zeros(2, 3), torch.zeros(4, 3), activation="swish")),
        (ValueError, "x:", lambda: warplap.linear(torch.zeros(2, 5), torch.zeros(4, 3))),
        (ValueError, "w:", lambda: warplap.linear(torch.zeros(2, 3), torch.zeros(4, 3, 1))),
        (ValueError, "x:", lambda: warplap.linear(np.zeros((2, 5), np.float32), np.zeros((4, 3), np.float32))),
        (ValueError, "activation:", lambda: warplap.linear(*[np.zeros((2, 2), np.float32)] * 2, activation="swish")),
        (ValueError, "'act'", lambda: warplap.tune(f"{TEXT},act=swish")),
        (ValueError, "'bias'", lambda: warplap.tune(f"{TEXT},bias=12")),
    ],
)
def test_wrong_arguments_are_named(error, name, call):
    with pytest.raises(error, match=name):
        call()


def test_an_output_that_shares_memory_with_the_bias_is_refused():
    out = torch.zeros(2, 4)
    with pytest.raises(ValueError, match="out: shares memory with bias"):
        warplap.linear(torch.zeros(2, 3), torch.zeros(4, 3), out[0], out=out)
