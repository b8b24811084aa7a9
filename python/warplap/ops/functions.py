"""All operators as users call them, a line each: what is imported here is public, ``warplap.<name>``."""

from ..operator.call.call_cache import run as run
from .attention.api import attention as attention
from .gated import gated as gated
from .losses.cross_entropy import cross_entropy as cross_entropy
from .losses.linear_cross_entropy import linear_cross_entropy as linear_cross_entropy
from .norm.api import norm as norm
from .products.gated_linear import gated_linear as gated_linear
from .products.grouped_mm import grouped_mm as grouped_mm
from .products.linear import linear as linear
from .products.matmul import matmul as matmul
from .products.norm_linear import forget_folded as forget_folded, norm_linear as norm_linear
from .products.quantized import int_mm as int_mm, scaled_mm as scaled_mm
from .rope import rope as rope
from .softmax import softmax as softmax
from .sparse import sparse_linear as _sparse_linear  # noqa: F401  registers what warplap.nn and compiled programs call
from .sparse.block_sparse import bsr_matmul as bsr_matmul
from .topk_softmax import topk_softmax as topk_softmax
