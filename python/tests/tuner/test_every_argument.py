"""``explain``, ``tune`` and ``benchmark`` take what the call takes, of every operator, and nothing else."""

from __future__ import annotations

import inspect

import pytest
import torch
from every_call import CALLS

import warplap
from warplap.operator.public import declared


def test_no_operator_and_no_argument_is_left_out():
    write = "write python/tests/ops/calls_{}.py, or in a folder there; calls_softmax.py is an example"
    assert [write.format(name) for name in sorted(set(declared) - set(CALLS))] == []
    for name, (least, more) in CALLS.items():
        assert name in declared, f"calls_{name}.py: there is no operator warplap.{name}"
        taken = {argument for call in ({}, *more) for argument in {**least, **call}}
        have = set(inspect.signature(getattr(warplap, name)).parameters)
        assert taken == have, f"calls_{name}.py: has {sorted(taken)}, the operator takes {sorted(have)}"


@pytest.mark.parametrize("name", CALLS)
def test_explain_takes_every_argument_that_the_call_takes(name):
    least, more = CALLS[name]
    for call in ({}, *more):
        explained = warplap.explain(getattr(warplap, name), **{**least, **call})
        assert ":" in explained.problem and explained.variants, call


@pytest.mark.parametrize("name", CALLS)
def test_what_is_raced_is_the_problem_that_the_call_solves(name, monkeypatch):
    """Whoever tunes by a call's arguments finds its choice when the call is made."""
    if name in ("linear_cross_entropy",):
        pytest.skip("its chunks are products and losses of their own")
    least, _ = CALLS[name]
    (tuned,) = warplap.tune([(name, least)], budget=0.05)
    warplap.set_mode("replay")
    getattr(warplap, name)(**least)
    assert warplap.explain(name, **least).record is not None and tuned.variant


@pytest.mark.parametrize("name", CALLS)
def test_an_argument_that_the_call_does_not_take_is_refused_by_its_name(name):
    least, _ = CALLS[name]
    for what in (warplap.explain, warplap.benchmark):
        with pytest.raises(TypeError, match=f"{name}: .*'windou'.*it takes "):
            what(getattr(warplap, name), **least, windou=3)
    with pytest.raises(TypeError, match="windou"):
        getattr(warplap, name)(**least, windou=3)


def test_an_operator_that_there_is_not_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match=f"op: is 'convolve', expected attention, bsr_matmul, .* or {max(declared)}"):
        warplap.explain("convolve", torch.ones(2))
