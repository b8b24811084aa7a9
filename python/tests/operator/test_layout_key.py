"""Calls are kept by how their tensors lie: what tells two calls apart, and who is left to the general way."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import warplap
from warplap import _warplap

from conftest import near

r = torch.randn
layout_key = _warplap.layout_key


def test_tensors_that_lie_alike_are_told_alike():
    assert layout_key(r(3, 8), None, r(8)) == layout_key(r(3, 8), None, r(8)) is not None


@pytest.mark.parametrize(
    "other",
    [r(3, 9), r(4, 8), r(24), r(3, 8).half(), r(3, 8).bfloat16(), r(8, 3).t(), r(3, 16)[:, :8], r(25)[1:].view(3, 8), None],
    ids=["columns", "rows", "dimensions", "f16", "bf16", "turned", "padded", "address", "absent"],
)
def test_whatever_changes_a_call_is_told_apart(other):
    assert layout_key(other) != layout_key(r(3, 8))


def test_an_argument_that_is_left_out_keeps_its_place():
    assert layout_key(r(8), None) != layout_key(None, r(8))


def test_who_needs_the_general_way_is_not_told():
    x = r(3, 8, requires_grad=True)
    assert layout_key(x) is None
    with torch.no_grad():
        assert layout_key(x) is not None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layout_key(r(3, 8)) is None
    assert layout_key(np.zeros((3, 8), np.float32)) is None
    assert layout_key(r(3, 8).to_sparse()) is None

    class Own(torch.Tensor):
        pass

    assert layout_key(r(3, 8).as_subclass(Own)) is None


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
