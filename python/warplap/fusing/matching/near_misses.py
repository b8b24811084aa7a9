"""Why an operator of ours does not stand in for a node that looks as if it could."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node

from .node_kinds import argument, value, word

if TYPE_CHECKING:
    from ..plan import Plan

# Operators that stand alone in a graph; what is joined with them (activations, sums) is theirs.
_OURS = ("linear", "layer_norm", "rms_norm", "softmax", "attention", "cross_entropy")
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def left(plan: Plan) -> list[str]:
    """A line for each reason, with the first node that has it and how many more there are."""
    covered = {node for founds in plan.kinds.values() for result in founds for node in result.nodes}
    cut = {node: acts for result, acts in plan.cut for node in result.nodes}
    whys: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], Node] = {}
    for node in plan.nodes:
        name = word(node)
        if name not in _OURS or node in covered:
            continue
        why = f"{cut[node].name} changes something in its midst" if node in cut else _why(node, name)
        first.setdefault((name, why), node)
        whys[name, why] += 1
    more = {key: f" (and {n - 1} more)" if n > 1 else "" for key, n in whys.items()}
    return [f"{first[key].name}{more[key]}: {key[0]} is left to torch: {key[1]}" for key in whys]


def _why(node: Node, name: str) -> str:
    tensors = [t for t in map(value, (node, *node.all_input_nodes)) if t is not None]
    return _of_tensors(tensors) or _of_arguments(node, name) or "no pattern fits the way it is called"


def _of_tensors(tensors: list[Tensor]) -> str | None:
    for t in tensors:
        if not isinstance(t, FakeTensor) and type(t) not in (Tensor, torch.nn.Parameter):
            return f"one of its tensors is a {type(t).__name__}"
        if t.layout != torch.strided:
            return f"one of its tensors lies as {t.layout}"
    kinds = sorted({str(t.dtype).removeprefix("torch.") for t in tensors if t.is_floating_point()})
    if len(kinds) > 1:
        return f"its tensors are of several types ({', '.join(kinds)})"
    odd = [t.dtype for t in tensors if t.is_floating_point() and t.dtype not in _FLOATS]
    return f"it computes in {kinds[0]}, and ours in float32, float16 and bfloat16" if odd else None


def _of_arguments(node: Node, name: str) -> str | None:
    if name == "attention" and argument(node, 4, "dropout_p", 0.0):
        return f"it drops weights (dropout_p={argument(node, 4, 'dropout_p')})"
    if name == "softmax":
        return _of_softmax(node)
    if name in ("layer_norm", "rms_norm"):
        sizes: Any = argument(node, 1, "normalized_shape", ())
        return f"it spans {len(tuple(sizes))} dimensions, and ours the last one" if len(tuple(sizes)) != 1 else None
    if name == "cross_entropy":
        classes = value(argument(node, 1, "target"))
        if argument(node, 2, "weight") is not None:
            return "its classes have weights"
        if classes is not None and (classes.ndim != 1 or classes.dtype != torch.int64):
            return "ours takes rows of logits and one int64 class a row"
    return None


def _of_softmax(node: Node) -> str | None:
    inputs, dim = value(node), argument(node, 1, "dim")
    if argument(node, 2, "dtype") is not None:
        return "it changes the type on its way"
    ends = inputs is None or dim in (-1, inputs.ndim - 1)
    return None if ends else f"it goes along dimension {dim}, and ours along the last"
