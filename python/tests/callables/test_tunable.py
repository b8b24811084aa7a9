"""@tunable: settings of a Python callable are proved, raced and kept."""

from __future__ import annotations

import ctypes
import os
import time

import numpy as np
import pytest
import torch

import warplap


def make(**more):
    calls: list[int] = []

    @warplap.tunable(space={"chunk": [1, 7, 64, 100]}, rules=["chunk != 7"], name="row_sums", **more)
    def sums(x, chunk):
        calls.append(chunk)
        if chunk == 100:
            return x.sum(1) + 1  # wrong
        if chunk == 1:
            time.sleep(2e-4)
        return torch.cat([part.sum(1) for part in x.split(chunk)])

    return sums, calls


def test_the_fastest_right_setting_runs_and_is_kept():
    sums, calls = make(reference=lambda x: x.sum(1))
    x = torch.randn(64, 8)
    torch.testing.assert_close(sums(x), x.sum(1))
    assert 7 not in calls and sums.config(x) == {"chunk": 64}
    trials = {t["config"]["chunk"]: t for t in sums.last["edition"]["trials"]}
    assert (
        trials[100]["rejected"]["why"] == "wrong_answer"
        and trials[1].get("rejected", {}).get("why", "") != "wrong_answer"
    )
    twin, calls = make(reference=lambda x: x.sum(1))
    twin(x)
    assert calls == [64] and twin.last["from_store"]


def test_one_more_setting_races_against_the_winner_alone():
    def declare(values):
        seen = []

        def fn(x, n):
            seen.append(n)
            if n in (2, 3):
                time.sleep(0.002)
            return x * 2

        return warplap.tunable(space={"n": values}, name="twice", version="1")(fn), seen

    x = torch.randn(16)
    first, seen = declare([1, 2, 3])
    first(x)
    assert first.config(x)["n"] == 1
    assert set(seen) == {1, 2, 3}
    second, seen = declare([1, 2, 3, 4])
    second(x)
    assert set(seen) == {1, 4}, "who lost by far is not asked again"
    assert len(second.last["edition"]["trials"]) == 4


def test_arguments_are_not_touched_by_the_race_and_silence_is_not_an_answer():
    @warplap.tunable(space={"way": ["right", "silent", "late"]}, name="into")
    def into(x, out, way):
        if way == "right":
            out.copy_(x + 1)
        elif way == "late":
            out[1:].copy_((x + 1)[1:])

    x = torch.randn(32)
    out = x + 1  # the right answer is there already: who writes nothing must not pass
    before = out.clone()
    into(x, out)
    assert torch.equal(out, before)
    rejected = {t["config"]["way"]: t.get("rejected", {}).get("why") for t in into.last["edition"]["trials"]}
    assert rejected["silent"] == rejected["late"] == "wrong_answer"
    accumulated = torch.zeros(4)

    @warplap.tunable(space={"n": [1, 2]}, name="add_to")
    def add_to(total, n):
        total += 1

    add_to(accumulated)
    assert torch.equal(accumulated, torch.ones(4)), "one call is one call"


def test_a_setting_that_takes_its_process_down_does_not_take_the_callers():
    @warplap.tunable(space={"way": ["right", "abort", "segfault", "exit"]}, name="dangerous")
    def dangerous(x, way):
        if way == "abort":
            os.abort()
        if way == "segfault":
            ctypes.string_at(8)
        if way == "exit":
            os._exit(3)
        return x * 2

    x = torch.randn(8)
    assert torch.equal(dangerous(x), x * 2)
    rejected = {t["config"]["way"]: t.get("rejected", {}) for t in dangerous.last["edition"]["trials"]}
    assert {w: r.get("why") for w, r in rejected.items() if w != "right"} == dict.fromkeys(
        ["abort", "segfault", "exit"], "crashed"
    )
    assert "SIGSEGV" in rejected["segfault"]["reason"] and "exit code 3" in rejected["exit"]["reason"]


def test_a_setting_that_never_ends_is_rejected_where_that_is_asked_for(monkeypatch):
    real = warplap.callables.isolate.first_run
    monkeypatch.setattr(warplap.callables.isolate, "first_run", lambda rig, run: real(rig, run, patience=0.5))

    @warplap.tunable(space={"way": ["right", "endless"]}, name="patient", sandbox=True)
    def patient(x, way):
        while way == "endless":
            pass
        return x + 1

    patient(torch.zeros(2))
    why = {t["config"]["way"]: t.get("rejected", {}).get("why") for t in patient.last["edition"]["trials"]}
    assert why["endless"] == "timed_out"


def test_rules_are_expressions_or_callables_over_any_values():
    wide = torch.float64
    tuned = warplap.tunable(
        space={"a": [1, 2, 3], "b": [2, 4], "name": ["x", "y"], "kind": [torch.float32, wide]},
        rules=[
            "a * b <= 8 and (name == 'x' or a > 1)",
            "max(a, b) < 4 or b in (4,)",
            lambda kind, a: kind != wide or a == 1,
        ],
        name="ruled",
    )(lambda x, a, b, name, kind: x)
    expected = [
        (a, b, name, kind)
        for a in (1, 2, 3)
        for b in (2, 4)
        for name in "xy"
        for kind in (torch.float32, wide)
        if a * b <= 8 and (name == "x" or a > 1) and (max(a, b) < 4 or b in (4,)) and (kind != wide or a == 1)
    ]
    assert [tuple(c.values()) for c in tuned.configs] == expected
    with pytest.raises(ZeroDivisionError):
        warplap.tunable(space={"n": [1, 0]}, rules=[lambda n: 1 / n > 0], name="undefined")(lambda x, n: x)


def test_a_long_list_is_searched_around_whoever_leads():
    seen = []

    @warplap.tunable(space={"a": list(range(16)), "b": list(range(16))}, name="many", budget=6.0, sandbox=False)
    def many(x, a, b):
        seen.append((a, b))
        time.sleep(2e-4 * (abs(a - 11) + abs(b - 6)))
        return x + 1

    x = torch.zeros(4)
    many(x)
    best = many.config(x)
    assert abs(best["a"] - 11) + abs(best["b"] - 6) <= 3, best
    order = list(dict.fromkeys(seen))
    assert order[:20] != sorted(order)[:20], "in a drawn order"


def test_numpy_keys_and_modes():
    @warplap.tunable(space={"step": [1, 2]}, key=lambda x: x.shape[0] // 100, name="by_hundreds")
    def total(x, step):
        return np.add.reduce(x)

    assert total(np.ones(150, np.float32)) == 150
    assert total(np.ones(160, np.float32)) == 160 and len(total._chosen) == 1
    with warplap.off():
        assert total(np.ones(250, np.float32)) == 250 and len(total._chosen) == 1
    with warplap.replay():
        assert total.config(np.ones(350, np.float32)) == {"step": 1} and len(total._chosen) == 1


def test_wrong_declarations_are_named():
    for more, match in [
        ({"space": {"n": []}}, "space:"),
        ({"space": {"n": [1]}, "rules": ["m > 1"]}, "rules:"),
        ({"space": {"n": [1]}, "rules": [lambda q: True]}, "rules:"),
        ({"space": {"z": [1]}}, "space:"),
    ]:
        with pytest.raises(ValueError, match=match):
            warplap.tunable(**more)(lambda x, n: x)

    @warplap.tunable(space={"n": [1, 2]}, name="always_fails")
    def fails(x, n):
        raise ArithmeticError("never")

    with pytest.raises(RuntimeError, match="never"):
        fails(torch.zeros(2))


def test_everyone_on_a_short_list_is_measured_however_long_proofs_take():
    @warplap.tunable(space={"n": list(range(6))}, name="slow_to_prove", budget=0.05, sandbox=False)
    def wait(x, n):
        if n not in seen:  # as a compiler would take its time
            seen.add(n)
            time.sleep(0.05)
        return x + 1

    seen = set()
    wait(torch.zeros(8))
    trials = wait.last["edition"]["trials"]
    assert {t["config"]["n"] for t in trials} == set(range(6))
    assert all(t.get("measured") or t["rejected"]["measurement"] for t in trials), trials


def copies(x, out, way):
    """At the top of a module, so that a worker finds it."""
    if way == "endless":
        while True:
            time.sleep(0.01)
    if way == "crash":
        ctypes.string_at(0)
    if way == "raise":
        raise RuntimeError("no")
    out.copy_(x)


def test_a_worker_runs_what_it_finds_by_name_and_is_replaced_when_lost(monkeypatch):
    from warplap.callables import sandbox as callables_sandbox

    monkeypatch.setattr(callables_sandbox, "CALL", 3.0)
    x, out = torch.randn(5), torch.zeros(5)
    ask = lambda way: callables_sandbox.try_call(copies, (x, out), {"way": way})
    assert ask("plain") is None and torch.equal(out, torch.zeros(5)), "the caller's tensors are not touched"
    assert ask("raise") is None, "what it raises is found out here again"
    assert ask("crash")[0] == "crashed"
    assert ask("endless")[0] == "timed_out"
    assert ask("plain") is None
    with pytest.raises(ValueError, match="sandbox: .*top of a module"):
        callables_sandbox.try_call(lambda: None, (), {})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_settings_for_cuda_tensors_run_first_in_the_worker(monkeypatch):
    monkeypatch.setattr("warplap.callables.sandbox.CALL", 10.0)
    tuned = warplap.tunable(space={"way": ["plain", "crash", "endless"]}, name="copies", sandbox=True)(copies)
    x = torch.randn(1000, device="cuda")
    out = torch.zeros_like(x)
    tuned(x, out)
    assert torch.equal(out, x) and tuned.config(x, out) == {"way": "plain"}
    why = {t["config"]["way"]: t.get("rejected", {}).get("why") for t in tuned.last["edition"]["trials"]}
    assert why == {"plain": None, "crash": "crashed", "endless": "timed_out"}
    with pytest.raises(ValueError, match="sandbox: .*top of a module"):
        warplap.tunable(space={"n": [1, 2]}, sandbox=True)(lambda x, n: x)(x)
