"""attention over squares of queries and keys."""

from __future__ import annotations

import pytest
import torch
from conftest import near

import warplap


def drawn(device, dtype, sq=300, sk=200, h=4, hkv=2, d=16):
    shapes = ((2, h, sq, d), (2, hkv, sk, d), (2, hkv, sk, d))
    return [torch.randn(s, device=device).to(dtype).requires_grad_() for s in shapes]


def map_of(device, lead, sq, sk, side, share=0.6):
    torch.manual_seed(3)
    squares = (-(-sq // side), -(-sk // side))
    block_map = torch.rand(*lead, *squares, device=device) < share
    block_map[..., squares[0] // 2, :] = False  # a row of squares that sees nothing
    return block_map


def by_scores(q, k, v, seen, side, *, is_causal=False, softcap=None, window=None, alibi_slopes=None):
    """In double precision, with the map written out."""
    q, k, v = (t.double() for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    away = torch.arange(k.shape[2], device=q.device) - torch.arange(q.shape[2], device=q.device)[:, None]
    if alibi_slopes is not None:
        scores = scores - alibi_slopes.double()[:, None, None] * away.abs()
    whole = seen.repeat_interleave(side, -2).repeat_interleave(side, -1)[..., : q.shape[2], : k.shape[2]]
    hidden = ~whole | ((away > 0) & is_causal)
    if window is not None:
        hidden = hidden | (away.abs() > window)
    weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), -1)
    return weights.masked_fill(hidden.all(-1, keepdim=True), 0.0) @ v


CASES = {
    "plain": dict(),
    "causal": dict(is_causal=True),
    "bent": dict(softcap=2.0, alibi_slopes=torch.tensor([0.5, 0.25, 0.125, 0.0625]), is_causal=True),
    "window": dict(window=90),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("lead", [(), (1, 4), (2, 1), (2, 4)], ids=["all", "heads", "batches", "each"])
def test_squares_that_are_hidden_are_not_seen(device, case, lead):
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    q, k, v = drawn(device, dtype)
    more = {n: x.to(device) if isinstance(x, torch.Tensor) else x for n, x in CASES[case].items()}
    seen = map_of(device, lead, 300, 200, 64)
    o = warplap.attention(q, k, v, enable_gqa=True, tiles=warplap.tiles(seen, 64), **more)
    right = by_scores(q, k, v, seen, 64, **more)
    near(o, right)
    grad = torch.randn_like(o)
    gradients = torch.autograd.grad(o, (q, k, v), grad)
    for name, ours, theirs in zip("qkv", gradients, torch.autograd.grad(right, (q, k, v), grad.double())):
        assert near(ours, theirs), name


def test_rows_that_see_nothing_have_gradients_of_gradients(device):
    q, k, v = drawn(device, torch.float32, 70, 70)
    seen = map_of(device, (1, 4), 70, 70, 32)
    o = warplap.attention(q, k, v, enable_gqa=True, tiles=warplap.tiles(seen, 32))
    right = by_scores(q, k, v, seen, 32)
    grad = torch.randn_like(o)
    gradients = torch.autograd.grad(o, (q, k, v), grad, create_graph=True)
    for ours, theirs in zip(gradients, torch.autograd.grad(right, (q, k, v), grad.double())):
        assert near(ours, theirs)


def test_squares_are_tuned_ahead(device):
    dtype = torch.float32 if device == "cpu" else torch.float16
    q, k, v = (t.detach() for t in drawn(device, dtype, 256, 256))
    tiles = warplap.tiles(map_of(device, (1, 4), 256, 256, 128), 128)
    said = str(warplap.explain(warplap.attention, q, k, v, enable_gqa=True, tiles=tiles))
    assert "mask=tiles" in said and f"live={tiles.live}" in said


def test_wide_heads_go_by_scores(device):
    seen = map_of(device, (), 70, 70, 32)
    q, k, v = drawn(device, torch.float32, 70, 70, d=1100)
    o = warplap.attention(q, k, v, enable_gqa=True, tiles=warplap.tiles(seen, 32))
    near(o, by_scores(q, k, v, seen, 32))


def test_a_compiled_program_takes_squares(device):
    dtype = torch.float32 if device == "cpu" else torch.float16
    q, k, v = (t.detach() for t in drawn(device, dtype, 256, 256))
    tiles = warplap.tiles(map_of(device, (1, 4), 256, 256, 128), 128)

    def step(q, k, v):
        return warplap.attention(q, k, v, enable_gqa=True, tiles=tiles) * 2

    near(torch.compile(step, backend="aot_eager", fullgraph=True)(q, k, v), 2 * by_scores(q, k, v, tiles.map, 128))


def test_wrong_maps_are_named(device):
    q, k, v = (t.detach() for t in drawn(device, torch.float32, 256, 256))
    right = torch.ones(2, 2, dtype=torch.bool, device=device)
    with pytest.raises(TypeError, match="map: holds"):
        warplap.tiles(right.int())
    with pytest.raises(ValueError, match="side: is 48"):
        warplap.tiles(right, 48)
    with pytest.raises(ValueError, match="map: has shape"):
        warplap.tiles(right[None])
    with pytest.raises(ValueError, match=r"tiles: has shape \[2, 2\], expected \[4, 4\]"):
        warplap.attention(q, k, v, enable_gqa=True, tiles=warplap.tiles(right, 64))
    with pytest.raises(TypeError, match="tiles: is Tensor"):
        warplap.attention(q, k, v, enable_gqa=True, tiles=right)
    with pytest.raises(ValueError, match="no map of bool"):
        warplap.attention(q, k, v, enable_gqa=True, tiles=warplap.Tiles(right.byte(), 128))
    with pytest.raises(NotImplementedError, match="beside a mask"):
        warplap.attention(q, k, v, q.new_zeros(256, 256), enable_gqa=True, tiles=warplap.tiles(right))
    with pytest.raises(NotImplementedError, match="lengths"):
        lengths = torch.tensor([3, 4], dtype=torch.int32, device=device)
        warplap.attention(q, k, v, enable_gqa=True, tiles=warplap.tiles(right), lengths=lengths)


def test_shares_are_raced_together(device):
    q, k, v = (t.detach() for t in drawn(device, torch.float32, 256, 256))
    every = torch.ones(2, 2, dtype=torch.bool, device=device)
    assert warplap.tiles(every).live == 100
    assert warplap.tiles(~every).live == 1
    near(warplap.attention(q, k, v, enable_gqa=True, tiles=warplap.tiles(~every)), torch.zeros_like(q))
