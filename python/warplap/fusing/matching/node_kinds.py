"""What a node of a traced graph computes, in one word, whichever of torch's names a program called it by."""

from __future__ import annotations

import functools
import inspect
import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Node

_NAMES: dict[str, tuple[Any, ...]] = {
    "add": (operator.add, torch.add),
    "mul": (operator.mul, torch.mul),
    "div": (operator.truediv, torch.div, torch.true_divide),
    "matmul": (operator.matmul, torch.matmul, torch.bmm),
    "pow": (operator.pow, torch.pow),
    "square": (torch.square,),
    "mean": (torch.mean,),
    "rsqrt": (torch.rsqrt,),
    "transpose": (torch.transpose,),
    "softmax": (torch.softmax, F.softmax),
    "dropout": (torch.dropout, F.dropout),
    "linear": (F.linear,),
    "layer_norm": (torch.layer_norm, F.layer_norm),
    "rms_norm": (torch.rms_norm, F.rms_norm),
    "attention": (F.scaled_dot_product_attention,),
    "cross_entropy": (F.cross_entropy,),
    "relu": (torch.relu, F.relu),
    "gelu": (F.gelu,),
    "silu": (F.silu,),
    "tanh": (torch.tanh, F.tanh),
    "sigmoid": (torch.sigmoid, F.sigmoid),
}
_WORDS = {target: word for word, targets in _NAMES.items() for target in targets}
# Methods that are not called as the word is.
_METHODS = {"bmm": "matmul", "float": "to", "type": "to"}

_VIEWS = frozenset(
    "view reshape expand flatten unflatten transpose permute unsqueeze squeeze contiguous expand_as view_as".split()
)


def word(node: Any) -> str | None:
    """The word, where there is one."""
    if not isinstance(node, Node):
        return None
    if node.op == "call_method":
        name = str(node.target)
        return _METHODS.get(name, name if name in _NAMES or name in ("to", "view", "reshape") else None)
    return _WORDS.get(node.target) if node.op == "call_function" else None


def label(node: Node) -> str:
    """What a reader calls the node."""
    return word(node) or str(getattr(node.target, "__name__", node.target))


def is_view(node: Node) -> bool:
    """Whether it only looks at memory in another way."""
    return node.op == "call_method" and node.target in _VIEWS


def value(node: Any) -> Any:
    """The tensor that a node gives, as the tracer saw it: only its sizes and types mean something. None for what is no
    tensor."""
    result = node.meta.get("example_value") if isinstance(node, Node) else None
    return result if isinstance(result, Tensor) else None


def argument(node: Any, place: int, name: str, default: Any = None) -> Any:
    """An argument by its place or name."""
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def dropout_of(node: Any) -> float | None:
    """The share of its elements that a dropout drops: 0 where it does nothing, None where that is not written there."""
    training = argument(node, 2, "train" if node.target is torch.dropout else "training", True)
    share = argument(node, 1, "p", 0.5)
    if training is False:
        return 0.0
    return float(share) if training is True and isinstance(share, (int, float)) else None


def acts(node: Node) -> bool:
    """Whether it does more than compute what it gives: changes a tensor that it was given, or a state of torch's that
    holds for nodes after it (autocast, no_grad). Nothing may change places with it."""
    if node.kwargs.get("out") is not None or argument(node, _place_of_inplace(node.target), "inplace") is True:
        return True
    if isinstance(node.target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return any(schema.is_mutable or not schema.returns for schema in _schemas(node.target))
    name = str(node.target) if node.op == "call_method" else str(getattr(node.target, "__name__", ""))
    if getattr(node.target, "__module__", "") == "_operator":
        return name in ("setitem", "delitem") or (name.startswith("i") and name[1:] in _IN_PLACE)
    if (name.endswith("_") and not name.endswith("__")) or name.startswith(("_enter", "_exit", "_set_", "__set")):
        return True
    if "_nesting" in name or name == "lazy_load_decompositions":  # a level of vmap begins or ends
        return True
    # Whoever is called for nothing that is read, and is not torch's, does something that is not seen here.
    return not node.users and not is_of_torch(node)


def is_spare(node: Node) -> bool:
    """Whether nobody reads what it computes: transformers' masks leave such nodes in every graph."""
    if node.users or node.op not in ("call_function", "call_method") or acts(node) or draws(node):
        return False
    if not isinstance(node.meta.get("example_value"), (Tensor, int, float, torch.SymInt, torch.Size)):
        return False  # a stream that waits, say
    return is_of_torch(node) and not label(node).startswith(_CHECKS)


_CHECKS = ("_assert", "_check", "_constrain", "_functional_assert", "sym_constrain", "_log_api")


def is_of_torch(node: Node) -> bool:
    module = str(getattr(node.target, "__module__", None) or "").partition(".")[0]
    return node.op == "call_method" or module in ("torch", "_operator", "math", "builtins")


def _schemas(target: Any) -> list[Any]:
    if isinstance(target, torch._ops.OpOverload):
        return [target._schema]
    return [getattr(target, name)._schema for name in target.overloads()]


@functools.lru_cache(maxsize=None)
def _place_of_inplace(target: Any) -> int:
    """Where a function takes its argument ``inplace``; far behind all others where it takes none."""
    try:
        return list(inspect.signature(target).parameters).index("inplace")
    except (TypeError, ValueError):  # a method's name, a function of C, or it has none
        return 1 << 30


_IN_PLACE = frozenset("add and concat floordiv lshift matmul mod mul or pow rshift sub truediv xor".split())


def draws(node: Node) -> bool:
    """Whether it depends on chance: two runs differ."""
    if word(node) == "dropout":
        return dropout_of(node) != 0.0
    if word(node) == "attention":
        return float(argument(node, 4, "dropout_p", 0.0)) > 0.0
    name = label(node)
    return any(part in name for part in ("rand", "bernoulli", "multinomial", "dropout"))
