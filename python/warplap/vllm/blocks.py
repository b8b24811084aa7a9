"""A dense weight with zero blocks becomes a block-sparse one, where that is faster."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from .. import _warplap
from ..ops.sparse.block_sparse import gathered
from . import known

# Blocks that are looked for, the largest first: fewer, larger blocks are faster at the same density.
BLOCKS = (128, 64, 32, 16)
# A larger block may store so much more than the smallest one.
PADDING = 1.1
# Above it nobody has seen a sparse product win, below the second everybody has: between them it must be known.
MOST, SURELY = 0.6, 0.25


class Parts(NamedTuple):
    """A block-sparse weight: where its blocks lie, and what they hold."""

    crow: Tensor
    col: Tensor
    values: Tensor
    shape: tuple[int, int]

    @property
    def block(self) -> int:
        """Rows and columns of a block."""
        return self.values.shape[1]

    @property
    def density(self) -> float:
        """The share of the weight that is stored."""
        return self.values.numel() / (self.shape[0] * self.shape[1])


def _mask(w: Tensor, block: int) -> Tensor:
    """Which blocks hold anything."""
    n, k = w.shape
    return (w.view(n // block, block, k // block, block) != 0).any(3).any(1)


def size(w: Tensor) -> int | None:
    """The size of the blocks a weight was pruned by, as far as it can be seen; nothing where it is not sparse."""
    fit = [b for b in BLOCKS if w.shape[0] % b == 0 and w.shape[1] % b == 0]
    if not fit:
        return None
    stored = {b: float(_mask(w, b).float().mean()) for b in fit}
    least = stored[fit[-1]]
    return next((b for b in fit if stored[b] <= min(PADDING * least, MOST)), None)


def parts(w: Tensor, block: int) -> Parts:
    """The blocks of a weight that hold anything."""
    mask = _mask(w, block)
    if not mask.any():
        mask[0, 0] = True  # kernels want something to do
    return Parts(*gathered(w, mask, block), (w.shape[0], w.shape[1]))


def text(of: Parts, bias: Tensor | None, tokens: int) -> str:
    """The problem of a block-sparse layer at a number of tokens, as ``bsr_linear`` poses it."""
    n, k = of.shape
    x = of.values.new_empty((16, k))
    if x.is_cuda:
        out, beside = x.new_empty((16, n)).t(), bias
    else:  # the CPU's kernels write rows of what is turned afterwards
        out, beside = x.new_empty((n, 16)), None
    report = _warplap.bsr_problem(of.crow, of.col, of.values, n, k, x.t(), out, beside)
    return known.at(report, "n", tokens)


def is_faster(of: Parts, bias: Tensor | None, dense: list[str], sizes: list[int], race: bool) -> tuple[bool, str]:
    """Whether a layer is faster with its blocks than dense, and how that is known. ``dense`` are its dense problems at
    ``sizes``."""
    gpu = of.values.device.index if of.values.is_cuda else None
    sparse = [text(of, bias, tokens) for tokens in sizes]
    if race:
        known.raced([*sparse, *dense], gpu)
    pairs = [(known.lookup(s, gpu), known.lookup(d, gpu)) for s, d in zip(sparse, dense)]
    both = [(s.us, d.us) for s, d in pairs if s is not None and d is not None]
    if not both:
        return of.density <= SURELY, f"nothing is known of it, and {of.density:.3g} is stored"
    ours, theirs = (sum(times) for times in zip(*both))
    return ours < theirs, f"{ours:.1f} µs against {theirs:.1f} dense over {len(both)} sizes"
