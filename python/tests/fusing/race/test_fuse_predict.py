"""What graphs of other sizes and their parts tell of one that was not raced."""

from __future__ import annotations

import time

import pytest
import torch
from conftest import near
from fuse_graphs import planted, quick_relu, r, slow_relu, traced, uncompiled, wrong_relu  # noqa: F401

import warplap
from warplap.fusing.matching import node_kinds
from warplap.fusing.plan import Plan
from warplap.fusing.race import forms, parts, predict


def sized(n, worth, **more):
    """A size of three choices whose wholes are worth so much of their parts."""
    parts = {"inductor": 10.0 * n, "eager": 10.0 * n, "norm": 6.0 * n}
    return predict.Size(parts, {name: parts[name] * w for name, w in zip(parts, worth)} | more)


def test_a_new_size_is_told_where_others_leave_no_doubt():
    parts = {"inductor": 30.0, "eager": 30.0, "norm": 18.0}
    prediction = predict.guess([sized(1, (0.8, 1.0, 0.9)), sized(2, (0.82, 1.0, 0.9))], parts)
    assert prediction.winner == "norm" and prediction.sizes == 2 and 0.02 < prediction.off < 0.03
    assert prediction.seconds["norm"] == pytest.approx(16.2) and prediction.seconds["eager"] == pytest.approx(30.0)
    # One size says nothing; what varied by more than the lead, who never raced and what is far away do not either.
    assert predict.guess([sized(1, (0.8, 1.0, 0.9))], parts) is None
    assert predict.guess([sized(1, (0.5, 1.0, 0.9)), sized(2, (0.9, 1.0, 0.9))], parts) is None
    assert predict.guess([sized(1, (0.54, 1.0, 0.9)), sized(2, (0.54, 1.0, 0.9))], parts) is None  # a tie
    assert predict.guess([sized(1, (0.8, 1.0, 0.9)), sized(2, (0.8, 1.0, 0.9))], parts | {"norm + linear": 9.0}) is None
    assert predict.guess([sized(1, (0.8, 1.0, 0.9))] * 2, {name: 9 * s for name, s in parts.items()}) is None


def test_a_third_size_of_a_graph_is_not_raced(uncompiled, planted, monkeypatch):
    planted(quick_relu)
    slow = torch.library.custom_op("warplap_test::slower", slow_relu, mutates_args=(), schema="(Tensor x) -> Tensor")
    slow.register_fake(torch.empty_like)
    monkeypatch.setitem(node_kinds._WORDS, torch.ops.warplap_test.slower.default, "relu")
    fused = warplap.fuse(lambda x: torch.ops.warplap_test.slower.default(x.sin()).cos(), dynamic=False)
    # A busy machine may hold up a part; how much parts vary here is not what is asked.
    guess = predict.guess
    near_to = lambda own, seconds: min(max(seconds, own / 2), own * 2)
    within = lambda sizes, parts: {name: near_to(sizes[0].parts.get(name, t), t) for name, t in parts.items()}
    monkeypatch.setattr(predict, "guess", lambda sizes, parts: guess(sizes, within(sizes, parts) if sizes else parts))
    for n in (16, 32):
        fused(r(n, 64))
    for known in predict._known.values():  # the planted call takes microseconds: what they were worth is noise
        known[:] = [known[0], known[0]]
    x = r(64, 64)
    near(fused(x), x.sin().relu().cos(), 1e-6)
    how = [d.how for d in fused.decisions]
    assert how[:2] == ["raced", "raced"] and how[2].startswith("told by its parts: 2 other sizes"), how
    assert fused.decisions[2].winner.kinds == ("planted",)
    assert "as a whole, told by the parts" in fused.explain() and "not raced" in fused.explain()
    assert [row["op"] for row in warplap.store.ls()].count("graph") == 2, "what was not measured is not kept"


def test_who_is_told_is_proved_and_races_where_it_is_wrong(uncompiled, planted, monkeypatch):
    planted(wrong_relu)
    fused = warplap.fuse(lambda x: x.sin().relu().cos(), dynamic=False)
    sure = predict.Guess("planted", {"planted": 1e-6, "inductor": 1e-3, "eager": 1e-3}, 0.02, 2)
    monkeypatch.setattr(predict, "guess", lambda sizes, parts: sure)
    x = r(64, 64)
    near(fused(x), x.sin().relu().cos(), 1e-6)
    assert [d.how for d in fused.decisions] == ["raced"]


class _Slow(torch.autograd.Function):
    """As it is, and slow where gradients are asked for."""

    @staticmethod
    def forward(ctx, x):
        return x.relu()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(0.01)
        return grad


@pytest.mark.parametrize("trained", [False, True])
def test_a_part_of_a_step_is_timed_with_its_gradients(planted, trained):
    planted(_Slow.apply)
    module, inputs = traced(lambda x: x.sin().relu().cos(), r(8, 8).requires_grad_(trained))
    plan = Plan(module)
    alone, together = parts.timed(plan, inputs)
    assert (together["planted"] > 0.01) == trained and all(seconds < 0.01 for seconds in alone.values())
    with torch.no_grad():
        assert parts.timed(plan, inputs)[1]["planted"] < 0.01


def test_on_a_cpu_the_wall_clock_times_parts_whatever_is_recorded(monkeypatch):
    module, inputs = traced(torch.nn.LayerNorm(16), r(3, 16))
    monkeypatch.setattr(parts, "_device_seconds", None)
    alone, together = parts.timed(Plan(module), inputs, recorded=True)
    assert set(together) == {"norm"} and all(0 < t < 1 for t in (*alone.values(), *together.values()))


def test_who_records_cuda_graphs_says_so():
    assert forms.Inductor("reduce-overhead", None).records and forms.Inductor("max-autotune", None).records
    assert forms.Inductor(None, {"triton.cudagraphs": True}).records
    for mode in (None, "default", "max-autotune-no-cudagraphs"):
        assert not forms.Inductor(mode, None).records
