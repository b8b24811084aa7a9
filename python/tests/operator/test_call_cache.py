"""Calls are kept by how their tensors lie: what tells two calls apart, and whose are not kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import warplap
from warplap import _warplap

from conftest import near

r = torch.randn


def kept(kind, *tensors, facts=()):
    cache = _warplap.CallCache(kind)
    return cache if cache.keep(tensors, facts, "kept") else None


def test_the_same_call_is_known_again():
    cache = kept("direct", r(3, 8), None, r(8), facts=(True, 0.5))
    assert cache.get((r(3, 8), None, r(8)), (True, 0.5)) == "kept" and len(cache) == 1
    assert cache.get((r(3, 8), None, r(8)), (True, 0.25)) is None
    cache.clear()
    assert cache.get((r(3, 8), None, r(8)), (True, 0.5)) is None


@pytest.mark.parametrize(
    "other",
    [r(3, 9), r(4, 8), r(24), r(3, 8).half(), r(3, 8).bfloat16(), r(8, 3).t(), r(3, 16)[:, :8], r(25)[1:].view(3, 8), None],
    ids=["columns", "rows", "dimensions", "f16", "bf16", "turned", "padded", "address", "absent"],
)
@pytest.mark.parametrize("kind", ["direct", "all"])
def test_whatever_changes_a_call_makes_another(kind, other):
    assert kept(kind, r(3, 8)).get((other,), ()) is None


def test_an_argument_that_is_left_out_keeps_its_place():
    assert kept("direct", r(8), None).get((None, r(8)), ()) is None


def test_calls_for_the_general_way_are_not_kept():
    x = r(3, 8, requires_grad=True)
    assert not kept("direct", x)
    with torch.no_grad():
        assert kept("direct", x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not kept("direct", r(3, 8)) and kept("all", r(3, 8))

    class Own(torch.Tensor):
        pass

    for kind in ("direct", "all", "training"):
        for other in (np.zeros((3, 8), np.float32), r(3, 8).to_sparse(), r(3, 8).as_subclass(Own)):
            assert not kept(kind, other)


def test_training_keeps_calls_of_which_a_gradient_is_wanted_by_whose():
    x, w = r(3, 8, requires_grad=True), r(8, 8, requires_grad=True)
    cache = kept("training", x, w)
    assert cache.get((r(3, 8, requires_grad=True), w), ()) == "kept"
    assert cache.get((x.detach(), w), ()) is None and cache.get((x, w.detach()), ()) is None
    assert not kept("training", r(3, 8))
    with torch.no_grad():
        assert not kept("training", x)


def test_sizes_that_change_all_the_time_do_not_fill_memory():
    cache = _warplap.CallCache("direct")
    for i in range(5000):
        cache.keep((r(1),), i, i)
    assert len(cache) <= 4096 and cache.get((r(1),), 4999) == 4999


def test_an_unknown_kind_and_facts_without_a_hash_are_refused():
    with pytest.raises(ValueError, match="calls: expected direct, training or all"):
        _warplap.CallCache("some")
    with pytest.raises(TypeError):
        _warplap.CallCache("direct").get((r(1),), ([1],))


def test_a_layer_behind_a_norm_is_found_again_and_sees_changed_weights():
    warplap.configure(in_memory=True, budget=0.2)
    x, w, gain = r(2, 3, 64), torch.nn.Parameter(r(48, 64) / 8), torch.nn.Parameter(torch.rand(64) + 0.5)
    right = lambda x: torch.nn.functional.linear(torch.nn.functional.rms_norm(x, (64,), gain, 1e-6), w)
    with torch.no_grad():
        for _ in range(3):
            near(warplap.norm_linear(x, w, gain), right(x))
        w.mul_(2)
        gain.add_(1)
        for t in (x, x[0], r(2, 3, 128)[..., :64]):
            near(warplap.norm_linear(t, w, gain), right(t))
