"""The operators over torch tensors, registered with torch.library: schemas, kernels, shapes under tracing, gradients.

Choosing happens inside the operator when it runs, so nothing is measured while a program is traced, and dynamic shapes
recompile nothing.
"""

from __future__ import annotations

from ._activated_torch import at_once as activated_at_once
from ._activated_torch import gated
from ._attention import attention, spread_mask
from ._attention import bent as bent_attention
from ._attention import trained as trained_attention
from ._blocks import bsr_matmul
from ._front import norm as norm_front
from ._gaps import direct as gapped_attention
from ._gaps import told as told_of_gaps
from ._gated_torch import at_once as gated_at_once
from ._gated_torch import gated_linear
from ._joined import joined as joined_linear
from ._layers import linear
from ._library import autocast
from ._linear_entropy import linear_cross_entropy
from ._norm_linear import at_once as norm_linear_at_once
from ._norm_linear import forget as forget_folded
from ._norm_linear import norm_linear
from ._norm_quant import norm as norm_quant
from ._norm_torch import norm
from ._packed import packed as packed_attention
from ._paged import paged as paged_attention
from ._products import matmul
from ._quant import int_mm, scaled_mm
from ._rope_quick import rope as rope_at_once
from ._rope_torch import rope
from ._rows_torch import cross_entropy, softmax
from ._sparse import linear as sparse_linear
from ._trained import linear as trained_linear
from ._trained import matmul as trained_matmul

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
