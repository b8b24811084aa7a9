"""The operators over torch tensors, registered with torch.library: schemas, kernels, shapes under tracing, gradients.

Choosing happens inside the operator when it runs, so nothing is measured while a program is traced, and dynamic shapes
recompile nothing.
"""

from __future__ import annotations

from .gated import at_once as activated_at_once
from .gated import gated
from .attention.dense import attention, spread_mask
from .attention.dense import bent as bent_attention
from .attention.dense import trained as trained_attention
from .block_sparse import bsr_matmul
from .norm.prologue import norm as norm_front
from .attention.strided import direct as gapped_attention
from .attention.strided import told as told_of_gaps
from .gated_linear import at_once as gated_at_once
from .gated_linear import gated_linear
from .linear_joined import joined as joined_linear
from .linear import linear
from ..operator.library import autocast
from .linear_cross_entropy import linear_cross_entropy
from .norm_linear import at_once as norm_linear_at_once
from .norm_linear import forget as forget_folded
from .norm_linear import norm_linear
from .norm.quantized import norm as norm_quant
from .norm.dense import norm
from .attention.varlen import packed as packed_attention
from .attention.paged import paged as paged_attention
from .matmul import matmul
from .quantized import int_mm, scaled_mm
from .rope_direct import rope as rope_at_once
from .rope import rope
from .softmax import cross_entropy, softmax
from .sparse_linear import linear as sparse_linear
from ..training.products import linear as trained_linear
from ..training.products import matmul as trained_matmul

__all__ = [
    "activated_at_once", "attention", "bent_attention", "bsr_matmul", "cross_entropy", "forget_folded",
    "gapped_attention", "gated", "gated_at_once", "gated_linear", "int_mm", "joined_linear",
    "linear", "linear_cross_entropy", "matmul", "norm", "norm_front", "norm_linear", "norm_linear_at_once", "norm_quant",
    "packed_attention", "paged_attention",
    "rope", "rope_at_once", "scaled_mm", "softmax", "sparse_linear", "spread_mask", "told_of_gaps", "trained_attention",
    "trained_linear", "trained_matmul",
]  # fmt: skip

for _name in ("matmul", "linear", "linear_finished", "gated_linear", "norm_linear", "attention", "bsr_matmul",
              "bsr_linear"):  # fmt: skip
    autocast(_name, "cpu", "AutocastCPU")
    autocast(_name, "cuda", "AutocastCUDA")
