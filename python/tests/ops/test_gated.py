"""gated: an activation joined with another tensor element by element, one kernel and one node of a graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import Seen, near
from fuse_graphs import ACTIVATIONS, nodes_of, traced
from torch._inductor.utils import fresh_cache, run_and_get_code

import warplap
from warplap.fusing.plan import Plan

JOINS = {"mul": torch.mul, "add": torch.add}
r = torch.randn


def right(a, b, activation="silu", join="mul"):
    """The same in double precision."""
    return JOINS[join](ACTIVATIONS[activation](a.double()), b.double())


def problems():
    return {row["problem"] for row in warplap.store.ls("gated")}


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_an_activation_joined_with_another_tensor(activation, join, device):
    for shape in ((7,), (1,), (5, 33), (2, 5, 16), (2, 3, 4, 8)):
        a, b = 3 * r(*shape, device=device), r(*shape, device=device)
        expected = right(a, b, activation, join)
        near(warplap.gated(a, b, activation, join=join), expected)
        out = torch.full_like(a, torch.nan)
        assert warplap.gated(a, b, activation, join=join, out=out) is out
        near(out, expected)
        arrays = a.cpu().numpy(), b.cpu().numpy()
        near(torch.from_numpy(warplap.gated(*arrays, activation, join=join)), expected.cpu())
        array = np.full(shape, np.nan, np.float32)
        assert warplap.gated(*arrays, activation, join=join, out=array) is array
        near(torch.from_numpy(array), expected.cpu())


def test_halves_of_one_tensor_are_read_where_they_lie():
    y = r(2, 5, 48)
    a, b = y.chunk(2, -1)
    near(warplap.gated(a, b, "gelu"), right(a, b, "gelu"))
    assert problems() == {"gated:rows=10,n=24,dtype=f32,act=gelu,lda=48,ldb=48"}
    asked = warplap.explain(warplap.gated, a, b, "gelu")
    assert asked.problem in problems() and asked.how is not None
    assert warplap.explain("gated", r(3, 8), r(3, 8), join="add").problem.endswith("n=8,dtype=f32,act=silu,join=add")
    table = warplap.benchmark(warplap.gated, a, b, "gelu")
    assert {"torch_gated", "reference", "vectors"} <= {row["variant"] for row in table}
    assert all(row["time_us"] for row in table if row["variant"] == "torch_gated"), table


def test_torchs_own_stands_aside_where_nothing_is_joined():
    fits = {v["variant"]: v["fits"] for v in warplap.explain("gated:rows=8,n=8,dtype=f32,act=gelu,join=none").variants}
    assert fits["vectors"] and not fits["torch_gated"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_types_and_odd_layouts(dtype, device):
    a, b = (3 * r(7, 40, device=device)).to(dtype), r(7, 40, device=device).to(dtype)
    near(warplap.gated(a, b), right(a, b))
    near(warplap.gated(a.t(), b.t(), "tanh"), right(a.t(), b.t(), "tanh"))
    near(warplap.gated(a[:, ::2], b[:, 1::2]), right(a[:, ::2], b[:, 1::2]))
    near(warplap.gated(a[:, 1:], b[:, :-1]), right(a[:, 1:], b[:, :-1]))
    spread = a[:1].expand(7, 40)
    near(warplap.gated(spread, b), right(spread, b))
    assert warplap.gated(a[:0], b[:0]).shape == (0, 40)
    wide = torch.full((7, 50), torch.nan, dtype=dtype, device=device)
    warplap.gated(a, b, out=wide[:, 5:45])
    near(wide[:, 5:45], right(a, b))
    assert wide[:, :5].isnan().all() and wide[:, 45:].isnan().all()


def test_half_types_are_rounded_once():
    a, b = (4 * r(64, 256)).bfloat16(), r(64, 256).bfloat16()
    expected = right(a, b).to(torch.bfloat16)
    step = (warplap.gated(a, b).float() - expected.float()).abs() / expected.float().abs().clamp(min=1e-6)
    assert (step <= 2**-7).all() and (step == 0).float().mean() > 0.99


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_gradients_and_their_gradients_are_torchs(activation, join, device):
    inputs = [r(2, 4, 8, device=device, requires_grad=True) for _ in range(2)]
    reference_inputs = [g.detach().double().requires_grad_() for g in inputs]
    got, expected = warplap.gated(*inputs, activation, join=join), right(*reference_inputs, activation, join)
    near(got, expected)
    along = r(2, 4, 8, device=device, requires_grad=True)
    first = torch.autograd.grad(got, inputs, along, create_graph=True)
    second = torch.autograd.grad(expected, reference_inputs, along.double(), create_graph=True)
    for a, b in zip(first, second):
        near(a, b, 1e-4)
    deep = lambda grads, leaves: torch.autograd.grad(sum(g.square().sum() for g in grads), leaves, materialize_grads=True)
    for a, b in zip(deep(first, inputs), deep(second, reference_inputs)):
        near(a, b, 1e-3)
    for i in range(2):  # of one alone
        some = [g if i == j else g.detach() for j, g in enumerate(inputs)]
        (only,) = torch.autograd.grad(warplap.gated(*some, activation, join=join), inputs[i], along)
        near(only, second[i], 1e-4)


def test_nothing_but_both_is_kept_for_gradients():
    kept = []
    a, b = r(4, 8, requires_grad=True), r(4, 8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        warplap.gated(a, b)
    assert {t.data_ptr() for t in kept} == {a.data_ptr(), b.data_ptr()}


def test_compiled_it_is_one_node_with_gradients_and_without():
    inputs = r(2, 5, 16), r(2, 5, 16)
    fn = lambda a, b: warplap.gated(a, b, "gelu")
    (nodes,), got = nodes_of(fn, *inputs)
    assert [n for n in nodes if "view" not in n] == ["warplap.gated.default"], nodes
    near(got, right(*inputs, "gelu"))
    trained = [t.clone().requires_grad_() for t in inputs]
    (nodes,), got = nodes_of(fn, *trained)
    assert nodes.count("warplap.gated.default") == 1 and not any("gelu" in n for n in nodes), nodes
    along = r(2, 5, 16)
    for a, b in zip(torch.autograd.grad(got, trained, along), torch.autograd.grad(fn(*trained), trained, along)):
        near(a, b, 1e-4)


def test_inductor_calls_a_function_and_sizes_that_change_recompile_nothing(device):
    torch._dynamo.reset()
    fn = lambda y: warplap.gated(*y.chunk(2, -1))
    with fresh_cache():
        compiled = torch.compile(fn, fullgraph=True, dynamic=True)
        y = r(2, 5, 32, device=device)
        got, (code, *_) = run_and_get_code(compiled, y)
        near(got, fn(y))
        assert code.count("torch.ops.warplap.run_gated(") == 1 and "sigmoid" not in code
        y = r(3, 7, 32, device=device)
        with torch.compiler.set_stance("fail_on_recompile"):
            near(compiled(y), fn(y))


def test_the_operator_is_seen_by_name_and_as_torch_wants_operators():
    a, b = r(5, 16), r(5, 16)
    with Seen() as seen:
        near(warplap.gated(a, b), right(a, b))
    assert any("warplap.gated" in name for name in seen.names), seen.names
    torch.library.opcheck(torch.ops.warplap.gated.default, (a.requires_grad_(), b, "silu", "mul"))
    near(torch.vmap(warplap.gated)(r(4, 5, 16), b.expand(4, 5, 16)).isnan().double(), torch.zeros(4, 5, 16).double())


def test_under_autocast_it_is_as_torchs_own(device):
    a, b = r(5, 16, device=device).bfloat16(), r(5, 16, device=device)
    with torch.autocast(device, torch.bfloat16):
        got = warplap.gated(a, b)
        assert got.dtype == (F.silu(a) * b).dtype == torch.float32
    near(got, right(a, b), 1e-5)


def test_fuse_finds_it_where_no_product_is_taken_in():
    kinds = lambda fn, *args: [k for k in Plan(traced(fn, *args)[0]).kinds if k.endswith("_mul")]
    a, b, w = r(5, 16), r(5, 16), r(16, 16)
    for fn in (lambda a, b: F.silu(a) * b, lambda a, b: b * F.silu(a), lambda a, b: torch.mul(F.silu(a), b)):
        module, inputs = traced(fn, a, b)
        plan = Plan(module)
        (partition,) = [p for p in plan.partitions(None, 99) if p.kinds == ("silu_mul",)]
        near(plan.rewritten(partition.covers)(*inputs)[0], right(a, b))
    assert kinds(lambda a, b: F.gelu(a, approximate="tanh") * b, a, b) == ["gelu_tanh_mul"]
    # The halves of a product with a bias, which no pair has.
    halves = lambda x, w, bias: (lambda g, u: F.silu(g) * u)(*F.linear(x, w, bias).chunk(2, -1))
    assert kinds(halves, a, w, r(16)) == ["silu_mul"]
    assert kinds(lambda a, w: (lambda y: F.silu(y) * y)(F.linear(a, w)), a, w) == ["silu_mul"]
    for none in (
        lambda a, w: F.silu(F.linear(a, w)) * a,  # a product that takes the other in
        lambda a, w: F.silu(a) * F.linear(a, w),
        lambda a, w: (lambda g, u: F.silu(g) * u)(*F.linear(a, w).chunk(2, -1)),
        lambda a, w: F.silu(a) * a[:1],  # spread over rows
        lambda a, w: (lambda s: (s * w[:5], s))(F.silu(a)),  # others read the activation
        lambda a, w: F.silu(a) * 2.0,
        lambda a, w: F.silu(a),
    ):
        assert "silu_mul" not in kinds(none, a, w)


@pytest.mark.parametrize(
    ("error", "name", "named"),
    [
        (ValueError, "activation: is 'swish'", {"activation": "swish"}),
        (ValueError, "join: is 'sub', expected mul or add", {"join": "sub"}),
        (ValueError, r"b: has shape \[2, 5\], expected \[2, 3\] as a has", {"b": r(2, 5)}),
        (ValueError, "a: has 0 dimensions", {"a": r(()), "b": r(())}),
        (TypeError, "b: holds torch.float16, expected torch.float32", {"b": r(2, 3).half()}),
        (TypeError, "b: is a ndarray, expected tensors of one library", {"b": np.zeros((2, 3), np.float32)}),
        (ValueError, "b: is on meta, expected cpu", {"b": torch.empty(2, 3, device="meta")}),
        (ValueError, "out: has shape", {"out": r(2, 5)}),
        (TypeError, "out: holds torch.float64, expected torch.float32", {"out": r(2, 3).double()}),
    ],
)
def test_wrong_arguments_are_named(error, name, named):
    for requires_grad in (False, True):
        if requires_grad and "out" in named:
            continue
        arguments = {"a": r(2, 3, requires_grad=requires_grad), "b": r(2, 3), **named}
        with pytest.raises(error, match=name):
            warplap.gated(**arguments)


@pytest.mark.parametrize(
    ("error", "name", "named"),
    [
        (ValueError, r"b: has shape \[5, 3\], expected \[2, 3\]", {"b": np.zeros((5, 3), np.float32)}),
        (TypeError, "a: holds float64, expected float32 or float16", {"a": np.zeros((2, 3))}),
        (TypeError, "b: holds float16, expected float32", {"b": np.zeros((2, 3), np.float16)}),
        (TypeError, "b: expected a tensor or an array, found list", {"b": [[0.0] * 3] * 2}),
        (TypeError, "out: holds float64, expected float32", {"out": np.zeros((2, 3))}),
        (ValueError, "activation: is 'swish'", {"activation": "swish"}),
    ],
)
def test_wrong_arrays_are_named(error, name, named):
    arguments = {"a": np.zeros((2, 3), np.float32), "b": np.zeros((2, 3), np.float32), **named}
    with pytest.raises(error, match=name):
        warplap.gated(**arguments)
