"""torch's forms of attention in the order in which they race: of two that are as fast the earlier wins."""

from __future__ import annotations

from .torch_attention import BACKENDS, ON_CPU
from .torch_attention_grad import FUSED, OF_MASK
from .torch_varlen import PACKED

CANDIDATES = [ON_CPU, *FUSED, OF_MASK, *PACKED, *BACKENDS]
