"""Who is the reference where nobody is known to be right."""

from __future__ import annotations

import pytest
import torch

from warplap.callables.consensus import agreed
from warplap.callables.harness import Rig

NAN = float("nan")


def chosen(*leaves, settings=None, out=None):
    """Which of these is believed, each of which leaves a row of numbers behind, fails, or does nothing."""

    def run(leave, x, out):
        if isinstance(leave, Exception):
            raise leave
        if leave is not None:
            out.copy_(x + torch.tensor(leave))

    runs = [lambda x, out, leave=leave: run(leave, x, out) for leave in leaves]
    rig = Rig((torch.ones(3), torch.zeros(3) if out is None else out), {}, None)
    reference = agreed(rig, runs, settings or list(range(len(runs))))
    assert torch.equal(rig.args[1], torch.zeros(3) if out is None else out), "the arguments are as they were"
    return reference


RIGHT, OFF, ROW, FAR = [1.0, 2.0, 3.0], [1.0, 2.0, 3.5], [1.0, NAN, 3.0], [1.0, 1e30, 3.0]
NEAR = [1.0, 2.0 + 1e-5, 3.0]


def test_a_wrong_first_one_is_not_believed():
    assert chosen(RIGHT, NEAR) == 0
    assert chosen(OFF, RIGHT, NEAR) == 1
    assert chosen(FAR, RIGHT, NEAR, OFF) == 1
    assert chosen(ROW, OFF, RIGHT, RIGHT) == 2


def test_finite_numbers_are_preferred_to_a_majority_without_and_else_the_majority_counts():
    assert chosen(ROW, ROW, ROW, RIGHT, RIGHT) == 3
    assert chosen(OFF, OFF, RIGHT, RIGHT, RIGHT) == 2
    # Where everybody leaves it, it is the answer.
    assert chosen(ROW, ROW) == 0
    assert chosen([1.0, float("inf"), 3.0], ROW, ROW) == 1


def test_one_that_fails_or_changes_nothing_has_no_opinion():
    assert chosen(ValueError("no"), None, None, None, RIGHT, RIGHT) == 4


def test_the_same_settings_twice_are_one_voice():
    assert chosen(OFF, OFF, RIGHT, RIGHT, settings=["a", "a", "b", "c"]) == 2
    with pytest.raises(ArithmeticError, match="no two of 2 configs leave the same answer: 1 answers"):
        chosen(RIGHT, RIGHT, settings=["a", "a"])


def test_where_nobody_agrees_it_is_said():
    with pytest.raises(ArithmeticError, match="3 answers; 1 failed, the first with ValueError: no"):
        chosen(RIGHT, OFF, ROW, ValueError("no"))
    with pytest.raises(ArithmeticError, match="0 answers"):
        chosen(None, None)


def test_what_was_right_before_counts_as_an_answer_of_those_that_round_otherwise():
    out = torch.ones(3) + torch.tensor(RIGHT)
    assert chosen(RIGHT, NEAR, [1.0, 2.0 - 1e-5, 3.0], out=out) == 1
