"""The activations that a product may end in, by torch's own functions."""

from __future__ import annotations

from typing import Callable, Literal

from .optional_torch import F, Tensor, torch

Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {} if torch is None else {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}
