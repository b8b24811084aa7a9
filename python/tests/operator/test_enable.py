"""``warplap.enable()``: programs that know nothing of warplap, with torch's functions replaced."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from conftest import near

import warplap
from warplap.operator import enable as operator_enable
from warplap.operator.call import call_race

r = torch.randn
STOCK = {place: getattr(*place) for place in ((one.owner, one.name) for one in operator_enable._ALL)}


@pytest.fixture(autouse=True)
def undone():
    yield
    warplap.disable()
    assert all(getattr(*place) is stock for place, stock in STOCK.items())


@pytest.fixture
def asked(monkeypatch):
    """Which operators of ours were asked, in order; whose call is faster is never the question."""
    names = []
    monkeypatch.setattr(call_race.CallRace, "_faster", lambda self, args, kwargs: self._ours)

    def watch(module, name):
        own = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, **k: names.append(name) or own(*a, **k))

    for name in ("linear", "matmul", "attention", "softmax", "norm", "cross_entropy"):
        watch(operator_enable.functions, name)
    return names


def labels(rows=6):
    return torch.arange(rows) % 7


CALLS = {
    "linear": (lambda x: F.linear(x, torch.ones(5, 16), torch.ones(5)), "linear"),
    "layer": (torch.nn.Linear(16, 5), "linear"),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), "attention"),
    "named": (lambda x: F.scaled_dot_product_attention(query=x, key=x, value=x), "attention"),
    "softmax": (lambda x: F.softmax(x, dim=-1), "softmax"),
    "torch.softmax": (lambda x: torch.softmax(x, -1), "softmax"),
    "rms_norm": (lambda x: F.rms_norm(x, (16,), torch.ones(16)), "norm"),
    "layer_norm": (torch.nn.LayerNorm(16), "norm"),
    "cross_entropy": (lambda x: F.cross_entropy(x.reshape(-1, 16), labels(48)), "cross_entropy"),
    "matmul": (lambda x: torch.matmul(x, x.transpose(-1, -2)), "matmul"),
    "mm": (lambda x: torch.mm(x[0, 0], torch.ones(16, 3)), "matmul"),
    "bmm": (lambda x: torch.bmm(x[0], torch.ones(3, 16, 2)), "matmul"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_torchs_is_ours_with_torchs_answer_type_and_gradient(name, asked):
    fn, operator = CALLS[name]
    x = r(2, 3, 8, 16)
    for wants in (False, True):
        own, mine = (x.clone().requires_grad_(wants) for _ in range(2))
        right = fn(own)
        asked.clear()
        with warplap.enable():
            got = fn(mine)
        assert asked == [operator]
        assert got.dtype == right.dtype and near(got, right, 1e-4)
        if wants:
            (mine_grad,), (own_grad,) = (torch.autograd.grad(y.square().sum(), (t,)) for y, t in ((got, mine), (right, own)))
            near(mine_grad, own_grad, 1e-3)


LEFT = {
    "double": lambda: F.linear(r(2, 8).double(), r(3, 8).double()),
    "two types": lambda: F.linear(torch.ones(2, 8), torch.ones(3, 8), bias=None),
    "other dimension": lambda: torch.softmax(torch.ones(3, 4), 0),
    "a type on its way": lambda: F.softmax(torch.ones(3, 4), -1, dtype=torch.float64),
    "weights of classes": lambda: F.cross_entropy(torch.ones(3, 4), torch.tensor([0, 1, 2]), torch.ones(4)),
    "shares": lambda: F.cross_entropy(torch.ones(3, 4), torch.full((3, 4), 0.25)),
    "two dimensions": lambda: F.layer_norm(torch.ones(3, 4), (3, 4)),
    "a vector": lambda: torch.matmul(torch.ones(3), torch.ones(3)),
    "whole numbers": lambda: torch.matmul(torch.ones(3, 3).int(), torch.ones(3, 3).int()),
    "out": lambda: torch.mm(torch.ones(3, 3), torch.ones(3, 3), out=torch.zeros(3, 3)),
    "nothing": lambda: F.linear(torch.ones(0, 8), torch.ones(3, 8)),
    "no columns": lambda: torch.matmul(torch.ones(3, 0), torch.ones(0, 2)),
    "three dimensions": lambda: F.scaled_dot_product_attention(*[torch.ones(2, 4, 8)] * 3),
}


@pytest.mark.parametrize("call", LEFT.values(), ids=LEFT)
def test_what_is_not_ours_stays_torchs(call):
    torch.manual_seed(1)
    right = call()
    torch.manual_seed(1)
    with warplap.enable():
        got = call()
    assert got.dtype == right.dtype and got.shape == right.shape
    near(got.double(), right.double(), 1e-5)


def test_mistakes_are_told_in_torchs_words():
    for call in (
        lambda: F.linear(r(2, 8), r(3, 9)),
        lambda: torch.mm(r(2, 8), r(3, 9)),
        lambda: torch.bmm(r(2, 3, 4), r(3, 4, 5)),
        lambda: F.layer_norm(r(2, 8), (9,)),
        lambda: F.linear(r(2, 8)),
    ):
        with pytest.raises((RuntimeError, TypeError)) as theirs:
            call()
        with warplap.enable(), pytest.raises((RuntimeError, TypeError)) as mine:
            call()
        assert type(mine.value) is type(theirs.value) and str(mine.value) == str(theirs.value)


def test_autocast_and_transforms_hold():
    layer, x = torch.nn.Linear(16, 5), r(4, 16)
    with torch.autocast("cpu", torch.bfloat16):
        right = layer(x)
        with warplap.enable():
            got = layer(x)
    assert got.dtype == right.dtype == torch.bfloat16 and near(got, right)
    square = lambda w: F.linear(x, w).square().sum()
    weights = r(3, 5, 16)
    right = torch.vmap(torch.func.grad(square))(weights)
    with warplap.enable():
        near(torch.vmap(torch.func.grad(square))(weights), right, 1e-4)


def test_gradients_of_gradients_are_torchs():
    layer = torch.nn.Linear(16, 5)

    def penalty():
        x = torch.linspace(-1, 1, 64).reshape(4, 16).requires_grad_()
        (slope,) = torch.autograd.grad(torch.tanh(layer(x)).sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), layer.weight)[0]

    right = penalty()
    with warplap.enable():
        near(penalty(), right, 1e-4)


def test_a_compiler_sees_torchs_own_functions():
    torch._dynamo.reset()
    seen = []

    def keep(module, inputs):
        seen.extend(node.target for node in module.graph.nodes if node.op == "call_function")
        return module.forward

    with warplap.enable():
        compiled = torch.compile(lambda x, w: F.softmax(F.linear(x, w), -1), backend=keep, fullgraph=True)
        x, w = r(4, 16), r(5, 16)
        got = compiled(x, w)
    near(got, F.softmax(F.linear(x, w), -1), 1e-5)
    assert seen == [F.linear, F.softmax]


def test_it_is_undone_and_says_what_it_did():
    with warplap.enable("linear", "softmax") as what:
        assert F.linear is not STOCK[F, "linear"] and torch.mm is STOCK[torch, "mm"]
        assert repr(what).startswith("warplap.enable(): stands in for torch.nn.functional.linear, ")
        with warplap.enable() as more:
            assert torch.mm is not STOCK[torch, "mm"] and "linear" not in repr(more)
            assert "already" in repr(warplap.enable())
        assert F.linear is not STOCK[F, "linear"] and torch.mm is STOCK[torch, "mm"]
    assert F.linear is STOCK[F, "linear"]
    assert F.linear.__name__ == "linear"
    with pytest.raises(ValueError, match="'conv2d' is none of bmm, cross_entropy"):
        warplap.enable("conv2d")


def test_what_races_calls_torchs_own_functions(asked):
    with warplap.enable():
        F.linear(r(8, 16), r(4, 16))
        F.scaled_dot_product_attention(*[r(1, 2, 8, 16)] * 3)
    assert asked == ["linear", "attention"]
    raced = {row["op"] for row in warplap.store.ls()}
    assert {"gemm", "attention"} <= raced


def test_calls_of_ours_race_torchs_own_functions_while_these_are_replaced(asked):
    x, w = r(8, 16), torch.ones(16)
    with warplap.enable():
        near(warplap.norm(x, w, kind="rms"), STOCK[F, "rms_norm"](x, (16,), w, 1e-5), 1e-5)
        near(warplap.norm(x, w, kind="layer"), STOCK[F, "layer_norm"](x, (16,), w), 1e-5)
        near(warplap.softmax(x), x.softmax(-1), 1e-5)
    assert asked == []
    assert {"norm", "softmax"} <= {row["op"] for row in warplap.store.ls()}


def test_models_of_transformers_attend_by_it(asked):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=97,
    )  # fmt: skip
    ids = torch.arange(12)[None] % 97
    mask = torch.ones_like(ids)
    mask[:, :3] = 0
    torch.manual_seed(5)
    own = copy.deepcopy(config)
    right = transformers.LlamaForCausalLM._from_config(own, attn_implementation="sdpa").eval()
    with warplap.enable() as what, torch.no_grad():
        assert 'attn_implementation="warplap"' in repr(what)
        model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="warplap").eval()
        model.load_state_dict(right.state_dict())
        for extra_inputs in ({}, {"attention_mask": mask}):
            got = model(input_ids=ids, **extra_inputs).logits
            warplap.disable()
            near(got, right(input_ids=ids, **extra_inputs).logits, 1e-4)
            warplap.enable()
        assert asked.count("attention") == 4 and asked.count("linear") >= 28
        warplap.disable()
        near(model.generate(ids, max_new_tokens=3, do_sample=False), right.generate(ids, max_new_tokens=3, do_sample=False))


def test_small_calls_are_whose_that_are_faster_and_right_by_either():
    x, w = r(2, 8), r(3, 8)
    right = F.linear(x, w)
    with warplap.tuning(), warplap.enable("linear"), torch.no_grad():
        for _ in range(3):
            near(F.linear(x, w), right)
        assert F.linear(x, weight=w).shape == right.shape
