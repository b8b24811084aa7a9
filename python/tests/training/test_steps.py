"""A call with its gradients is raced whole: our node against torch's own function, and who wins answers."""

from __future__ import annotations

import logging
import time

import pytest
import torch
import torch.nn.functional as F
from conftest import Seen, near
from torch.utils.checkpoint import checkpoint

import warplap
from warplap.nn import Linear
from warplap.ops.attention import dense
from warplap.ops.products import linear as layer, matmul as products
from warplap.training import steps


def leaves(*shapes, dtype=torch.float32):
    return [torch.randn(*shape, dtype=dtype).requires_grad_() for shape in shapes]


def slowly(call):
    def slow(*args):
        time.sleep(0.002)
        return call(*args)

    return slow


@pytest.fixture(autouse=True)
def short_races(monkeypatch):
    """The budgets of tests are short, and machines that test are busy."""
    monkeypatch.setattr(steps, "_RUNS", 1)


@pytest.fixture
def slow_node(monkeypatch):
    monkeypatch.setattr(layer, "linear_node", slowly(layer.linear_node))


@pytest.fixture
def slow_torch(monkeypatch):
    """torch's layer takes longer than ours, and whatever won a race is believed, busy machine or not."""

    class Slow:
        linear = staticmethod(slowly(F.linear))

    warplap.configure(budget=0.5)
    monkeypatch.setattr(layer, "F", Slow)
    monkeypatch.setattr(steps, "_holds", lambda result: True)


@pytest.fixture(params=["ours", "torch"])
def winner(request, monkeypatch):
    monkeypatch.setattr(steps.Steps, "_is_torchs", lambda *_: request.param == "torch")
    return request.param


def races():
    return [row for row in warplap.store.ls() if row["op"].startswith("train_")]


def test_where_torch_wins_the_call_is_torchs_own_and_the_next_start_knows_it(slow_node, own_store, caplog):
    x, w, b = leaves((6, 7), (5, 7), (5,))
    y = warplap.linear(x, w, b)
    assert type(y.grad_fn).__name__ == "AddmmBackward0"
    assert layer._steps.get((x, w, b), (None,)) is F.linear
    (race,) = races()
    assert race["op"] == "train_linear" and race["winner"] == "torch" and "wants=xwb" in race["key"]
    warplap.configure(store=own_store)  # nothing is kept but the store
    assert not len(layer._steps)
    with caplog.at_level(logging.INFO, "warplap"):
        again = warplap.linear(x, w, b)
    assert type(again.grad_fn).__name__ == "AddmmBackward0" and "racing" not in caplog.text


def test_where_our_node_wins_it_answers_and_tensors_that_lie_otherwise_race_for_themselves(slow_torch):
    x, w, b = leaves((6, 7), (5, 7), (5,))
    assert type(warplap.linear(x, w, b).grad_fn).__name__ == "linearBackward"
    assert len(races()) == 1
    turned = torch.randn(7, 6).t().requires_grad_()
    warplap.linear(turned, w, b)
    first, other = sorted(races(), key=lambda race: "turned" in race["key"])
    assert "turned" not in first["key"] and "turned=10" in other["key"]


def test_a_node_with_a_wrong_gradient_never_wins(slow_torch, monkeypatch):
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, bias):
            ctx.save_for_backward(x, w)
            return F.linear(x, w, bias)

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad @ w, 1.01 * (grad.t() @ x), grad.sum(0)

    monkeypatch.setattr(layer, "linear_node", Wrong.apply)
    x, w, b = leaves((6, 7), (5, 7), (5,))
    assert type(warplap.linear(x, w, b).grad_fn).__name__ == "AddmmBackward0"
    (race,) = races()
    (edition,) = warplap.store.show(race["hash"])["editions"]
    assert "result 2 differs" in str(edition["trials"])


def test_a_step_too_long_for_a_race_is_torchs(monkeypatch):
    monkeypatch.setattr(steps, "_RUNS", 1e9)
    x, w = leaves((6, 7), (5, 7))
    assert type(warplap.linear(x, w).grad_fn).__name__ == "MmBackward0"
    assert not warplap.store.ls()  # nor was anything else raced for it


@pytest.mark.parametrize("mode", ["off", "replay", "record", "background"])
def test_other_modes_measure_nothing(mode):
    a, b = leaves((6, 7), (7, 5))
    with warplap.set_mode(mode):
        c = warplap.matmul(a, b)
        answers = "MmBackward0" if mode == "background" else "matmulBackward"
        assert type(c.grad_fn).__name__ == answers and not races()
        near(torch.autograd.grad(c.sum(), a)[0], b.detach().sum(1).expand(6, 7))
    warplap.matmul(a, b)
    assert len(races()) == 1


def test_replay_answers_as_the_store_says(slow_node):
    x, w = leaves((6, 7), (5, 7))
    warplap.linear(x, w)
    with warplap.replay():
        assert type(warplap.linear(x, w).grad_fn).__name__ == "MmBackward0"


def test_a_key_is_a_problem_with_what_is_wanted_of_it():
    x, w, b = leaves((6, 7), (5, 7), (5,))
    for call in (
        lambda: warplap.linear(x, w, b),
        lambda: warplap.linear(x.detach(), w, b),
        lambda: warplap.linear(x, w),
        lambda: warplap.linear(x, w, b, "tanh"),
        lambda: warplap.linear(x.reshape(2, 3, 7), w, b),
        lambda: warplap.linear(x, w, b),
    ):
        call()
    assert len(races()) == 5
    with torch.no_grad():
        warplap.linear(x, w, b, "relu")
    warplap.linear(x.detach().reshape(2, 3, 7), w.detach())
    assert len(races()) == 5


def test_sizes_that_change_share_a_race():
    (w,) = leaves((5, 7))
    for rows in (33, 57, 91):
        warplap.linear(torch.randn(rows, 7), w)
    assert len(races()) == 1


def test_a_race_leaves_the_callers_random_numbers_and_gradients_alone():
    layer, x = Linear(7, 5, activation="gelu"), torch.randn(6, 7)
    before, stamp = torch.get_rng_state(), layer.weight._version
    layer(x)
    assert len(races()) == 1 and torch.equal(before, torch.get_rng_state())
    assert layer.weight.grad is None and layer.weight._version == stamp


def test_a_kink_falls_on_the_same_elements_for_everyone():
    for rows in (3, 300):
        args = steps.drawn((torch.empty(rows, 768), torch.empty(512, 768), torch.empty(512)), F.linear)
        x, w, b, along = args
        y = F.linear(x, w, b)
        assert torch.equal(y.double(), F.linear(x.double(), w.double(), b.double())) and 0.1 < y.std() < 10
        assert along.shape == y.shape and along.is_contiguous()


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_who_traces_casts_or_watches_is_served(winner):
    x, w, b = leaves((6, 7), (5, 7), (5,))
    right = F.linear(x, w, b)
    near(warplap.linear(x, w, b).detach(), right.detach())
    with Seen() as seen:
        warplap.linear(x, w, b)
    assert any("warplap.linear" in name for name in seen.names), seen.names
    traced = torch.fx.experimental.proxy_tensor.make_fx(lambda x: warplap.linear(x, w, b))(x)
    assert "warplap.linear" in traced.code
    with torch.autocast("cpu", torch.bfloat16):
        cast = warplap.linear(x, w, b)
    assert cast.dtype == torch.bfloat16
    near(torch.autograd.grad(cast.float().sum(), w)[0].bfloat16(), x.detach().sum(0).expand(5, 7))
    grads = torch.func.grad(lambda w: warplap.linear(x, w, b).sum())(w)
    near(grads, torch.autograd.grad(right.sum(), w)[0])
    layer = Linear(7, 5)
    layer(x)
    traced = torch.jit.trace(layer, (x.detach(),), check_trace=False)
    assert "warplap::linear" in str(traced.inlined_graph)


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"])
def test_gradients_of_gradients_are_torchs_whoever_wins(winner, activation):
    x, w, b = inputs = leaves((2, 3, 7), (5, 7), (5,))
    act = {None: lambda y: y, "gelu_tanh": lambda y: F.gelu(y, approximate="tanh")}.get(activation)
    act = act or getattr(torch, activation, None) or getattr(F, activation)
    ours, right = warplap.linear(x, w, b, activation), act(F.linear(x, w, b))
    near(ours.detach(), right.detach())
    firsts = [torch.autograd.grad(y.square().sum(), inputs, create_graph=True) for y in (ours, right)]
    seconds = [torch.autograd.grad(sum(g.square().sum() for g in first), inputs) for first in firsts]
    for mine, theirs in zip((*firsts[0], *seconds[0]), (*firsts[1], *seconds[1])):
        near(mine.detach(), theirs.detach(), 1e-4)


@pytest.mark.parametrize("reentrant", [False, True])
def test_the_first_call_may_be_one_of_a_checkpoint(reentrant):
    x, w = leaves((6, 7), (5, 7))
    checkpoint(lambda x, w: warplap.linear(x, w).relu(), x, w, use_reentrant=reentrant).sum().backward()
    y, v = x.detach().clone().requires_grad_(), w.detach().clone().requires_grad_()
    F.linear(y, v).relu().sum().backward()
    near(x.grad, y.grad)
    near(w.grad, v.grad)
    assert len(races()) == 1


def test_hooks_see_what_the_call_keeps_and_nothing_of_the_race():
    a, b = leaves((6, 7), (7, 5))
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda s: packed.append(s) or s, lambda s: s):
        warplap.matmul(a, b)
    assert len(packed) == 2 and len(races()) == 1


def test_wrong_arguments_are_refused_in_our_words_after_a_race_too(winner):
    x, w, b = leaves((6, 7), (5, 7), (5,))
    warplap.linear(x, w, b)
    with pytest.raises(ValueError, match="^bias: has shape"):
        warplap.linear(x, w, b[:1])
    with pytest.raises(ValueError, match="^x: has shape"):
        warplap.linear(x[:, :6], w, b)
    with pytest.raises(ValueError, match="activation"):
        warplap.linear(x, w, b, "softplus")
    assert warplap.linear(x.double(), w.double()).dtype == torch.float64
    with pytest.raises(TypeError, match="^w: holds"):
        warplap.linear(x, w.detach().half().requires_grad_(), b)
    with pytest.raises(TypeError):
        warplap.linear(x, "w")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "shapes", [((6, 7), (7, 5)), ((2, 3, 7), (7, 5)), ((7,), (7, 5)), ((6, 7), (7,)), ((7,), (7,))]
)
def test_products_of_every_form_have_their_gradients(winner, shapes, dtype):
    a, b = inputs = leaves(*shapes, dtype=dtype)
    ours, right = warplap.matmul(a, b), torch.matmul(a, b)
    assert ours.shape == right.shape
    for mine, theirs in zip(torch.autograd.grad(ours.sum(), inputs), torch.autograd.grad(right.sum(), inputs)):
        near(mine, theirs)


class Full(RuntimeError):
    """As a device's memory is said to be full."""


STEPS = {
    "matmul": (products._steps, lambda a: warplap.matmul(a, a)),
    "linear": (layer._steps, lambda a: warplap.linear(a, a, a[0].detach())),
    "attention": (dense._training_of._steps, lambda a: warplap.attention(*[a[None, None]] * 3)),
}


@pytest.fixture(params=STEPS)
def chosen_step(request, monkeypatch):
    """What sets the choice for an operator's step, and a call that has one."""
    owner, call = STEPS[request.param]
    a = torch.randn(8, 8).requires_grad_()
    owner._chosen.clear()
    call(a)
    assert len(owner) == 1
    return lambda chosen: monkeypatch.setattr(owner, "get", lambda *_: chosen), lambda: call(a)


def test_an_error_inside_a_step_reaches_the_caller_and_nothing_runs_twice(chosen_step):
    choose, call = chosen_step
    ran = []

    def fails(*tensors):
        ran.append(tensors)
        raise Full("out of memory")

    choose(fails)
    with pytest.raises(Full, match="out of memory"):
        call()
    assert len(ran) == 1


def test_a_refusal_of_ours_goes_the_general_way(chosen_step):
    choose, call = chosen_step
    right, refused = call(), []

    def refuses(*tensors):
        refused.append(tensors)
        raise NotImplementedError("no problem says it")

    choose(refuses)
    near(call().detach(), right.detach())
    assert refused  # attention asks once more on the general way


def test_what_does_not_belong_together_is_refused_in_our_words_behind_a_choice():
    x, w = leaves((6, 7), (5, 7))
    warplap.linear(x, w), warplap.matmul(x, w.t())
    with pytest.raises(TypeError, match="w: holds torch.float64, expected torch.float32 like x"):
        warplap.linear(x, w.detach().double())
    with pytest.raises(TypeError, match="b: holds torch.float64, expected torch.float32 like a"):
        warplap.matmul(x, w.detach().t().double())
