"""Fusion boundaries by measurement: what is found in a traced graph, how it is rewritten, raced, proved and kept."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

import warplap
from warplap._fusing import forms, model, parts, templates, whole, words
from warplap._fusing.plan import Plan
from warplap._fusing.templates import Found

from conftest import near

r = torch.randn


class Rms(torch.nn.Module):
    """As Llama's models write it out."""

    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        h = x.to(torch.float32)
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * h.to(x.dtype)


class Block(torch.nn.Module):
    """A transformer's block with a norm by hand, a layer norm, attention written out, a gated and a plain layer."""

    def __init__(self, width=32, heads=2, dropout=0.0):
        super().__init__()
        self.heads = heads
        self.first, self.second, self.third = Rms(width), torch.nn.LayerNorm(width), torch.nn.RMSNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width, bias=False)
        self.up, self.down = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)
        self.drop = torch.nn.Dropout(dropout)

    def forward(self, x, before):
        x = x + before
        b, s, d = x.shape
        q, k, v = self.qkv(self.first(x)).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-2, -1) / (d // self.heads) ** 0.5
        seen = torch.softmax(scores, dim=-1) @ v + F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(b, s, d))
        x = x + self.drop(self.down(F.gelu(self.up(self.second(x)))))
        return self.third(x)


def traced(fn, *args):
    """The graph that torch's tracer makes of a function, and its inputs."""
    found = []

    def keep(module, inputs):
        found.append((module, inputs))
        return module.forward

    torch._dynamo.reset()
    torch.compile(fn, backend=keep, fullgraph=True)(*args)
    return found[0]


@pytest.fixture
def uncompiled(monkeypatch):
    """Inductor's place taken by the graph itself: no compiler runs, everything else is real."""
    torch._dynamo.reset()
    monkeypatch.setattr(forms.Inductor, "here", lambda self, module, inputs: module.forward)
    warplap.configure(in_memory=True, budget=0.5)
    model.forget()


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
    (found,) = plan.kinds["norm"]
    near(plan.rewritten([found])(*inputs)[0], fn(x, w))


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
    run, asked, made = plan.rewritten(partition.covers), [], warplap._norm._warplap.Prepared
    monkeypatch.setattr(warplap._norm, "_warplap", SimpleNamespace(Prepared=lambda t: asked.append(t) or made(t)))
    warplap._norm.prepared.cache_clear()
    right = norm(inputs[0] + inputs[1]).relu()
    with warplap.off(), torch.set_grad_enabled(trained):
        got = run(*inputs)
        got = got[0] if isinstance(got, tuple) else got
    near(got, right, 1e-5)
    warplap._norm.prepared.cache_clear()
    assert [",sum=false" in text for text in asked] == [not trained], "backward passes read the sum"


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
    told = fused.explain()
    assert "raced as a whole" in told and "inductor" in told and "eager" in told and "µs" in told
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


@pytest.fixture
def planted(monkeypatch):
    """A template for relu, of whoever is asked for."""

    def plant(call):
        def look(node):
            if templates.word(node) == "relu":
                yield Found("planted", (node,), (node,), call, (node.args[0],))

        monkeypatch.setattr(templates, "TEMPLATES", [look])

    return plant


def _wrong(x):
    return x.relu() + 1e-2


def _slow(x):
    time.sleep(0.01)
    return x.relu()


def _refusing(x):
    raise NotImplementedError("not for me")


def _quick(x):
    return x.relu()


@pytest.mark.parametrize("call, why", [(_wrong, "wrong_answer"), (_slow, ""), (_refusing, None)])
def test_what_is_wrong_slow_or_refused_is_not_taken(uncompiled, planted, call, why):
    planted(call)
    fused = warplap.fuse(lambda x: x.sin().relu().cos())
    x = r(64, 64)
    near(fused(x), x.sin().relu().cos(), 1e-6)
    (decision,) = fused.decisions
    assert decision.winner is None or not decision.winner.kinds
    lanes = [lane for lane in decision.lanes if lane.name == "planted"]
    # A word, then what it is about.
    assert [lane.why.partition(":")[0] for lane in lanes] == ([] if why is None else [why]), str(decision)


def test_what_is_fast_is_taken_drawn_and_found_again(uncompiled, planted, monkeypatch):
    planted(_quick)
    slow = torch.library.custom_op("warplap_test::slow", _slow, mutates_args=(), schema="(Tensor x) -> Tensor")
    slow.register_fake(torch.empty_like)
    monkeypatch.setitem(words._WORDS, torch.ops.warplap_test.slow.default, "relu")
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


def test_a_graph_that_writes_into_its_inputs_is_torchs(uncompiled):
    cache = torch.zeros(4, 16)

    def fn(x):
        cache[1] = x.sum(0)
        return F.softmax(x, dim=-1)

    fused = warplap.fuse(fn)
    x = r(8, 16)
    near(fused(x), F.softmax(x, dim=-1), 1e-6)
    near(cache[1], x.sum(0), 1e-6)
    assert fused.decisions == [] and "Inductor runs them" in fused.explain()


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
        assert fused.decisions == [], "what holds for nodes after it is no graph of ours"
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
    planted(_quick)
    fused = warplap.fuse(lambda x: x.sin().relu().cos())
    x = r(512, 512)
    near(fused(x), x.sin().relu().cos(), 1e-6)
    (decision,) = fused.decisions
    us = {lane.name: lane.us for lane in decision.lanes}
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
    assert {lane.name for lane in decision.lanes} >= {"inductor", "eager", "norm", "norm_of_sum"}, str(decision)
    assert all(lane.us for lane in decision.lanes), str(decision)


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
    from warplap._fusing import choice

    lane = lambda name: SimpleNamespace(name=name, kinds=(), candidate=(name, {}, ""))
    lanes = [lane("inductor"), lane("eager")]
    trial = lambda name, **more: {"variant": name, "config": {}, **more}
    eager = trial("eager", measured={"median_us": 10.0})
    for inductor, winner in [
        (trial("inductor", rejected={"why": "launch_failed", "reason": "no luck"}), "inductor"),
        (trial("inductor", measured={"median_us": 10.05}), "inductor"),
        (trial("inductor", measured={"median_us": 11.0}), "eager"),
    ]:
        found = {"edition": {"trials": [inductor, eager], "verdict": {"median_us": 10.0}}}
        assert choice._ahead(lanes, 1, found).name == winner
        assert "no luck" in choice._lanes(lanes, found)[0].why or "measured" in inductor


def sized(n, worth, **more):
    """A size of three choices whose wholes are worth so much of their parts."""
    parts = {"inductor": 10.0 * n, "eager": 10.0 * n, "norm": 6.0 * n}
    return model.Size(parts, {name: parts[name] * w for name, w in zip(parts, worth)} | more)


def test_a_new_size_is_told_where_others_leave_no_doubt():
    parts = {"inductor": 30.0, "eager": 30.0, "norm": 18.0}
    told = model.guess([sized(1, (0.8, 1.0, 0.9)), sized(2, (0.82, 1.0, 0.9))], parts)
    assert told.winner == "norm" and told.sizes == 2 and 0.02 < told.off < 0.03
    assert told.seconds["norm"] == pytest.approx(16.2) and told.seconds["eager"] == pytest.approx(30.0)
    # One size says nothing; what varied by more than the lead, who never raced and what is far away do not either.
    assert model.guess([sized(1, (0.8, 1.0, 0.9))], parts) is None
    assert model.guess([sized(1, (0.5, 1.0, 0.9)), sized(2, (0.9, 1.0, 0.9))], parts) is None
    assert model.guess([sized(1, (0.54, 1.0, 0.9)), sized(2, (0.54, 1.0, 0.9))], parts) is None  # a tie
    assert model.guess([sized(1, (0.8, 1.0, 0.9)), sized(2, (0.8, 1.0, 0.9))], parts | {"norm + linear": 9.0}) is None
    assert model.guess([sized(1, (0.8, 1.0, 0.9))] * 2, {name: 9 * s for name, s in parts.items()}) is None


def test_a_third_size_of_a_graph_is_not_raced(uncompiled, planted, monkeypatch):
    planted(_quick)
    slow = torch.library.custom_op("warplap_test::slower", _slow, mutates_args=(), schema="(Tensor x) -> Tensor")
    slow.register_fake(torch.empty_like)
    monkeypatch.setitem(words._WORDS, torch.ops.warplap_test.slower.default, "relu")
    fused = warplap.fuse(lambda x: torch.ops.warplap_test.slower.default(x.sin()).cos(), dynamic=False)
    # A busy machine may hold up a part; how much parts vary here is not what is asked.
    guess = model.guess
    near_to = lambda own, seconds: min(max(seconds, own / 2), own * 2)
    within = lambda sizes, parts: {name: near_to(sizes[0].parts.get(name, t), t) for name, t in parts.items()}
    monkeypatch.setattr(model, "guess", lambda sizes, parts: guess(sizes, within(sizes, parts) if sizes else parts))
    for n in (16, 32):
        fused(r(n, 64))
    for known in model._known.values():  # the planted call takes microseconds: what they were worth is noise
        known[:] = [known[0], known[0]]
    x = r(64, 64)
    near(fused(x), x.sin().relu().cos(), 1e-6)
    how = [d.how for d in fused.decisions]
    assert how[:2] == ["raced", "raced"] and how[2].startswith("told by its parts: 2 other sizes"), how
    assert fused.decisions[2].winner.kinds == ("planted",)
    assert "as a whole, told by the parts" in fused.explain() and "not raced" in fused.explain()
    assert [row["op"] for row in warplap.store.ls()].count("graph") == 2, "what was not measured is not kept"


def test_who_is_told_is_proved_and_races_where_it_is_wrong(uncompiled, planted, monkeypatch):
    planted(_wrong)
    fused = warplap.fuse(lambda x: x.sin().relu().cos(), dynamic=False)
    sure = model.Guess("planted", {"planted": 1e-6, "inductor": 1e-3, "eager": 1e-3}, 0.02, 2)
    monkeypatch.setattr(model, "guess", lambda sizes, parts: sure)
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
