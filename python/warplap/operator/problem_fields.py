"""What a problem's text says, for callables that need to know."""

from __future__ import annotations

from typing import Any


def fields(problem: str) -> dict[str, str]:
    """The fields of a problem by name, as they are written."""
    return dict(field.split("=", 1) for field in problem.split(":", 1)[1].split(","))


# What a problem calls the float types, by their names in NumPy and torch.
DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}

# The activations that a product may end in.
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid")


def of_attention(problem: str) -> dict[str, Any]:
    """What queries see, what scores are multiplied with, and whether heads are shared."""
    given = fields(problem)
    scale = float(given["scale"]) if "scale" in given else int(given["d"]) ** -0.5
    return {"causal": given["causal"] == "true", "scale": scale, "gqa": "hkv" in given}


def of_sparse(problem: str) -> dict[str, Any]:
    """The shape of a sparse matrix."""
    given = fields(problem)
    return {"m": int(given["m"]), "k": int(given["k"])}
