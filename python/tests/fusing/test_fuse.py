"""Fusion boundaries by measurement: partitions are raced as whole graphs, proved and kept."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from conftest import near
from fuse_graphs import Block, no_relu, planted, quick_relu, r, slow_relu, uncompiled, wrong_relu  # noqa: F401

import warplap
from warplap.fusing.matching import node_kinds
from warplap.fusing.race import forms


def test_a_graph_is_raced_once_and_its_sizes_share_the_decision(uncompiled):
    block = Block().eval()
    fused = warplap.fuse(block, dynamic=False)
    with torch.no_grad():
        x, before = r(2, 8, 32), r(2, 8, 32)
        near(fused(x, before), block(x, before), 1e-4)
        assert [d.how for d in fused.decisions] == ["raced"]
        x, before = r(2, 7, 32), r(2, 7, 32)  # traced anew: eight positions' decision holds
        near(fused(x, before), block(x, before), 1e-4)
        assert [d.how for d in fused.decisions] == ["raced", "from the store"]
        x, before = r(2, 9, 32), r(2, 9, 32)
        near(fused(x, before), block(x, before), 1e-4)
    assert [d.how for d in fused.decisions] == ["raced", "from the store", "raced"]
    assert [row["op"] for row in warplap.store.ls()].count("graph") == 2
    explanation = fused.explain()
    assert all(words in explanation for words in ("raced as a whole", "inductor", "eager", "µs"))
    assert warplap.graphs()[-1] is fused.decisions[-1]


def test_a_training_step_is_raced_with_its_gradients(uncompiled):
    block = Block()
    fused = warplap.fuse(block)
    x, before = r(2, 8, 32), r(2, 8, 32)
    got, right = fused(x, before), block(x, before)
    near(got, right, 1e-4)
    mine = torch.autograd.grad(got.square().sum(), list(block.parameters()))
    for a, b in zip(mine, torch.autograd.grad(right.square().sum(), list(block.parameters()))):
        near(a, b, 1e-3)
    assert "step=true" in fused.decisions[0].key


def test_dropout_races_and_what_it_drops_is_drawn_anew(uncompiled):
    block = Block(dropout=0.5)
    fused = warplap.fuse(block)
    x, before = r(2, 8, 32), r(2, 8, 32)
    assert not torch.equal(fused(x, before), fused(x, before))
    assert any("drop_add_norm" in kind for kind in fused.decisions[0].plan.kinds)
    block.eval()
    near(fused(x, before), block(x, before), 1e-4)


@pytest.mark.parametrize("call, why", [(wrong_relu, "wrong_answer"), (slow_relu, ""), (no_relu, None)])
def test_what_is_wrong_slow_or_refused_is_not_taken(uncompiled, planted, call, why):
    planted(call)
    fused = warplap.fuse(lambda x: x.sin().relu().cos())
    x = r(64, 64)
    near(fused(x), x.sin().relu().cos(), 1e-6)
    (decision,) = fused.decisions
    assert decision.winner is None or not decision.winner.kinds
    lanes = [lane for lane in decision.contestants if lane.name == "planted"]
    # A word, then what it is about.
    assert [lane.why.partition(":")[0] for lane in lanes] == ([] if why is None else [why]), str(decision)


def test_what_is_fast_is_taken_drawn_and_found_again(uncompiled, planted, monkeypatch):
    planted(quick_relu)
    slow = torch.library.custom_op("warplap_test::slow", slow_relu, mutates_args=(), schema="(Tensor x) -> Tensor")
    slow.register_fake(torch.empty_like)
    monkeypatch.setitem(node_kinds._WORDS, torch.ops.warplap_test.slow.default, "relu")
    fn = lambda x: torch.ops.warplap_test.slow.default(x.sin()).cos()
    fused = warplap.fuse(fn)
    x = r(64, 64)
    near(fused(x), x.sin().relu().cos(), 1e-6)
    (decision,) = fused.decisions
    assert decision.winner is not None and decision.winner.kinds == ("planted",), str(decision)
    assert "─ warplap planted" in str(decision)
    torch._dynamo.reset()
    again = warplap.fuse(fn)
    with warplap.replay():
        near(again(x), x.sin().relu().cos(), 1e-6)
    assert again.decisions[0].how == "from the store"
    assert again.decisions[0].winner.kinds == ("planted",)


def test_who_replays_measures_nothing_and_gets_inductor(uncompiled):
    block, (x, before) = Block().eval(), (r(2, 8, 32), r(2, 8, 32))
    with warplap.replay(), torch.no_grad():
        fused = warplap.fuse(block)
        near(fused(x, before), block(x, before), 1e-4)
        assert fused.decisions[0].how.startswith("the mode is replay")
    with warplap.off(), torch.no_grad():
        torch._dynamo.reset()
        fused = warplap.fuse(block)
        near(fused(x, before), block(x, before), 1e-4)
        assert fused.decisions[0].how == "the mode is off"
    assert not warplap.store.ls()


def test_a_graph_that_writes_into_its_inputs_is_raced_on_copies(uncompiled):
    cache = torch.zeros(4, 16)

    def fn(x):
        cache[1] = x.sum(0)
        return F.softmax(x, dim=-1)

    fused = warplap.fuse(fn)
    x = r(8, 16)
    near(fused(x), F.softmax(x, dim=-1), 1e-6)
    near(cache[1], x.sum(0), 1e-6)
    assert not cache[0].any() and fused.decisions[0].how == "raced"


@pytest.mark.parametrize("inside", [True, False])
def test_autocast_holds_around_a_graph_and_inside_of_it(uncompiled, inside):
    layer = torch.nn.Linear(32, 16)
    cast = lambda: torch.autocast("cpu", torch.bfloat16)

    def fn(x):
        before = F.gelu(layer(x))
        with cast():
            return before, layer(x)

    plain = lambda x: (F.gelu(layer(x)), layer(x) * 2)
    x = r(8, 32)
    if inside:
        fused = warplap.fuse(fn)
        got, right = fused(x), fn(x)
        assert len(fused.decisions[0].plan.acts) == 2 and fused.decisions[0].how == "raced"
    else:
        fused = warplap.fuse(plain)
        with cast():
            got, right = fused(x), plain(x)
        assert "cast=bfloat16" in fused.decisions[0].key
    for a, b in zip(got, right):
        assert a.dtype == b.dtype
        near(a, b, 1e-4)


def test_gradients_that_are_turned_off_inside_stay_off(uncompiled):
    layer = torch.nn.Linear(32, 16)

    def fn(x):
        with torch.no_grad():
            y = layer(x)
        return F.softmax(layer(x) + y, dim=-1)

    fused = warplap.fuse(fn)
    x = r(8, 32)
    near(fused(x), fn(x), 1e-4)
    for a, b in zip(*(torch.autograd.grad(f(x).square().sum(), layer.weight) for f in (fused, fn))):
        near(a, b, 1e-4)


def test_a_tie_is_inductors(uncompiled, planted):
    planted(quick_relu)
    fused = warplap.fuse(lambda x: x.sin().relu().cos())
    x = r(512, 512)
    near(fused(x), x.sin().relu().cos(), 1e-6)
    (decision,) = fused.decisions
    us = {lane.name: lane.us for lane in decision.contestants}
    taken = decision.winner is not None and decision.winner.kinds == ("planted",)
    assert not taken or us["planted"] < 0.99 * us["inductor"], str(decision)


def test_by_name_with_inductor_itself():
    torch._dynamo.reset()
    warplap.configure(in_memory=True, budget=0.5)
    norm = torch.nn.LayerNorm(256)
    fn = torch.compile(lambda x, y: F.gelu(norm(x + y)), backend="warplap", dynamic=False)
    x, y = r(64, 256), r(64, 256)
    near(fn(x, y), F.gelu(norm(x + y)), 1e-4)
    decision = warplap.graphs()[-1]
    assert {lane.name for lane in decision.contestants} >= {"inductor", "eager", "norm", "norm_of_sum"}, str(decision)
    assert all(lane.us for lane in decision.contestants), str(decision)


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match="fn: is a int, expected a function or a module"):
        warplap.fuse(3)


def test_sizes_that_change_are_compiled_once():
    torch._dynamo.reset()
    warplap.configure(in_memory=True, budget=0.3)
    fused = warplap.fuse(lambda x, y: F.softmax(x + y, dim=-1), dynamic=True)
    for rows in (40, 50, 70):
        x, y = r(rows, 64), r(rows, 64)
        near(fused(x, y), F.softmax(x + y, dim=-1), 1e-5)
    assert len(fused.decisions) == 1


def test_modes_of_the_compiler_are_told_apart_and_wrong_ones_refused():
    with pytest.raises(ValueError, match="mode: is 'quick', expected one of"):
        warplap.fuse(lambda x: x, mode="quick")
    assert forms.Inductor(None, None).name == forms.Inductor("default", None).name == ""
    names = {forms.Inductor(mode, None).name for mode in ("reduce-overhead", "max-autotune")}
    assert len(names | {forms.Inductor(None, {"max_autotune": True}).name, ""}) == 4


def test_inductor_answers_where_a_race_says_nothing_of_it():
    from warplap.fusing.race import choice

    lane = lambda name: SimpleNamespace(name=name, kinds=(), candidate=(name, {}, ""))
    lanes = [lane("inductor"), lane("eager")]
    trial = lambda name, **more: {"variant": name, "config": {}, **more}
    eager = trial("eager", measured={"median_us": 10.0})
    for inductor, winner in [
        (trial("inductor", rejected={"why": "launch_failed", "reason": "no luck"}), "inductor"),
        (trial("inductor", measured={"median_us": 10.05}), "inductor"),
        (trial("inductor", measured={"median_us": 11.0}), "eager"),
    ]:
        result = {"edition": {"trials": [inductor, eager], "verdict": {"median_us": 10.0}}}
        assert choice._ahead(lanes, 1, result).name == winner
        assert "no luck" in choice._contestants(lanes, result)[0].why or "measured" in inductor
