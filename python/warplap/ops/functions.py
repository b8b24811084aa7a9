"""All operators as users call them."""

from __future__ import annotations

from ..operator.call_cache import run
from . import sparse_linear  # noqa: F401  registers what warplap.nn and compiled programs call
from .attention.api import attention
from .block_sparse import bsr_matmul
from .cross_entropy import cross_entropy
from .gated import gated
from .gated_linear import gated_linear
from .linear import linear
from .linear_cross_entropy import linear_cross_entropy
from .matmul import matmul
from .norm.api import norm
from .norm_linear import forget_folded, norm_linear
from .quantized import int_mm, scaled_mm
from .rope import rope
from .softmax import softmax
from .topk_softmax import topk_softmax

__all__ = [
    "attention", "bsr_matmul", "cross_entropy", "forget_folded", "gated", "gated_linear", "int_mm", "linear",
    "linear_cross_entropy", "matmul", "norm", "norm_linear", "rope", "run", "scaled_mm", "softmax",
    "topk_softmax",
]  # fmt: skip
