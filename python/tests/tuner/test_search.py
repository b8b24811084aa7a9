"""Searches of the user's own decide who is tried next, and nothing else."""

from __future__ import annotations

import pytest
import torch

import warplap


class Backwards:
    """Asks for the last setting of each arm first, and for no more than two."""

    def __init__(self, arms, seed, donors):
        self.arms, self.results, self.left = arms, [], 2

    def ask(self, at_most):
        asked = [(arm.variant, arm[-1 - n]) for arm in self.arms for n in range(min(self.left, len(arm)))]
        self.left = 0
        return asked

    def tell(self, variant, setting, us, why):
        self.results.append((variant, setting, us, why))


@pytest.fixture
def made(monkeypatch):
    searches = []

    def make(arms, seed, donors):
        searches.append(Backwards(arms, seed, donors))
        return searches[-1]

    warplap.register_search("backwards", make)
    warplap.configure(search="backwards", budget=10.0)
    yield searches
    warplap.configure(search="auto")


def tuned(values, **more):
    seen = []

    @warplap.tunable(space={"n": values}, name="searched", **more)
    def fn(x, n):
        seen.append(n)
        if n == 5:
            raise RuntimeError("five")
        return x * 2

    return fn, seen


def test_who_is_tried_next_is_decided_in_python(made):
    fn, seen = tuned([1, 2, 3, 4])
    x = torch.randn(8)
    assert torch.equal(fn(x), x * 2)
    [search] = made
    [arm] = search.arms
    assert (arm.variant, arm.priority, arm.axes, len(arm)) == ("fn", "high", {"n": [1, 2, 3, 4]}, 4)
    assert arm[0] == {"n": 1} and {"n": 4} in arm and {"n": 9} not in arm
    with pytest.raises(IndexError):
        arm[4]
    assert {s["n"] for _, s, us, _ in search.results if us is not None} == {3, 4}
    assert set(seen) - {1} == {3, 4}, "the first one is the reference"
    skipped = fn.last["edition"]["skipped"]
    assert [(s["configs"], s["reason"]) for s in skipped] == [(2, "the search ended before it")]


def test_what_failed_is_told_with_its_reason(made):
    fn, _ = tuned([1, 2, 5])
    fn(torch.randn(8))
    results = {s["n"]: (us, why) for _, s, us, why in made[0].results}
    assert results[5][0] is None and "five" in results[5][1] and results[2][1] is None


def test_a_builtin_operation_is_searched_too(made):
    a = torch.randn(40, 40)
    results = warplap.tune("gemm:m=40,n=40,k=40,dtype=f32", again=True)
    torch.testing.assert_close(warplap.matmul(a, a), a @ a)
    assert results[0].variant and len(made[0].arms) > 2


@pytest.mark.parametrize(
    "asked, said",
    [
        ([("nobody", {"n": 1})], "no candidate"),
        ([("fn", {"n": 77})], "no candidate"),
        ([3], "tuple"),
    ],
)
def test_what_a_search_gets_wrong_is_raised(asked, said):
    class Wrong:
        def ask(self, at_most):
            return asked

        def tell(self, *_):
            pass

    warplap.register_search("wrong", lambda *_: Wrong())
    warplap.configure(search="wrong")
    try:
        fn, _ = tuned([1, 2], version=f"{asked}")
        with pytest.raises((ValueError, TypeError), match=said):
            fn(torch.randn(8))
    finally:
        warplap.configure(search="auto")
    fn(torch.randn(8))


def test_names_are_checked():
    with pytest.raises(ValueError, match="a name of your own"):
        warplap.register_search("random", lambda *_: None)
    with pytest.raises(ValueError, match="'nosuch' is not known, expected one of auto"):
        warplap.configure(search="nosuch")
