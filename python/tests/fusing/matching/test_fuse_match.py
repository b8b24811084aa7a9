"""What is found in a traced graph, and that every legal partition of it computes the same."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from conftest import near
from fuse_graphs import Block, r, traced

import warplap
from warplap.fusing.plan import Plan
from warplap.fusing.race import whole
from warplap.operator.call import call_cache


def test_what_our_operators_cover_is_found_however_it_is_written():
    plan = Plan(traced(Block(), r(2, 8, 32), r(2, 8, 32))[0])
    names = {name.partition(".")[0] for name in plan.kinds}
    assert names == {"norm", "add_norm", "norm_of_sum", "linear", "linear_gelu", "softmax", "softmax_scale", "attention"}
    assert len([k for k in plan.kinds if k.startswith("attention")]) == 2, "written out, and by name"
    (by_hand,) = [f for fs in plan.kinds.values() for f in fs if f.template == "norm" and len(f.nodes) > 1]
    assert by_hand.args[3:] == ("rms", 1e-6)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: F.layer_norm(x, (4, 32), None, None),  # over two dimensions
        lambda x, w: x.double() @ w.double().t(),  # of a type that kernels do not have
        lambda x, w: torch.softmax(x, dim=0),
        lambda x, w: x * torch.rsqrt(x.pow(2).mean(0, keepdim=True) + 1e-6) * w[0],  # along the first dimension
        lambda x, w: x * torch.rsqrt(x.pow(3).mean(-1, keepdim=True) + 1e-6) * w[0],
        lambda x, w: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
    ],
)
def test_what_only_looks_alike_is_left_alone(fn):
    assert not Plan(traced(fn, r(2, 4, 32), r(8, 32))[0]).kinds


_norm, _line = torch.nn.LayerNorm(32), r(32)


@pytest.mark.parametrize(
    "fn, name",
    [
        (lambda x, y: _norm(x + F.dropout(y, 0.3)), "drop_add_norm"),
        (lambda x, y: _norm(F.dropout(y, p=0.3) + x), "drop_add_norm"),
        (lambda x, y: _norm(x + torch.dropout(y, 0.3, train=True)), "drop_add_norm"),
        (lambda x, y: _norm(F.dropout(x, 0.3)) * y, "drop_norm"),
        (lambda x, y: (lambda t: _norm(t) + t * y)(F.dropout(x, 0.3)), "drop_norm"),
        (lambda x, y: _norm(F.dropout(x + _line, 0.3) + y), "bias_drop_add_norm"),
        (lambda x, y: _norm(F.dropout(_line + x, 0.3)) * y, "bias_drop_norm"),
        (lambda x, y: _norm(y + (x + _line)), "bias_add_norm"),
        (lambda x, y: _norm(F.dropout(x + _line, 0.3, False) + y), "bias_add_norm"),
        (lambda x, y: _norm(F.dropout(x, 0.3, training=False) + y), "norm_of_sum"),
        (lambda x, y: _norm(torch.dropout(x, 0.3, train=False) + y), "norm_of_sum"),
    ],
)
def test_what_stands_in_front_of_a_norm_is_found(fn, name):
    module, inputs = traced(fn, r(2, 4, 32, requires_grad=True), r(2, 4, 32, requires_grad=True))
    plan = Plan(module)
    assert name in plan.kinds and ("drop" in name) == plan.draws
    (partition,) = [p for p in plan.partitions(None, 99) if p.kinds == (name,)]
    with warplap.off():
        calm = [plan.rewritten(covers, calm=True).forward for covers in (partition.covers, ())]
        for a, b in zip(*(whole.step(run, tuple(inputs)) for run in calm)):
            near(a, b, 1e-4)
        y = whole.step(plan.rewritten(partition.covers).forward, tuple(inputs))[0]
    assert y.shape == (2, 4, 32)


def test_a_dropout_that_drops_nothing_hides_nothing():
    layer, drop = torch.nn.Linear(32, 32), torch.nn.Dropout(0.1).eval()
    with torch.no_grad():
        plan = Plan(traced(lambda x: x + drop(layer(x)), r(4, 32))[0])
    assert "linear_add" in plan.kinds and not plan.draws


def test_every_legal_partition_computes_the_same_with_its_gradients():
    block = Block()
    module, inputs = traced(block, r(2, 8, 32), r(2, 8, 32))
    plan = Plan(module)
    partitions = plan.partitions(None, 10_000)
    assert len(partitions) > 50
    with warplap.off():
        right = whole.step(module.forward, tuple(inputs))
        for partition in partitions[:: max(1, len(partitions) // 40)]:
            got = whole.step(plan.rewritten(partition.covers).forward, tuple(inputs))
            assert len(got) == len(right)
            for a, b in zip(got, right):
                near(a, b, 1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_norm_without_an_epsilon_has_torchs(dtype):
    """Of rows so small that it is all that counts."""
    x, w = (r(4, 64) * 1e-3).to(dtype), torch.ones(64, dtype=dtype)
    fn = lambda x, w: F.rms_norm(x, (64,), w)
    module, inputs = traced(fn, x, w)
    plan = Plan(module)
    (part,) = plan.kinds["norm"]
    near(plan.rewritten([part])(*inputs)[0], fn(x, w))


def test_a_sum_that_others_read_too_comes_out_beside_the_norm():
    norm = torch.nn.LayerNorm(16)
    fn = lambda x, y: (norm(x + y), (x + y).relu())
    module, inputs = traced(lambda x, y: (lambda t: (norm(t), t.relu()))(x + y), r(3, 16), r(3, 16))
    plan = Plan(module)
    (partition,) = [p for p in plan.partitions(None, 9) if p.kinds == ("add_norm",)]
    with warplap.off():
        for a, b in zip(plan.rewritten(partition.covers)(*inputs), fn(*inputs[:2])):
            near(a, b, 1e-5)


@pytest.mark.parametrize("trained", [False, True])
def test_a_sum_that_nobody_else_reads_is_not_written(trained, monkeypatch):
    norm = torch.nn.LayerNorm(16)
    module, inputs = traced(lambda x, y: norm(x + y).relu(), r(3, 16), r(3, 16))
    plan = Plan(module)
    (partition,) = [p for p in plan.partitions(None, 9) if p.kinds == ("norm_of_sum",)]
    run, asked, made = plan.rewritten(partition.covers), [], call_cache._warplap.Prepared
    monkeypatch.setattr(call_cache, "_warplap", SimpleNamespace(Prepared=lambda t: asked.append(t) or made(t)))
    warplap.ops.norm.problem.prepared.cache_clear()
    right = norm(inputs[0] + inputs[1]).relu()
    with warplap.off(), torch.set_grad_enabled(trained):
        got = run(*inputs)
        got = got[0] if isinstance(got, tuple) else got
    near(got, right, 1e-5)
    warplap.ops.norm.problem.prepared.cache_clear()
    assert [",sum=false" in text for text in asked] == [not trained], "backward passes read the sum"
