"""What is measured is what the user gets: the last heat, and a user's own stopwatch held against the choice."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import warplap

sys.path.insert(0, str(Path(__file__).parents[3] / "lab" / "cpu"))

import use as cpu_use  # noqa: E402


@pytest.mark.parametrize("name", ["matmul 48³", "matmul 200³", "linear 33×768→768", "attention 1×4×128×64 causal"])
def test_a_call_is_not_far_behind_torch_by_torchs_own_stopwatch(name, monkeypatch):
    # A generous bound: kernels of a test build are half as fast, so that torch's own answer mostly, and machines are
    # busy. The figures themselves: lab/cpu/use.py.
    monkeypatch.setattr(cpu_use, "SECONDS", 0.02)
    warplap.configure(budget=1.0)
    best = 0.0
    for _ in range(3):
        best = max(best, cpu_use.one_run(cpu_use.PROBLEMS[name])["ratio"])
        if best > 0.4:
            return
    raise AssertionError(f"{name}: {best:.2f} of torch's speed")


def test_a_race_ends_with_an_end_to_end_race_that_the_record_keeps(own_store):
    warplap.configure(store=own_store, budget=1.0)
    last_races = []
    for size in (24, 48, 96, 144, 192, 256):  # somewhere torch and our kernels are within a factor of two
        a, b = torch.randn(size, size), torch.randn(size, size)
        warplap.matmul(a, b)
        explanation = warplap.explain(warplap.matmul, a, b)
        if last_race := explanation.record.get("last_heat"):
            last_races.append(last_race)
            assert last_race["winner"]["variant"] == explanation.variant and last_race["call_us"] > 0
            # One of the two is torch's, the other one is not: ours race each other enough. On a busy machine the race
            # may have ended before torch's turn came.
            if any(t["variant"].startswith("torch_") for t in explanation.record["trials"]):
                winner_is_torchs, other_is_torchs = (
                    last_race[place]["variant"].startswith("torch_") for place in ("winner", "other")
                )
                assert winner_is_torchs != other_is_torchs
            assert "a call as a program makes it" in str(explanation)
    assert last_races


def test_results_are_tensors_like_any_other():
    """Outputs are made by torch's own functions in C, not by Python: nothing about them may be special."""
    a, b = torch.randn(5, 7), torch.randn(7, 3)
    c = warplap.matmul(a, b)
    assert type(c) is torch.Tensor and c.dtype == a.dtype and c.is_contiguous() and not c.requires_grad
    assert c.untyped_storage().nbytes() == 60 and c.storage_offset() == 0 and c.grad_fn is None
    c.resize_(9, 9)
    assert warplap.matmul(a.bfloat16(), b.bfloat16()).dtype == torch.bfloat16
    with torch.inference_mode():
        assert warplap.matmul(a, b).is_inference()
    import gc
    import weakref

    alive = weakref.ref(warplap.matmul(a, b))
    gc.collect()
    assert alive() is None
