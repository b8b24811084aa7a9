"""The weight of a sparse layer as a call wants it: looked at once for each pattern, known again by its parts.

A layer's indices seldom change and its values stay where they are; what was found about them (that they fit each other,
the sparse tensor that the native half knows) holds until one of them is another one.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from . import _warplap
from ._blocks import bsr_node
from ._callables import capturing
from ._library import FLOATS
from ._nodes import PLAIN, is_watched


class Pattern(NamedTuple):
    """A weight that was looked at, and how it was known."""

    crow: Tensor
    col: Tensor
    values: Tensor
    versions: tuple[int, int]
    memory: int
    shape: tuple[int, int]
    indices: tuple[Tensor, Tensor]
    """Copies of the indices, which nobody else writes."""
    sparse: Tensor
    """The weight as a sparse tensor over them and the same values."""

    def is_of(self, crow: Tensor, col: Tensor, values: Tensor) -> bool:
        """Whether these are still its parts."""
        return (
            self.crow is crow
            and self.col is col
            and self.values is values
            and self.versions == (crow._version, col._version)
            and self.memory == values.data_ptr()
        )

    def product(self, x: Tensor) -> Tensor | None:
        """``(weight @ x.T)`` at once, where no gradient is wanted; None where that is not for this way to do."""
        return _warplap.bsr_direct(self.sparse, x.t(), None)

    def node(self, x: Tensor) -> Tensor | None:
        """The same as a node of torch's graph; None where somebody watches."""
        if type(x) not in PLAIN or x.dtype != self.values.dtype or x.device != self.values.device or is_watched():
            return None
        return bsr_node(*self.indices, self.values, *self.shape, x.t())  # type: ignore[no-any-return]


def pattern(crow: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> Pattern | None:
    """A weight that is what most layers have: plain, dense parts in one place; None where it is something else."""
    parts = (crow, col, values)
    plain = all(type(t) in PLAIN and t.layout == torch.strided and t.device == values.device for t in parts)
    if not plain or values.dtype not in FLOATS or values.device.type not in ("cpu", "cuda") or is_watched():
        return None
    if values.ndim != 3 or any(side % 8 or not 8 <= side <= 128 for side in values.shape[1:]):
        return None
    if crow.is_inference() or col.is_inference():  # nobody counts how often they are written
        return None
    if values.is_cuda and capturing():  # what is copied now is there when the graph runs
        return None
    with torch.inference_mode(False), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of sparse tensors: this one is nobody's business
        # A sparse tensor does not tell how often its indices were written.
        indices = crow.clone(), col.clone()
        sparse = torch.sparse_bsr_tensor(*indices, values.detach(), shape, check_invariants=False)
    if sparse.values().data_ptr() != values.data_ptr():
        return None  # of a version that makes copies
    return Pattern(crow, col, values, (crow._version, col._version), values.data_ptr(), shape, indices, sparse)
