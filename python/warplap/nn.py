"""Modules for torch: ``Linear`` and ``SparseLinear``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .operator import autocast
from .operator.activations import Activation
from .operator.checks import floats
from .operator.sparse_warning import sparse
from .ops.products.linear import linear
from .ops.sparse.block_sparse import gathered
from .ops.sparse.sparse_linear import BSR_LINEAR

__all__ = ["Linear", "SparseLinear"]


class Linear(nn.Linear):
    """torch's linear layer with its product, bias and activation raced as one problem: see ``warplap.linear``.

    Parameters and their names are those of ``torch.nn.Linear``, so that a state dictionary of one loads into the other.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        activation: Activation | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias, self.activation)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        shown = super().extra_repr()
        return shown if self.activation is None else f"{shown}, activation={self.activation!r}"


class SparseLinear(nn.Module):
    """A linear layer whose weight holds only some of its square blocks: ``y = x @ weight.T + bias``.

    Made from a dense layer and a mask of blocks; trains (the stored blocks, the bias, and what is before it).
    """

    crow: Tensor
    col: Tensor
    bias: nn.Parameter | None

    def __init__(
        self, in_features: int, out_features: int, crow: Tensor, col: Tensor, values: Tensor, bias: Tensor | None
    ) -> None:
        super().__init__()
        self.in_features, self.out_features, self.block = in_features, out_features, values.shape[1]
        self.register_buffer("crow", crow)
        self.register_buffer("col", col)
        self.values = nn.Parameter(values)
        self.register_parameter("bias", None if bias is None else nn.Parameter(bias))

    @classmethod
    def from_dense(cls, dense: nn.Linear, mask: Tensor, block: int = 32) -> SparseLinear:
        """Keeps the blocks of a dense layer's weight where ``mask`` (out/block by in/block, bool) is true."""
        rows, columns = dense.out_features, dense.in_features
        if block % 8 or not 8 <= block <= 128:
            raise ValueError(f"block: is {block}, expected a multiple of 8 from 8 to 128")
        if rows % block or columns % block:
            raise ValueError(f"dense: has a weight of {rows}x{columns}, expected multiples of block={block}")
        if tuple(mask.shape) != (rows // block, columns // block) or mask.dtype != torch.bool:
            expected = f"bool of shape {[rows // block, columns // block]}"
            raise ValueError(f"mask: is {mask.dtype} of shape {list(mask.shape)}, expected {expected}")
        bias = dense.bias.detach().clone() if dense.bias is not None else None
        return cls(columns, rows, *gathered(dense.weight.detach(), mask.to(dense.weight.device), block), bias)

    @property
    def density(self) -> float:
        """The share of blocks that are stored."""
        return self.values.shape[0] * self.block**2 / (self.in_features * self.out_features)

    def to_dense(self) -> nn.Linear:
        """The dense layer that computes the same."""
        dense = nn.Linear(self.in_features, self.out_features, self.bias is not None)
        dense = dense.to(device=self.values.device, dtype=self.values.dtype)
        with torch.no_grad():
            shape = (self.out_features, self.in_features)
            dense.weight.copy_(sparse(self.crow, self.col, self.values, shape).to_dense())
            if self.bias is not None:
                dense.bias.copy_(self.bias)
        return dense

    def forward(self, x: Tensor) -> Tensor:
        try:
            wide = x.shape[-1]
        except (AttributeError, IndexError):
            raise TypeError(f"x: is {x!r:.40}, expected a tensor of {self.in_features} columns") from None
        if wide != self.in_features:
            raise ValueError(f"x: has shape {list(x.shape)}, expected {self.in_features} columns")
        # As modules keep them: asking the module takes longer. What is not there is computed for every call.
        own, buffers = self._parameters, self._buffers
        values, bias = own.get("values"), own.get("bias")
        values = self.values if values is None else values
        bias = self.bias if bias is None else bias
        flat = x if x.ndim == 2 else x.reshape(-1, self.in_features)
        if flat.dtype != values.dtype and not autocast.is_on(flat):
            floats(values=values, x=flat)
        fused = bias is None or bias.dtype == values.dtype
        y = BSR_LINEAR.call(
            buffers["crow"], buffers["col"], values, bias if fused else None, self.out_features, flat, False
        )
        y = y if fused else y + bias
        return y if x.ndim == 2 else y.reshape(*x.shape[:-1], self.out_features)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        shape = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{shape}, block={self.block}, density={self.density:.3g}, bias={self.bias is not None}"
