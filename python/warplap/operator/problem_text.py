"""Problems as texts: written by fields, and read back by callables that need to know."""

from __future__ import annotations

from typing import Any


def text(operation: str, **fields: Any) -> str:
    """The text of a problem; what is None or False is left out."""
    word = lambda value: "true" if value is True else repr(value) if isinstance(value, float) else str(value)
    said = ((name, value) for name, value in fields.items() if value is not None and value is not False)
    return f"{operation}:" + ",".join(f"{name}={word(value)}" for name, value in said)


def dtype_name(dtype: Any, what: str = "x", known: dict[str, str] | None = None) -> str:
    """What a problem calls a type of torch's or NumPy's."""
    name = str(dtype).removeprefix("torch.")
    known = DTYPES if known is None else known
    if name not in known:
        raise TypeError(f"{what}: holds {name}, expected {' or '.join(known)}")
    return known[name]


def fields(problem: str) -> dict[str, str]:
    """The fields of a problem by name, as they are written."""
    return dict(field.split("=", 1) for field in problem.split(":", 1)[1].split(","))


# What a problem calls the float types, by their names in NumPy and torch.
DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}

# The activations that a product may end in.
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid")


def of_attention(problem: str) -> dict[str, Any]:
    """What queries see, what scores are multiplied with, and whether heads are shared."""
    inputs = fields(problem)
    scale = float(inputs["scale"]) if "scale" in inputs else int(inputs["d"]) ** -0.5
    return {"causal": inputs["causal"] == "true", "scale": scale, "gqa": "hkv" in inputs}


def of_sparse(problem: str) -> dict[str, Any]:
    """The shape of a sparse matrix."""
    inputs = fields(problem)
    return {"m": int(inputs["m"]), "k": int(inputs["k"])}
