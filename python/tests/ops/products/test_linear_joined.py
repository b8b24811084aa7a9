"""linear joined with a residual or a gate: one problem where no gradient is wanted, in a compiled program one node."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import Seen, near
from fuse_graphs import ACTIVATIONS, nodes_of
from torch._inductor.utils import fresh_cache, run_and_get_code

import warplap

JOINS = {"residual": torch.add, "times": torch.mul}
r = torch.randn


def right(x, w, bias, activation, **other):
    """The same in double precision."""
    (join, t), = other.items()
    y = F.linear(x.double(), w.double(), None if bias is None else bias.double())
    return JOINS[join](ACTIVATIONS[activation](y), t.double())


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_a_layer_is_joined_after_its_activation(activation, join, device):
    x, w, bias, other = (r(*s, device=device) for s in ((2, 5, 16), (12, 16), (12,), (2, 5, 12)))
    expected = right(x, w, bias, activation, **{join: other})
    near(warplap.linear(x, w, bias, activation, **{join: other}), expected)
    near(warplap.linear(x[0], w, bias, activation, **{join: other[0]}), expected[0])
    for flat in (False, True):
        operands, to = ((x[0], other[0]), expected[0]) if flat else ((x, other), expected)
        out = torch.full_like(to, torch.nan, dtype=torch.float32)
        assert warplap.linear(operands[0], w, bias, activation, **{join: operands[1]}, out=out) is out
        near(out, to)
    near(warplap.linear(x, w, activation=activation, **{join: other}), right(x, w, None, activation, **{join: other}))
    arrays = [t.cpu().numpy() for t in (x, w, bias)]
    array = other.cpu().numpy()
    near(torch.from_numpy(warplap.linear(*arrays, activation, **{join: array})), expected.cpu())
    out = np.full(array.shape, np.nan, np.float32)
    assert warplap.linear(*arrays, activation, **{join: array}, out=out) is out
    near(torch.from_numpy(out), expected.cpu())


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_types_and_odd_layouts(dtype, join, device):
    x, w = r(7, 40, device=device).to(dtype), r(40, 9, device=device).to(dtype).t()
    bias, other = r(18, device=device).to(dtype)[::2], r(9, 14, device=device).to(dtype).t()[::2]
    near(warplap.linear(x, w, bias, "gelu", **{join: other}), right(x, w, bias, "gelu", **{join: other}))
    every = warplap.linear(x[:, ::2], w[:, ::2], bias, **{join: other})
    near(every, right(x[:, ::2], w[:, ::2], bias, None, **{join: other}))
    nothing = warplap.linear(x[:, :0], w[:, :0], bias, "relu", **{join: other})
    near(nothing, right(x[:, :0], w[:, :0], bias, "relu", **{join: other}))
    assert warplap.linear(x[:0], w, bias, **{join: other[:0]}).shape == (0, 9)


def test_it_is_one_problem_where_no_gradient_is_wanted():
    x, w, bias, other = r(2, 5, 16), r(12, 16), r(12), r(2, 5, 12)
    text = "gemm:m=10,n=12,k=16,dtype=f32,b=col"
    warplap.linear(x, w, bias, "gelu", residual=other)
    warplap.linear(x[:, :, ::2].repeat_interleave(2, 2), w, times=other)
    odd = r(2, 12, 5).transpose(1, 2)
    near(warplap.linear(x, w, None, "silu", residual=odd), right(x, w, None, "silu", residual=odd))
    problems = {row["problem"] for row in warplap.store.ls()}
    assert problems == {f"{text},bias=true,act=gelu,join=add", f"{text},join=mul", f"{text},act=silu,join=add"}
    asked = warplap.explain(warplap.linear, x, w, bias, "gelu", residual=other)
    assert asked.problem == f"{text},bias=true,act=gelu,join=add" and asked.how is not None
    assert warplap.explain(warplap.linear, x, w, activation="tanh", times=other).problem == f"{text},act=tanh,join=mul"


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("activation", [None, "gelu", "silu", "tanh"])
def test_gradients_and_their_gradients_are_torchs(activation, join, device):
    inputs = [r(*s, device=device, requires_grad=True) for s in ((2, 4, 8), (3, 8), (3,), (2, 4, 3))]
    reference_inputs = [g.detach().double().requires_grad_() for g in inputs]
    got = warplap.linear(*inputs[:3], activation, **{join: inputs[3]})
    expected = JOINS[join](ACTIVATIONS[activation](F.linear(*reference_inputs[:3])), reference_inputs[3])
    near(got, expected)
    along = r(2, 4, 3, device=device)
    first = torch.autograd.grad(got, inputs, along, create_graph=True)
    second = torch.autograd.grad(expected, reference_inputs, along.double(), create_graph=True)
    for a, b in zip(first, second):
        near(a, b, 1e-4)
    deep = lambda grads, leaves: torch.autograd.grad(sum(g.square().sum() for g in grads), leaves, materialize_grads=True)
    for a, b in zip(deep(first, inputs), deep(second, reference_inputs)):
        near(a, b, 1e-3)
    # Of what is joined alone, and of the layer alone.
    still = [g.detach() for g in inputs]
    only = torch.autograd.grad(warplap.linear(*still[:3], activation, **{join: inputs[3]}), inputs[3], along)
    near(only[0], second[3], 1e-4)
    only = torch.autograd.grad(warplap.linear(*inputs[:3], activation, **{join: still[3]}), inputs[1], along)
    near(only[0], second[1], 1e-4)


def layer(activation=None, **names):
    return lambda x, w, bias, other=None: warplap.linear(x, w, bias, activation, **{n: other for n in names})


@pytest.mark.parametrize("join", [None, "residual", "times"])
@pytest.mark.parametrize("activation", [None, "gelu", "gelu_tanh", "silu", "tanh"])
def test_compiled_it_is_one_node_where_no_gradient_is_wanted(activation, join):
    x, w, bias, other = r(5, 16), r(12, 16), r(12), r(5, 12)
    names = {} if join is None else {join: other}
    inputs = (x, w, bias, *names.values())
    fn = layer(activation, **names)
    (nodes,), got = nodes_of(fn, *inputs)
    name = "linear" if join is None and activation is None else "linear_finished"
    assert nodes == [f"warplap.{name}.default"], nodes
    expected = right(*inputs[:3], activation, **(names or {"residual": torch.zeros(5, 12)}))
    near(got, expected)
    trained = [t.clone().requires_grad_() for t in inputs]
    with torch.no_grad():
        (nodes,), got = nodes_of(fn, *trained)
        assert nodes == [f"warplap.{name}.default"], nodes
    (nodes,), got = nodes_of(fn, *trained)
    assert not any("linear_finished" in n for n in nodes) and nodes.count("warplap.linear.default") == 1
    near(got, expected)
    along = r(5, 12)
    for a, b in zip(torch.autograd.grad(got, trained, along), torch.autograd.grad(fn(*trained), trained, along)):
        near(a, b, 1e-4)


def test_operators_that_are_called_by_name_have_gradients_in_every_program():
    op = torch.ops.warplap.linear_finished.default
    inputs = [r(*s, requires_grad=True) for s in ((5, 16), (12, 16), (12,), (5, 12))]
    fn = lambda x, w, bias, other: op(x, w, bias, "silu", None, other)
    expected = F.silu(F.linear(*inputs[:3])) * inputs[3]
    along = r(5, 12)
    torch._dynamo.reset()
    reference_gradients = torch.autograd.grad(expected, inputs, along)
    for run in (fn, torch.compile(fn, backend="aot_eager", fullgraph=True)):
        for a, b in zip(torch.autograd.grad(run(*inputs), inputs, along), reference_gradients):
            near(a, b, 1e-4)
    with Seen() as seen, torch.no_grad():
        near(fn(*inputs), expected)
    assert any("warplap.linear_finished" in name for name in seen.names), seen.names


def test_inductor_calls_a_function_and_sizes_that_change_recompile_nothing(device):
    torch._dynamo.reset()
    fn = lambda x, w, bias, other: warplap.linear(x, w, bias, "gelu", residual=other)
    w, bias = r(12, 16, device=device), r(12, device=device)
    with fresh_cache():
        compiled = torch.compile(fn, fullgraph=True, dynamic=True)
        inputs = r(2, 5, 16, device=device), w, bias, r(2, 5, 12, device=device)
        got, (code, *_) = run_and_get_code(compiled, *inputs)
        near(got, fn(*inputs))
        assert code.count("torch.ops.warplap.run_linear_finished(") == 1 and "erf(" not in code
        inputs = r(3, 7, 16, device=device), w, bias, r(3, 7, 12, device=device)
        near(compiled(*inputs), fn(*inputs))


@pytest.mark.parametrize("compiled", [False, True])
def test_under_autocast_it_is_as_torchs_own_layer_and_sum(compiled, device):
    x, w, bias, other = (r(*s, device=device) for s in ((5, 16), (12, 16), (12,), (5, 12)))
    fn = lambda x, w, bias, other: warplap.linear(x, w, bias, "gelu", residual=other)
    torch._dynamo.reset()
    run = torch.compile(fn, backend="aot_eager", fullgraph=True) if compiled else fn
    for there in (other, other.bfloat16()):
        with torch.autocast(device, torch.bfloat16):
            got, expected = run(x, w, bias, there), F.gelu(F.linear(x, w, bias)) + there
        assert got.dtype == expected.dtype
        near(got.float(), expected, 3e-2)


@pytest.mark.parametrize(
    ("error", "name", "named"),
    [
        (ValueError, "times: is given beside residual", {"residual": r(2, 4), "times": r(2, 4)}),
        (ValueError, r"residual: has shape \[2, 3\], expected \[2, 4\]", {"residual": r(2, 3)}),
        (ValueError, r"times: has shape \[4\], expected \[2, 4\]", {"times": r(4)}),
        (TypeError, "residual: holds torch.float16, expected torch.float32", {"residual": r(2, 4).half()}),
        (TypeError, "times: is a ndarray, expected tensors of one library", {"times": np.zeros((2, 4), np.float32)}),
        (ValueError, "activation: is 'swish'", {"residual": r(2, 4), "activation": "swish"}),
        (ValueError, "out: has shape", {"residual": r(2, 4), "out": r(2, 5)}),
        (ValueError, "residual: is on meta", {"residual": torch.empty(2, 4, device="meta")}),
    ],
)
def test_wrong_arguments_are_named(error, name, named):
    for requires_grad in (False, True):
        if requires_grad and "out" in named:
            continue
        with pytest.raises(error, match=name):
            warplap.linear(r(2, 3, requires_grad=requires_grad), r(4, 3), **named)


@pytest.mark.parametrize(
    ("error", "name", "named"),
    [
        (ValueError, "times: is given beside residual", {"residual": (2, 4), "times": (2, 4)}),
        (ValueError, r"times: has shape \[2, 3\], expected \[2, 4\]", {"times": (2, 3)}),
    ],
)
def test_wrong_arrays_are_named(error, name, named):
    x, w = np.zeros((2, 3), np.float32), np.zeros((4, 3), np.float32)
    with pytest.raises(error, match=name):
        warplap.linear(x, w, **{n: np.zeros(s, np.float32) for n, s in named.items()})
    with pytest.raises(TypeError, match="residual: holds float64, expected float32"):
        warplap.linear(x, w, residual=np.zeros((2, 4)))


def test_an_output_that_shares_memory_with_what_is_joined_is_refused():
    x, w, out = r(2, 3), r(4, 3), r(2, 4)
    with pytest.raises(ValueError, match="out: shares memory with residual"):
        warplap.linear(x, w, residual=out, out=out)
    with pytest.raises(ValueError, match="out: shares memory with times"):
        warplap.linear(x.numpy(), w.numpy(), times=out.numpy(), out=out.numpy())
