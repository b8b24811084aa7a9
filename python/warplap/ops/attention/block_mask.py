"""Masks by squares: which tiles of queries and keys attention looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


_SIDES = (32, 64, 128, 256, 512, 1024)


class Tiles(NamedTuple):
    """A map of squares, made by :func:`tiles`."""

    map: Tensor
    side: int = 128
    live: int = 50


def tiles(map: Tensor, side: int = 128) -> Tiles:
    """Which squares of ``side`` queries by ``side`` keys ``warplap.attention`` looks at, for its argument ``tiles``.

    ``map`` is a bool tensor of torch, (rows of squares, columns of squares), or with batches (or 1) and heads (or 1) in
    front: False hides a whole square. On a GPU the kernels for half types leave such squares out, forward and backward;
    elsewhere they are computed and hidden. ``side`` is a power of two from 32 to 1024; 128 is what most kernels are
    for. Make it once for a pattern: how much of it is looked at is counted here, which waits for a GPU.

    >>> import torch, warplap
    >>> near = torch.ones(4, 4).triu(-1).tril().bool()
    >>> warplap.tiles(near).live
    44
    """
    import torch

    if not isinstance(map, torch.Tensor) or map.dtype != torch.bool:
        result = f"{map.dtype}" if isinstance(map, torch.Tensor) else type(map).__name__
        raise TypeError(f"map: holds {result}, expected a tensor of torch of bool")
    if map.ndim not in (2, 4) or map.numel() == 0:
        expected = "(rows, columns) or (batches or 1, heads or 1, rows, columns) of squares"
        raise ValueError(f"map: has shape {list(map.shape)}, expected {expected}")
    if side not in _SIDES:
        raise ValueError(f"side: is {side}, expected a power of two from 32 to 1024")
    share = float(map.float().mean())
    return Tiles(map.contiguous(), side, min(max(round(share * 100), 1), 100))


def checked(inputs: Tiles, mask: Any, q: Tensor, k: Tensor) -> Tensor:
    """The map as a problem has it."""
    if mask is not None:
        raise NotImplementedError("tiles: are given beside a mask; leave one of them away")
    if not isinstance(inputs, Tiles):
        raise TypeError(f"tiles: is {type(inputs).__name__}, expected what warplap.tiles(map) gives")
    if str(inputs.map.dtype) != "torch.bool" or inputs.side not in _SIDES or not 1 <= inputs.live <= 100:
        raise ValueError("tiles: is no map of bool, side or share, expected what warplap.tiles(map) gives")
    if inputs.map.device != q.device:
        raise ValueError(f"tiles: is on {inputs.map.device}, expected {q.device} like q")
    (b, h, sq), sk, side = q.shape[:3], k.shape[2], inputs.side
    squares = (-(-sq // side), -(-sk // side))
    result = tuple(inputs.map.shape)
    if result[-2:] != squares or (len(result) == 4 and (result[0] not in (1, b) or result[1] not in (1, h))):
        wanted = f"{list(squares)} squares of {side}, with {b} (or 1) and {h} (or 1) in front where they differ"
        raise ValueError(f"tiles: has shape {list(result)}, expected {wanted}")
    return inputs.map


def spread(map: Tensor, side: int, sizes: tuple[int, int]) -> Tensor:
    """The map written out: whether a query sees a key."""
    return map.repeat_interleave(side, -2).repeat_interleave(side, -1)[..., : sizes[0], : sizes[1]]
