"""All operators as users call them."""

from __future__ import annotations

from ..operator.call.call_cache import run
from .attention.api import attention
from .gated import gated
from .losses.cross_entropy import cross_entropy
from .losses.linear_cross_entropy import linear_cross_entropy
from .norm.api import norm
from .products.gated_linear import gated_linear
from .products.linear import linear
from .products.matmul import matmul
from .products.norm_linear import forget_folded, norm_linear
from .products.quantized import int_mm, scaled_mm
from .rope import rope
from .softmax import softmax
from .sparse import sparse_linear  # noqa: F401  registers what warplap.nn and compiled programs call
from .sparse.block_sparse import bsr_matmul
from .topk_softmax import topk_softmax

__all__ = [
    "attention", "bsr_matmul", "cross_entropy", "forget_folded", "gated", "gated_linear", "int_mm", "linear",
    "linear_cross_entropy", "matmul", "norm", "norm_linear", "rope", "run", "scaled_mm", "softmax",
    "topk_softmax",
]  # fmt: skip
