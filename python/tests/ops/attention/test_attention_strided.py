"""attention over parts of one projection: torch reads them where they lie, our kernels read copies; both are raced."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from conftest import Seen, near

import warplap
from warplap.ops.attention import strided
from warplap.training import steps
from warplap.ops.attention.calls import is_in


def parts(device="cpu", b=2, s=16, h=4, d=8):
    packed = torch.randn(b, s, 3, h, d, device=device)
    return [packed[:, :, i].transpose(1, 2) for i in range(3)]


def kept():
    return [row for row in warplap.store.ls() if row["op"] == "attention_gaps"]


@pytest.fixture
def lengths_share_a_key():
    warplap.configure(bucket="pow2")
    yield
    warplap.configure(bucket="changing")


@pytest.fixture
def contiguous_kernel(monkeypatch):
    """Our kernel wins where nothing has gaps, as if torch's functions were not there."""
    new = strided._warplap.attention_new

    def ours(q, *rest):
        return new(q, *rest) if is_in("bhsd", q) or is_in("bshd", q) else None

    monkeypatch.setattr(strided._warplap, "attention_new", ours)
    monkeypatch.setattr("warplap.ops.attention.api._direct", lambda *_: None)
    monkeypatch.setattr(steps, "_RUNS", 1)
    warplap.configure(budget=0.5)


def slowly(call):
    def slow(*args, **more):
        time.sleep(0.005)
        return call(*args, **more)

    return slow


def test_it_is_right_whoever_answers(device):
    q, k, v = parts(device)
    near(warplap.attention(q, k, v, is_causal=True), F.scaled_dot_product_attention(q, k, v, is_causal=True))
    problem = warplap.explain(warplap.attention, q, k, v, is_causal=True).problem
    assert problem.endswith("layout=bshd"), problem
    wide = torch.randn(2, 4, 16, 16, device=device)[..., ::2]
    near(warplap.attention(wide, k, v), F.scaled_dot_product_attention(wide, k, v))
    mask = torch.randn(16, 16, device=device)
    near(warplap.attention(q, k, v, mask), F.scaled_dot_product_attention(q, k, v, mask))


@pytest.mark.parametrize("torch_is_slow", [True, False])
def test_who_is_faster_answers_and_the_next_start_knows_it(contiguous_kernel, own_store, monkeypatch, torch_is_slow):
    asked = []

    def attend(*args, **more):
        asked.append("torch")
        time.sleep(0.005 * torch_is_slow)
        return F.scaled_dot_product_attention(*args, **more)

    monkeypatch.setattr(strided, "F", SimpleNamespace(scaled_dot_product_attention=attend))
    if not torch_is_slow:
        monkeypatch.setattr(strided._warplap, "attention_new", slowly(strided._warplap.attention_new))
    monkeypatch.setattr(steps, "_holds", lambda result: True)
    q, k, v = parts()
    right = F.scaled_dot_product_attention(q, k, v)
    assert "a call races torch" in str(warplap.explain(warplap.attention, q, k, v))
    near(warplap.attention(q, k, v), right)
    said = warplap.explain(warplap.attention, q, k, v, is_causal=False).strided_call
    assert said == f"between rows of q, k or v: {'the winner reads copies' if torch_is_slow else 'torch answers'}"
    assert warplap.explain(warplap.attention, right, right, right).strided_call is None
    (row,) = kept()
    assert row["winner"] == ("warplap" if torch_is_slow else "torch"), row
    warplap.configure(store=own_store)  # nothing is kept but the store
    asked.clear()
    near(warplap.attention(q, k, v), right)
    assert asked == ([] if torch_is_slow else ["torch"])


def test_a_longer_sequence_of_one_bucket_and_other_gaps(contiguous_kernel, lengths_share_a_key):
    for s in (15, 16):
        warplap.attention(*parts(s=s))
    assert len(kept()) == 1
    warplap.attention(*(t[:, 1:7] for t in parts(h=8)))
    warplap.attention(*parts(h=6))
    assert len(kept()) == 3


def test_the_second_call_goes_straight_to_who_was_chosen(contiguous_kernel):
    q, k, v = parts(h=4)
    right = F.scaled_dot_product_attention(q, k, v)
    first = warplap.attention(q, k, v)
    with Seen() as seen:  # who watches sees the operator
        near(warplap.attention(q, k, v), right)
    assert "warplap.attention.default" in seen.names
    warplap.attention(q, k, v)
    answered = []
    kept, facts = (q, k, v), strided._facts(q, None, False, None)
    call = strided._steps.get(kept, facts)
    strided._steps.keep(kept, facts, lambda *args: answered.append(1) or call(*args))
    again = warplap.attention(q, k, v)
    near(again, right)
    assert answered == [1] and again.stride() == first.stride()
    with pytest.raises(ValueError, match="heads"):
        warplap.attention(q, k[:, :2], v[:, :2])
    with pytest.raises(ValueError, match="k: has 1 dimensions"):
        warplap.attention(q, k[0, 0, 0], v)
    shared = warplap.attention(q, k[:, :2], v[:, :2], enable_gqa=True)
    near(shared, F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True))
    with pytest.raises(ValueError, match="heads"):  # though somebody is known for them now
        warplap.attention(q, k[:, :2], v[:, :2])


def test_where_nothing_may_be_measured_torch_answers(contiguous_kernel, monkeypatch):
    asked = []
    attend = lambda *args, **more: asked.append(1) or F.scaled_dot_product_attention(*args, **more)
    monkeypatch.setattr(strided, "F", SimpleNamespace(scaled_dot_product_attention=attend))
    q, k, v = parts()
    for mode in ("off", "replay"):
        with warplap.set_mode(mode):
            for _ in range(2):
                warplap.attention(q, k, v)
    assert len(asked) == 4 and not kept()


def test_parts_of_a_cache_that_is_nearly_empty_are_torchs(contiguous_kernel):
    q, *caches = (torch.randn(2, 4, s, 8) for s in (1, 64, 64))
    k, v = (cache[:, :, :9] for cache in caches)
    near(warplap.attention(q, k, v), F.scaled_dot_product_attention(q, k, v))
    assert not kept()


def test_lengths_of_tensors_without_gaps_are_told_by_their_order():
    q, k = parts(s=5)[0], torch.randn(2, 4, 7, 8)
    turned = k.transpose(1, 2).contiguous().transpose(1, 2)
    assert [strided._apart(t) for t in (q, k, turned)] == ["8x96x1", "bhsd", "bshd"]
    assert strided._apart(q[:, :1]) == "x96x1", "where there is one head nobody asks where the next one is"


def test_calls_with_gaps_choose_nothing_for_those_without(monkeypatch):
    q, k, v = parts(s=64, d=64)
    warplap.configure(in_memory=True, budget=1.0)
    with monkeypatch.context() as others:  # nobody makes copies, which have no gaps
        others.setattr(strided, "attend", lambda q, k, v, *_: F.scaled_dot_product_attention(q, k, v))
        warplap.attention(q, k, v)
    assert not warplap.store.ls()
    warplap.attention(q, k, v)
    assert {row["op"] for row in warplap.store.ls()} >= {"attention"}
    last_race = warplap.explain(warplap.attention, q, k, v).record.get("last_heat")
    assert last_race is None or last_race["call_us"] > 1.0, "a call that does nothing was timed"
