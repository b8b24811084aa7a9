"""gated_linear: one product with two weights where no gradient is wanted, in a compiled program one node."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import Seen, near
from fuse_graphs import ACTIVATIONS, nodes_of
from torch._inductor.utils import fresh_cache, run_and_get_code

import warplap

FUSED = [None, "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"]
r = torch.randn


def right(x, w_gate, w_up, activation="silu"):
    """The same in double precision."""
    x = x.double()
    return ACTIVATIONS[activation](F.linear(x, w_gate.double())) * F.linear(x, w_up.double())


def problems():
    return {row["problem"] for row in warplap.store.ls("gemm")}


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("lead", [(), (1,), (5,), (2, 5), (2, 3, 4)])
def test_a_gate_and_what_it_lets_through(activation, lead, device):
    x, w_gate, w_up = (r(*s, device=device) for s in ((*lead, 16), (12, 16), (12, 16)))
    expected = right(x, w_gate, w_up, activation)
    near(warplap.gated_linear(x, w_gate, w_up, activation), expected)
    out = torch.full_like(expected, torch.nan, dtype=torch.float32)
    assert warplap.gated_linear(x, w_gate, w_up, activation, out=out) is out
    near(out, expected)
    wide = torch.full((*lead, 15), torch.nan, device=device)  # rows with gaps, and no rows in one line
    near(warplap.gated_linear(x, w_gate, w_up, activation, out=wide[..., 2:14]), expected)
    assert wide[..., :2].isnan().all() and wide[..., 14:].isnan().all()
    arrays = [t.cpu().numpy() for t in (x, w_gate, w_up)]
    near(torch.from_numpy(np.asarray(warplap.gated_linear(*arrays, activation))), expected.cpu())
    array = np.full(expected.shape, np.nan, np.float32)
    assert warplap.gated_linear(*arrays, activation, out=array) is array
    near(torch.from_numpy(array), expected.cpu())


@pytest.mark.parametrize("activation", FUSED)
def test_it_is_one_problem_where_no_gradient_is_wanted(activation):
    x, w_gate, w_up = r(2, 5, 16), r(12, 16), r(12, 16, requires_grad=True)
    with torch.no_grad():
        warplap.gated_linear(x, w_gate, w_up, activation)
    act = "" if activation is None else f",act={activation}"
    text = f"gemm:m=10,n=12,k=16,dtype=f32,b=col{act},pair=true"
    assert problems() == {text}
    asked = warplap.explain(warplap.gated_linear, x, w_gate, w_up, activation)
    assert asked.problem == text and asked.how is not None
    table = warplap.benchmark(warplap.gated_linear, x, w_gate, w_up)
    assert {"torch_linear", "reference"} <= {row["variant"] for row in table}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_types_and_odd_layouts(dtype, device):
    x, w_gate, w_up = (r(*s, device=device).to(dtype) for s in ((7, 40), (9, 40), (9, 40)))
    near(warplap.gated_linear(x, w_gate, w_up), right(x, w_gate, w_up))
    both = r(18, 40, device=device).to(dtype)  # a model's joined weight: two views, no copy
    near(warplap.gated_linear(x, both[:9], both[9:]), right(x, both[:9], both[9:]))
    turned = r(40, 18, device=device).to(dtype).t()
    near(warplap.gated_linear(x, turned[:9], turned[9:]), right(x, turned[:9], turned[9:]))
    near(warplap.gated_linear(x, w_gate, turned[9:]), right(x, w_gate, turned[9:]))  # not alike
    every = [t[:, ::2] for t in (x, w_gate, w_up)]
    near(warplap.gated_linear(*every), right(*every))
    near(warplap.gated_linear(x[:, 1:], w_gate[:, 1:], w_up[:, 1:]), right(x[:, 1:], w_gate[:, 1:], w_up[:, 1:]))
    assert warplap.gated_linear(x[:0], w_gate, w_up).shape == (0, 9)
    assert not warplap.gated_linear(x[:, :0], w_gate[:, :0], w_up[:, :0]).any()
    assert warplap.gated_linear(x, w_gate[:0], w_up[:0]).shape == (7, 0)


def test_views_of_a_joined_weight_are_one_problem_and_others_two():
    x, both = r(7, 40), r(18, 40)
    warplap.gated_linear(x, both[:9], both[9:])
    (text,) = problems()
    assert text.endswith("pair=true")
    other = r(40, 9).t()
    warplap.gated_linear(x, both[:9], other)
    assert len(problems()) == 3 and any(text.endswith("act=silu,join=mul") for text in problems())
    assert warplap.explain(warplap.gated_linear, x, both[:9], other).problem.endswith("join=mul")
    arrays = x.numpy(), both[:9].numpy(), other.numpy()
    near(torch.from_numpy(warplap.gated_linear(*arrays)), right(x, both[:9], other))


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu", "sigmoid"])
@pytest.mark.parametrize("lead", [(4,), (2, 4)])
def test_gradients_and_their_gradients_are_torchs(activation, lead, device):
    inputs = [r(*s, device=device, requires_grad=True) for s in ((*lead, 8), (3, 8), (3, 8))]
    reference_inputs = [g.detach().double().requires_grad_() for g in inputs]
    got, expected = warplap.gated_linear(*inputs, activation), right(*reference_inputs, activation)
    near(got, expected)
    along = r(*lead, 3, device=device)
    first = torch.autograd.grad(got, inputs, along, create_graph=True)
    second = torch.autograd.grad(expected, reference_inputs, along.double(), create_graph=True)
    for a, b in zip(first, second):
        near(a, b, 1e-4)
    deep = lambda grads, leaves: torch.autograd.grad(sum(g.square().sum() for g in grads), leaves)
    for a, b in zip(deep(first, inputs), deep(second, reference_inputs)):
        near(a, b, 1e-3)
    for i in range(3):  # of one alone
        some = [g if i == j else g.detach() for j, g in enumerate(inputs)]
        (only,) = torch.autograd.grad(warplap.gated_linear(*some, activation), inputs[i], along)
        near(only, second[i], 1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_gradients_of_other_types(dtype, device):
    inputs = [r(*s, device=device).to(dtype).requires_grad_() for s in ((6, 8), (3, 8), (3, 8))]
    reference_inputs = [g.detach().double().requires_grad_() for g in inputs]
    got, expected = warplap.gated_linear(*inputs), right(*reference_inputs)
    along = r(6, 3, device=device).to(dtype)
    grads = torch.autograd.grad(got, inputs, along), torch.autograd.grad(expected, reference_inputs, along.double())
    for a, b in zip(*grads):
        near(a, b)


@pytest.mark.parametrize("activation", FUSED)
def test_compiled_it_is_one_node_where_no_gradient_is_wanted(activation):
    inputs = r(2, 5, 16), r(12, 16), r(12, 16)
    fn = lambda *tensors: warplap.gated_linear(*tensors, activation)
    (nodes,), got = nodes_of(fn, *inputs)
    assert [n for n in nodes if "view" not in n] == ["warplap.gated_linear.default"], nodes
    near(got, right(*inputs, activation))
    trained = [t.clone().requires_grad_() for t in inputs]
    (nodes,), got = nodes_of(fn, *trained)
    assert nodes.count("warplap.linear.default") == 2 and not any("gated" in n for n in nodes)
    near(got, right(*inputs, activation))
    along = r(2, 5, 12)
    for a, b in zip(torch.autograd.grad(got, trained, along), torch.autograd.grad(fn(*trained), trained, along)):
        near(a, b, 1e-4)


def test_the_operator_called_by_name_has_gradients_in_every_program():
    op = torch.ops.warplap.gated_linear.default
    inputs = [r(*s, requires_grad=True) for s in ((5, 16), (12, 16), (12, 16))]
    fn = lambda *tensors: op(*tensors, "gelu")
    along = r(5, 12)
    torch._dynamo.reset()
    expected = torch.autograd.grad(right(*inputs, "gelu"), inputs, along.double())
    for run in (fn, torch.compile(fn, backend="aot_eager", fullgraph=True)):
        for a, b in zip(torch.autograd.grad(run(*inputs), inputs, along), expected):
            near(a, b, 1e-4)
    for i in range(3):
        some = [g if i == j else g.detach() for j, g in enumerate(inputs)]
        near(torch.autograd.grad(fn(*some), inputs[i], along)[0], expected[i], 1e-4)
    with Seen() as seen, torch.no_grad():
        near(fn(*inputs), right(*inputs, "gelu"))
        near(warplap.gated_linear(*inputs, "gelu"), right(*inputs, "gelu"))
    assert any("warplap.gated_linear" in name for name in seen.names), seen.names
    torch.library.opcheck(op, (*(t.detach() for t in inputs), "silu"))


def test_inductor_calls_a_function_and_sizes_that_change_recompile_nothing(device):
    torch._dynamo.reset()
    w_gate, w_up = r(12, 16, device=device), r(12, 16, device=device)
    fn = lambda x: warplap.gated_linear(x, w_gate, w_up)
    with fresh_cache():
        compiled = torch.compile(fn, fullgraph=True, dynamic=True)
        x = r(2, 5, 16, device=device)
        got, (code, *_) = run_and_get_code(compiled, x)
        near(got, fn(x))
        assert code.count("torch.ops.warplap.run_gated_linear(") == 1 and "sigmoid" not in code
        x = r(3, 7, 16, device=device)
        with torch.compiler.set_stance("fail_on_recompile"):
            near(compiled(x), fn(x))


@pytest.mark.parametrize("compiled", [False, True])
def test_under_autocast_it_is_as_torchs_own(compiled, device):
    inputs = [r(*s, device=device) for s in ((5, 16), (12, 16), (12, 16))]
    torch._dynamo.reset()
    fn = warplap.gated_linear
    run = torch.compile(fn, backend="aot_eager", fullgraph=True) if compiled else fn
    with torch.autocast(device, torch.bfloat16):
        got = run(*inputs)
    assert got.dtype == torch.bfloat16
    near(got, right(*inputs))


def test_a_batch_of_calls_is_one_for_vmap():
    x, w_gate, w_up = r(4, 5, 16), r(12, 16), r(12, 16)
    near(torch.vmap(lambda x: warplap.gated_linear(x, w_gate, w_up))(x), right(x, w_gate, w_up))


@pytest.mark.parametrize(
    ("error", "name", "named"),
    [
        (ValueError, "activation: is 'swish'", {"activation": "swish"}),
        (ValueError, r"x: has shape \[2, 5\], expected 3 columns as w_gate has", {"x": r(2, 5)}),
        (ValueError, r"w_gate: has 1 dimensions, expected 2", {"w_gate": r(3)}),
        (ValueError, r"w_up: has 3 dimensions, expected 2", {"w_up": r(1, 4, 3)}),
        (ValueError, r"w_up: has shape \[5, 3\], expected \[4, 3\] as w_gate has", {"w_up": r(5, 3)}),
        (TypeError, "w_up: holds torch.float16, expected torch.float32", {"w_up": r(4, 3).half()}),
        (TypeError, "w_up: is a ndarray, expected tensors of one library", {"w_up": np.zeros((4, 3), np.float32)}),
        (TypeError, "w_gate: has layout torch.sparse", {"w_gate": r(4, 3).to_sparse()}),
        (ValueError, "w_up: is on meta, expected cpu", {"w_up": torch.empty(4, 3, device="meta")}),
        (ValueError, "out: has shape", {"out": r(2, 5)}),
        (TypeError, "out: holds torch.float64, expected torch.float32", {"out": r(2, 4).double()}),
    ],
)
def test_wrong_arguments_are_named(error, name, named):
    for requires_grad in (False, True):
        if requires_grad and "out" in named:
            continue
        arguments = {"x": r(2, 3, requires_grad=requires_grad), "w_gate": r(4, 3), "w_up": r(4, 3), **named}
        with pytest.raises(error, match=name):
            warplap.gated_linear(**arguments)


def test_an_output_that_cannot_be_written_is_refused():
    x, w_gate, w_up = r(4, 4), r(4, 4), r(4, 4)
    for name, out in (("x", x), ("w_gate", w_gate), ("w_up", w_up)):
        with pytest.raises(ValueError, match=f"out: shares memory with {name}"):
            warplap.gated_linear(x, w_gate, w_up, out=out)
    with pytest.raises(NotImplementedError, match="out: is given for tensors that require a gradient"):
        warplap.gated_linear(x, w_gate.requires_grad_(), w_up, out=r(4, 4))


@pytest.mark.parametrize(
    ("error", "name", "place", "array"),
    [
        (ValueError, r"w_up: has shape \[5, 3\], expected \[4, 3\]", "w_up", np.zeros((5, 3), np.float32)),
        (ValueError, "w_gate: has 1 dimensions", "w_gate", np.zeros(3, np.float32)),
        (TypeError, "w_gate: holds float16, expected float32", "w_gate", np.zeros((4, 3), np.float16)),
        (TypeError, "w_up: expected a tensor or an array, found list", "w_up", [[0.0] * 3] * 4),
        (ValueError, "out: has shape", "out", np.zeros((2, 5), np.float32)),
        (TypeError, "out: holds float64, expected float32", "out", np.zeros((2, 4))),
        (ValueError, "activation: is 'swish'", "activation", "swish"),
    ],
)
def test_wrong_arrays_are_named(error, name, place, array):
    shapes = {"x": (2, 3), "w_gate": (4, 3), "w_up": (4, 3)}
    arguments = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    with pytest.raises(error, match=name):
        warplap.gated_linear(**{**arguments, place: array})
