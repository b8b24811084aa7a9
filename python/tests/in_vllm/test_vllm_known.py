"""What a server does with what the store knows, without vLLM: numbers of tokens that share a race; who runs linears."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

import warplap
from warplap import _warplap
from warplap.vllm import ahead, blocks, known, modes, served


@pytest.fixture(autouse=True)
def replay(tmp_path):
    warplap.configure(store=tmp_path / "store")
    with warplap.replay():
        served.forget()
        yield
    served.forget()


def key(tokens):
    text = f"gemm:m={tokens},n=64,k=64,dtype=f32"
    return json.loads(_warplap.explain(text))["key"]


def test_numbers_of_tokens_share_an_answer_where_they_share_a_race():
    tops = {}
    for tokens in [*range(1, 140), 511, 512, 513, 2047, 2048, 2049, 8192, 8193, 32768]:
        tops.setdefault(known.shared(tokens), set()).add(key(tokens))
    assert all(len(keys) == 1 for keys in tops.values()), tops
    assert len({next(iter(keys)) for keys in tops.values()}) == len(tops)
    assert len({known.shared(size) for size in known.SIZES}) == len(known.SIZES)


def test_a_linear_of_which_nothing_is_known_is_torchs(monkeypatch):
    w, bias = torch.randn(48, 32), torch.randn(48)
    assert served.decide(w, bias, [1, 16], race=False) == frozenset()
    monkeypatch.setattr(_warplap, "linear_direct", lambda *_: pytest.fail("nothing was measured"))
    x = torch.randn(5, 32)
    assert torch.equal(torch.ops.warplap.served_linear(x, w, bias), torch.nn.functional.linear(x, w, bias))


def test_a_race_decides_at_the_numbers_of_tokens_that_share_it():
    w, bias = torch.randn(96, 64), torch.randn(96)
    served.decide(w, bias, [1, 16], race=True)
    for size in (1, 16):
        best = known.lookup(served.text(w, bias, size), None)
        assert best is not None and best.us > 0
        served.forget()
        assert (size in served.decide(w, bias, [size], race=False)) == best.is_worth_it
    assert known.lookup(served.text(w, bias, 1024), None) is None
    served.forget()
    # Whoever runs it, it is right, also at sizes that nobody has asked about.
    served._won[served._layer(w, bias)] = frozenset([16])
    for tokens in (1, 9, 16, 17):
        x = torch.randn(tokens, 64)
        y = torch.ops.warplap.served_linear(x, w, bias)
        torch.testing.assert_close(y, torch.nn.functional.linear(x, w, bias), rtol=1e-4, atol=1e-4)
        assert y.is_contiguous()


def test_torch_keeps_a_linear_unless_it_is_clearly_beaten(monkeypatch):
    w = torch.randn(96, 64)
    text = served.text(w, None, 16)
    served.decide(w, None, [16], race=True)
    explanation = json.loads(_warplap.explain(text))
    torchs = [trial for trial in explanation["edition"]["trials"] if trial["variant"].startswith("torch_")]
    assert torchs, "torch's function races beside ours"
    explanation["edition"]["verdict"]["winner"]["variant"] = "packed"
    # What the race says of torch's function: so far behind, between these.
    for ends, taken in (([0.05, 0.2], True), ([0.001, 0.2], False), ([-0.1, 0.1], False)):
        for trial in torchs:
            trial.pop("rejected", None)
            trial["measured"] = {"behind": {"by": 0.1, "ci": ends}}
        monkeypatch.setattr(_warplap, "explain", lambda *_, **__: json.dumps(explanation))
        served.forget()
        assert served.decide(w, None, [16], race=False) == (frozenset([16]) if taken else frozenset())
    for trial in torchs:  # it did not run at all
        trial["measured"] = None
    assert known.lookup(text, None).lead is None and known.lookup(text, None).is_worth_it


def test_replaying_measures_nothing_and_writes_nothing(tmp_path):
    w = torch.randn(32, 64)
    before = sorted(p for p in (tmp_path / "store").rglob("*"))
    served.decide(w, None, known.sizes(4096), race=False)
    of = blocks.parts(w, 16)
    blocks.is_faster(of, None, [served.text(w, None, 1)], [1], race=False)
    torch.ops.warplap.served_linear(torch.randn(3, 64), w, None)
    assert sorted(p for p in (tmp_path / "store").rglob("*")) == before


def test_the_mode_of_a_server_is_said_in_one_word(monkeypatch):
    monkeypatch.setenv("WARPLAP_VLLM_MODE", "fast")
    with pytest.raises(ValueError, match="expected replay or tune"):
        modes.begin()
    monkeypatch.setenv("WARPLAP_VLLM_MODE", "tune")
    assert modes.may_race()
    with warplap.tuning():
        modes.begin()
        assert warplap.mode() == "replay"


def pruned(n, k, block, kept, seed=0):
    draw = torch.Generator().manual_seed(seed)
    mask = torch.rand(n // block, k // block, generator=draw) < kept
    mask[0, 0] = True
    w = torch.randn(n, k, generator=draw)
    return w * mask.repeat_interleave(block, 0).repeat_interleave(block, 1), mask


@pytest.mark.parametrize("block", [16, 32, 64, 128])
def test_the_size_of_blocks_is_found_and_nothing_is_lost(block):
    w, mask = pruned(512, 1024, block, 0.2)
    assert blocks.size(w) == block
    of = blocks.parts(w, block)
    assert of.values.shape[0] == int(mask.sum()) and of.block == block
    rebuilt = torch.zeros_like(w)
    for row in range(512 // block):
        for at in range(int(of.crow[row]), int(of.crow[row + 1])):
            down, right = row * block, int(of.col[at]) * block
            rebuilt[down : down + block, right : right + block] = of.values[at]
    assert torch.equal(rebuilt, w)


def test_a_full_weight_and_one_of_odd_sizes_have_no_blocks():
    assert blocks.size(torch.randn(128, 128)) is None
    assert blocks.size(torch.zeros(120, 130)) is None
    empty = blocks.parts(torch.zeros(64, 64), 32)
    assert empty.values.shape[0] == 1 and not empty.values.any()


def test_sparse_or_dense_is_decided_by_what_was_measured():
    w, _ = pruned(256, 256, 32, 0.15)
    of, dense = blocks.parts(w, 32), [served.text(w, None, 4)]
    assert blocks.is_faster(of, None, dense, [4], race=False)[1].startswith("nothing is known")
    half = blocks.parts(pruned(256, 256, 32, 0.5)[0], 32)
    assert not blocks.is_faster(half, None, dense, [4], race=False)[0]
    faster, why = blocks.is_faster(of, None, dense, [4], race=True)
    times = [known.lookup(text, None).us for text in (blocks.text(of, None, 4), dense[0])]
    assert faster == (times[0] < times[1]) and "over 1 sizes" in why


def test_nothing_is_tuned_ahead_for_a_store_that_does_not_last():
    warplap.configure(in_memory=True)
    with pytest.raises(RuntimeError, match="expected one that lasts"):
        ahead.tune("nowhere")
