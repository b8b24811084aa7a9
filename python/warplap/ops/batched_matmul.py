"""matmul with batches on both sides, as torch.matmul spreads them: one batched product, by whoever is fastest here."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..operator.library import NAMES
from ..operator.prepared import prepared


def matmul(a: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
    """``b`` has three dimensions or more."""
    if a.ndim >= 2 and out is None and not torch.compiler.is_compiling():
        lead = _same_lead(a, b)
        if lead is not None:
            (m, k), n = a.shape[-2:], b.shape[-1]
            count = math.prod(lead)
            problem = f"gemm:m={m},n={n},k={k},dtype={NAMES[a.dtype]},batch={count}"
            c = prepared(problem).direct(a.reshape(count, m, k), b.reshape(count, k, n), None, None)
            if c is not None:
                return c.reshape(*lead, m, n)
    # Gradients, tracing, factors that are spread over a batch: torch's own.
    return torch.matmul(a, b) if out is None else torch.matmul(a, b, out=out)


def _same_lead(a: Tensor, b: Tensor) -> torch.Size | None:
    """The batch that both have, where each lies in memory matrix behind matrix."""
    lead = b.shape[:-2]
    sizes = (*lead, *a.shape[-2:], *b.shape[-2:])
    fits = a.shape[:-2] == lead and a.shape[-1] == b.shape[-2] and all(0 < s <= 1 << 20 for s in sizes)
    # A batch of one is a product like any other, which problems of batches do not name.
    return lead if fits and math.prod(lead) > 1 and a.is_contiguous() and b.is_contiguous() else None
