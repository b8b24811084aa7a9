"""torch's block-sparse tensors, without what torch says once in a process to whoever makes the first one: users who
asked for none are told nothing."""

from __future__ import annotations

import functools
import warnings

from .optional_torch import Tensor, torch


@functools.cache
def _hear() -> None:
    index, block = torch.zeros(2, dtype=torch.int32), torch.zeros(0, 1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_bsr_tensor(index, index[:0], block, (1, 1))


def sparse(crow: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """The matrix that these are the parts of; they are not looked at again."""
    _hear()
    return torch.sparse_bsr_tensor(crow, col, values, shape, check_invariants=False)
