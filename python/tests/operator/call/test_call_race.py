"""Whose call is the faster one is seen once on a caller's tensors, and kept for tensors that lie so."""

from __future__ import annotations

import time

import pytest
import torch

import warplap
from warplap.operator.call.call_race import CallRace

X = torch.ones(3, 4)


class Answers:
    """A function that takes its time, and counts."""

    def __init__(self, seconds=0.0, gives=True):
        self.seconds, self.gives, self.calls = seconds, gives, 0

    def __call__(self, x, *more, **named):
        self.calls += 1
        time.sleep(self.seconds)
        return x if self.gives else None


@pytest.fixture(autouse=True)
def tuning():
    with warplap.tuning():
        yield


SLOW = 1e-4


@pytest.mark.parametrize("stock, ours, expected", [(0.0, SLOW, "stock"), (SLOW, 0.0, "ours")])
def test_the_faster_one_answers_and_is_asked_once(stock, ours, expected):
    sides = {"stock": Answers(stock), "ours": Answers(ours)}
    calls = CallRace(sides["stock"], sides["ours"])
    assert calls.choose((X, 1), {}) is sides[expected]
    counts = [side.calls for side in sides.values()]
    assert min(counts) >= 9, "both were timed"
    for _ in range(3):
        assert calls.choose((torch.zeros(3, 4), 1), {}) is sides[expected]
    assert [side.calls for side in sides.values()] == counts, "nothing is timed again"
    for other in [((X, 2), {}), ((X,), {"dim": 1}), ((torch.ones(4, 4), 1), {}), ((X.double(), 1), {})]:
        before = sides["ours"].calls
        calls.choose(*other)
        assert sides["ours"].calls > before or other[0][0].dtype == torch.float64, "another call is another question"
    warplap.configure(budget=1.0)
    calls.choose((X, 1), {})
    assert sides["stock"].calls > counts[0], "a setting was changed"


def test_long_calls_are_the_engines_alone():
    stock, ours = Answers(2e-3), Answers()
    assert CallRace(stock, ours).choose((X,), {}) is ours
    assert (stock.calls, ours.calls) == (2, 1)


def test_what_ours_leaves_to_torch_is_torchs():
    stock, ours = Answers(SLOW), Answers(gives=False)
    calls = CallRace(stock, ours)
    assert calls.choose((X,), {}) is stock and calls.choose((X,), {}) is stock
    assert (stock.calls, ours.calls) == (0, 1)


@pytest.mark.parametrize("mode", ["replay", "record", "off", "background"])
def test_nothing_is_timed_where_nothing_may_be_measured(mode):
    stock, ours = Answers(), Answers(SLOW)
    with warplap.set_mode(mode):
        assert CallRace(stock, ours).choose((X,), {}) is ours
    assert (stock.calls, ours.calls) == (0, 0)


def test_gradients_and_lists_go_the_general_way():
    stock, ours = Answers(), Answers(SLOW)
    calls = CallRace(stock, ours)
    assert calls.choose((X.clone().requires_grad_(),), {}) is ours
    assert calls.choose((X, [4]), {}) is ours
    assert (stock.calls, ours.calls) == (0, 0)
