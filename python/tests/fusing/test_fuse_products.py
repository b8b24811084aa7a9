"""Products joined with what follows them, found in traced graphs: right, and one node of what is compiled."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from conftest import near
from fuse_graphs import nodes_of, traced, uncompiled  # noqa: F401

import warplap
from warplap.fusing.plan import Plan

r = torch.randn


class Gated(torch.nn.Module):
    """A gated layer and its residual, as Llama's models have them; with a bias it is no pair."""

    def __init__(self, width=32, wide=48, bias=True):
        super().__init__()
        self.gate, self.up = torch.nn.Linear(width, wide, bias=False), torch.nn.Linear(width, wide, bias)
        self.down = torch.nn.Linear(wide, width)

    def forward(self, x):
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


JOINED_PRODUCTS = {
    "linear_add": lambda x, w, b, y: y + F.linear(x, w, b),
    "linear_mul": lambda x, w, b, y: F.linear(x, w) * y,
    "linear_gelu_add": lambda x, w, b, y: F.gelu(F.linear(x, w, b)).add(y),
    "linear_tanh_mul": lambda x, w, b, y: torch.tanh(F.linear(x, w, b)) * y,
    "linear_gelu_tanh_add": lambda x, w, b, y: torch.add(F.gelu(F.linear(x, w, b), approximate="tanh"), y),
    "linear_gelu_mul": lambda x, w, b, y: F.gelu(F.linear(x, w, b)) * y,
    "linear_silu_mul": lambda x, w, b, y: y * F.silu(F.linear(x, w, b)),
    "linear_relu_mul": lambda x, w, b, y: torch.mul(torch.relu(F.linear(x, w, b)), y),
}


@pytest.mark.parametrize("name", JOINED_PRODUCTS)
@pytest.mark.parametrize("lead", [(5,), (2, 5)])
def test_a_joined_product_is_found_right_and_one_node(name, lead):
    fn, tensors = JOINED_PRODUCTS[name], (r(*lead, 16), r(12, 16), r(12), r(*lead, 12))
    module, inputs = traced(fn, *tensors)
    plan = Plan(module)
    (partition,) = [p for p in plan.partitions(None, 99) if p.kinds == (name,)]
    run = plan.rewritten(partition.covers)
    right = fn(*(t.double() for t in tensors))
    near(run(*inputs)[0], right)
    (nodes,), got = nodes_of(run, *inputs)
    near(got[0], right)
    assert [n for n in nodes if "view" not in n] == ["warplap.linear_finished.default"], nodes


def test_what_others_read_stays_in_memory():
    def fn(x, w, b, y):
        total = y + F.linear(x, w, b)
        return F.layer_norm(total, (12,)), total.sin()

    tensors = r(5, 16), r(12, 16), r(12), r(5, 12)
    module, inputs = traced(fn, *tensors)
    plan = Plan(module)
    (partition,) = [p for p in plan.partitions(None, 99) if p.kinds == ("linear_add",)]
    for a, b in zip(plan.rewritten(partition.covers)(*inputs), fn(*(t.double() for t in tensors))):
        near(a, b)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w, b, y: (lambda z: z + z)(F.linear(x, w, b)),  # with itself
        lambda x, w, b, y: torch.add(F.linear(x, w, b), y, alpha=2.0),
        lambda x, w, b, y: F.linear(x, w) + b,  # spread over rows
        lambda x, w, b, y: F.linear(x, w) * 2.0,
        lambda x, w, b, y: F.linear(x, w) + y.double(),
        lambda x, w, b, y: (lambda z: (z + y, z.sin()))(F.linear(x, w)),  # others read the product
    ],
)
def test_what_no_call_stands_in_for_is_left_alone(fn):
    module, _ = traced(fn, r(5, 16), r(12, 16), r(12), r(5, 12))
    assert not [kind for kind in Plan(module).kinds if kind.endswith(("_add", "_mul"))]


def test_every_partition_of_a_gated_layer_is_right():
    block, x = Gated(), r(2, 7, 32)
    with torch.no_grad():
        module, inputs = traced(block, x)
        plan = Plan(module)
        assert {kind.partition(".")[0] for kind in plan.kinds} == {
            "linear", "linear_silu", "linear_silu_mul", "linear_mul", "linear_add",
        }  # fmt: skip
        right = block.double()(x.double())
        partitions = plan.partitions(None, 10_000)
        assert any(set(p.kinds) == {"linear_add", "linear_silu_mul", "linear.1"} for p in partitions), partitions
        with warplap.off():
            for partition in partitions:
                near(plan.rewritten(partition.covers)(*(t.float() if torch.is_tensor(t) else t for t in inputs))[0], right)


def test_a_gated_layer_is_raced_and_trains(uncompiled):  # noqa: F811
    block, x = Gated(), r(2, 7, 32)
    fused = warplap.fuse(block)
    with torch.no_grad():
        near(fused(x), block(x), 1e-4)
        assert "linear_silu_mul" in fused.decisions[0].plan.kinds
    got, right = fused(x), block(x)
    near(got, right, 1e-4)
    parameters = list(block.parameters())
    for a, b in zip(*(torch.autograd.grad(y.square().sum(), parameters) for y in (got, right))):
        near(a, b, 1e-3)
    assert not any(kind.endswith(("_add", "_mul")) for kind in fused.decisions[-1].plan.kinds)


def test_a_projection_that_only_a_loss_reads_goes_into_it():
    tensors = [r(9, 16, requires_grad=True), r(12, 16, requires_grad=True), r(12, requires_grad=True)]
    labels = torch.randint(0, 12, (9,))
    fn = lambda x, w, b: F.cross_entropy(F.linear(x, w, b), labels, label_smoothing=0.1)
    module, inputs = traced(fn, *tensors)
    plan = Plan(module)
    (partition,) = [p for p in plan.partitions(None, 99) if p.kinds == ("linear_cross_entropy",)]
    got, right = plan.rewritten(partition.covers)(*inputs)[0], fn(*(t.double() for t in tensors))
    near(got, right)
    for a, b in zip(torch.autograd.grad(got, tensors), torch.autograd.grad(right, tensors)):
        near(a, b)
    both = lambda x, w, b: (lambda y: (F.cross_entropy(y, labels), y))(F.linear(x, w, b))
    assert "linear_cross_entropy" not in Plan(traced(both, *tensors)[0]).kinds


def halves(y):
    return y[..., :6], y[..., 6:]


PAIRS = {
    "gated_linear": lambda x, w, v: F.linear(x, w) * F.linear(x, v),
    "gated_linear_silu": lambda x, w, v: F.silu(F.linear(x, w)) * F.linear(x, v),
    "gated_linear_relu": lambda x, w, v: F.linear(x, v) * torch.relu(F.linear(x, w)),
    "gated_linear_gelu": lambda x, w, v: torch.mul(F.linear(x, v), F.gelu(F.linear(x, w))),
    "gated_linear_gelu_tanh": lambda x, w, v: F.gelu(F.linear(x, w), approximate="tanh").mul(F.linear(x, v)),
    "gated_linear_sigmoid": lambda x, w, v: torch.sigmoid(F.linear(x, w)) * F.linear(x, v),
    "gated_halves_silu": lambda x, w, v: (lambda gate, up: F.silu(gate) * up)(*F.linear(x, w).chunk(2, -1)),
    "gated_halves_gelu": lambda x, w, v: (lambda up, gate: up * F.gelu(gate))(*torch.chunk(F.linear(x, w), 2, dim=-1)),
    "gated_halves_relu": lambda x, w, v: (lambda gate, up: torch.relu(gate) * up)(*halves(F.linear(x, w))),
    "gated_halves": lambda x, w, v: (lambda up, gate: up * gate)(*F.linear(x, w).chunk(2, -1)),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("lead", [(5,), (2, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_pair_of_products_is_found_right_and_one_node(name, lead, dtype):
    fn, tensors = PAIRS[name], [t.to(dtype) for t in (r(*lead, 16), r(12, 16), r(12, 16))]
    module, inputs = traced(fn, *tensors)
    plan = Plan(module)
    (partition,) = [p for p in plan.partitions(None, 99) if p.kinds == (name,)]
    assert len(partition.covers) == 1 and set(partition.covers[0].nodes) == set(plan.nodes)
    assert [kind for kind in plan.kinds if kind.startswith("gated")] == [name]
    run = plan.rewritten(partition.covers)
    right = fn(*(t.double() for t in tensors))
    near(run(*inputs)[0], right)
    (nodes,), got = nodes_of(run, *inputs)
    near(got[0], right)
    views = ("view", "split", "getitem", "slice")
    assert [n for n in nodes if not any(v in n for v in views)] == ["warplap.gated_linear.default"], nodes


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w, v, b: F.silu(F.linear(x, w, b)) * F.linear(x, v),  # a pair has no bias
        lambda x, w, v, b: F.silu(F.linear(x, w)) * F.linear(x, v, b),
        lambda x, w, v, b: F.silu(F.linear(x, w)) * F.linear(x + 1.0, v),  # two inputs
        lambda x, w, v, b: F.silu(F.linear(x, w)) * F.silu(F.linear(x, v)),
        lambda x, w, v, b: F.silu(F.linear(x, w)) + F.linear(x, v),
        lambda x, w, v, b: (lambda y: F.silu(y) * y)(F.linear(x, w)),  # one product
        lambda x, w, v, b: F.silu(F.linear(x, w)) * F.linear(x, v[:1]),  # spread over columns
        lambda x, w, v, b: (lambda y: (F.silu(F.linear(x, w)) * y, y))(F.linear(x, v)),  # others read a product
        lambda x, w, v, b: (lambda y: (F.silu(y) * F.linear(x, v), y))(F.linear(x, w)),
        lambda x, w, v, b: (lambda y: (y * F.linear(x, v), y))(F.silu(F.linear(x, w))),
        lambda x, w, v, b: (lambda g, u: F.silu(g) * u)(*F.linear(x, w, b).chunk(2, -1)),
        lambda x, w, v, b: (lambda g, u: (F.silu(g) * u, g))(*F.linear(x, w).chunk(2, -1)),
        lambda x, w, v, b: (lambda y: (F.silu(y[..., :6]) * y[..., 6:], y))(F.linear(x, w)),
        lambda x, w, v, b: (lambda y: F.silu(y[..., :6]) * y[..., :6])(F.linear(x, w)),
        lambda x, w, v, b: (lambda y: F.silu(y[..., :4]) * y[..., 4:8])(F.linear(x, w)),
        lambda x, w, v, b: (lambda g, u: F.silu(g) * u)(*F.linear(x[:4], w).chunk(2, 0)),  # halves of the rows
    ],
)
def test_what_is_no_pair_is_left_alone(fn):
    module, _ = traced(fn, r(5, 16), r(12, 16), r(12, 16), r(12))
    assert not [kind for kind in Plan(module).kinds if kind.startswith("gated")]


def test_every_partition_of_a_layer_with_a_pair_is_right():
    block, x = Gated(bias=False), r(2, 7, 32)
    with torch.no_grad():
        module, inputs = traced(block, x)
        plan = Plan(module)
        right = block.double()(x.double())
        partitions = plan.partitions(None, 10_000)
        assert any(set(p.kinds) == {"gated_linear_silu", "linear_add"} for p in partitions), partitions
        with warplap.off():
            for partition in partitions:
                near(plan.rewritten(partition.covers)(*(t.float() if torch.is_tensor(t) else t for t in inputs))[0], right)


def test_a_pair_is_raced_and_trains(uncompiled):  # noqa: F811
    block, x = Gated(bias=False), r(2, 7, 32)
    fused = warplap.fuse(block)
    with torch.no_grad():
        near(fused(x), block(x), 1e-4)
        (decision,) = fused.decisions
        assert "gated_linear_silu" in decision.plan.kinds
        ran = [lane for lane in decision.contestants if "gated_linear_silu" in lane.kinds]
        unmeasured_parts = [p for p in decision.unmeasured if "gated_linear_silu" in p.kinds]
        assert ran or unmeasured_parts, str(decision)
        assert all(lane.us is not None for lane in ran), str(decision)
    got, right = fused(x), block(x)
    near(got, right, 1e-4)
    parameters = list(block.parameters())
    for a, b in zip(*(torch.autograd.grad(y.square().sum(), parameters) for y in (got, right))):
        near(a, b, 1e-3)
    assert not any(kind.startswith("gated") for kind in fused.decisions[-1].plan.kinds)
