"""Masks that are the same for every input. transformers computes a causal mask from ``arange`` wherever a model is
traced, and attention that is handed a mask takes several times as long as attention that is told to be causal. A mask
that no input reaches is computed once, while the graph is planned, and attention is told what it is. Of windows torch's
attention cannot be told: they stay masks there, and ours is told (``WINDOW``)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.utils._python_dispatch import _disable_current_modes

from ...callables import race
from .node_kinds import acts, argument, draws, is_of_torch, value, word

# Elements of a mask beyond which it stays as it is.
_MOST = 1 << 28

# What is known of a node whose mask is a causal window: the keys before its own that a query sees.
WINDOW = "warplap_window"

_PLACES = {"key": 1, "value": 2, "attn_mask": 3, "is_causal": 5, "enable_gqa": 7}


def name_masks(graph: Graph) -> int:
    """Tells attention of constant masks what they are, and takes copies of keys and values for groups of heads out
    where the mask was all that asked for them; how many calls were changed."""
    calls = [node for node in graph.nodes if word(node) == "attention" and isinstance(_mask(node), Node)]
    if not calls or race.capturing():
        return 0
    constant = _constants(graph)
    known: dict[Any, str | int | None] = {}
    changed = 0
    for node in calls:
        mask, q, k = _mask(node), value(node.args[0]), value(argument(node, 1, "key"))
        if mask not in constant or q is None or k is None or argument(node, 5, "is_causal", False) is not False:
            continue
        key = mask, q.shape[-2], k.shape[-2]
        if key not in known:
            known[key] = _what(*key)
        what = known[key]
        if isinstance(what, int):
            node.meta[WINDOW] = what
        elif what is not None:
            _put(node, attn_mask=None, is_causal=what == "causal")
            _group(node)
            changed += 1
    return changed


def _mask(node: Node) -> Any:
    return argument(node, 3, "attn_mask")


def _constants(graph: Graph) -> set[Node]:
    """Nodes that no input, weight, chance or state reaches. None, where one of them is changed in place."""
    constant: set[Node] = set()
    for node in graph.nodes:
        if acts(node) and any(read in constant for read in node.all_input_nodes):
            return set()
        is_call = node.op in ("call_function", "call_method") and isinstance(value(node), Tensor)
        if is_call and _is_fixed(node) and all(read in constant for read in node.all_input_nodes):
            constant.add(node)
    return constant


def _is_fixed(node: Node) -> bool:
    """Whether what it gives follows from its arguments: not so of operators that programs bring along, of chance, of
    levels of vmap, and of memory that nobody wrote."""
    target: Any = node.target
    if not is_of_torch(node) or acts(node) or draws(node):
        return False
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(target).partition(".")[0] in ("aten", "prims") and "empty" not in str(target)
    name = str(getattr(target, "__name__", target))
    return "batch_dim" not in name and "empty" not in name


def _what(mask: Node, rows: Any, columns: Any) -> str | int | None:
    """``causal``, ``all`` where nothing is masked, how far a causal window reaches back, or None for any other mask."""
    seen = value(mask)
    sizes = (rows, columns, *(seen.shape if seen is not None else ()))
    if seen is None or seen.dtype != torch.bool or not all(type(n) is int for n in sizes):
        return None
    lead = [n for n, stride in zip(seen.shape[:-2], seen.stride()) if stride]
    if seen.ndim < 2 or torch.Size(lead).numel() * rows * columns > _MOST:
        return None
    try:
        with _disable_current_modes(), torch.no_grad():
            actual = _computed(mask, {})
            for dim, stride in enumerate(actual.stride()[:-2]):
                actual = actual if stride else actual.narrow(dim, 0, 1)
            if bool(actual.all()):
                return "all"
            causal = torch.ones(rows, columns, dtype=torch.bool, device=actual.device).tril_()
            if actual.shape[-2:] != causal.shape or rows == 0:
                return None
            if bool((actual == causal).all()):
                return "causal"
            back = int(actual[..., -1, :].sum(-1).flatten()[0]) - 1
            is_window = rows == columns and back >= 1 and bool((actual == causal.triu_(-back)).all())
            return back if is_window else None
    except RuntimeError:  # no memory, or a device that is not here
        return None


def _computed(node: Node, known: dict[Node, Any]) -> Any:
    """A constant, computed."""
    for read in node.all_input_nodes:
        if read not in known:
            known[read] = _computed(read, known)
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: known[n])
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _put(node: Node, **arguments: Any) -> None:
    """Sets arguments of attention, wherever the call has them."""
    args, kwargs = list(node.args), dict(node.kwargs)
    for name, new in arguments.items():
        if _PLACES[name] < len(args):
            args[_PLACES[name]] = new
        else:
            kwargs[name] = new
    node.args, node.kwargs = tuple(args), kwargs


def _group(node: Node) -> None:
    """Keys and values as they were before each was copied for the heads of its group: without a mask, torch's kernels
    for half types on a GPU read them where they lie."""
    q = value(node.args[0])
    if q is None or not q.is_cuda or q.dtype not in (torch.float16, torch.bfloat16):
        return
    once = _before_copies(node)
    if once is not None:
        _put(node, key=once[0], value=once[1], enable_gqa=True)


def _before_copies(node: Node) -> tuple[Node, Node] | None:
    """Keys and values before they were copied, where both were."""
    k, v = (_uncopied(argument(node, place, name)) for place, name in ((1, "key"), (2, "value")))
    return None if k is None or v is None or argument(node, 7, "enable_gqa", False) is not False else (k, v)


def _uncopied(node: Any) -> Node | None:
    """What ``x[:, :, None].expand(…).reshape(…)`` copies for each head of a group."""
    chain = [node]
    for name in ("reshape", "expand"):
        last = chain[-1]
        if not isinstance(last, Node) or last.op != "call_method" or last.target != name:
            return None
        chain.append(last.args[0])
    spread, inner = value(chain[1]), chain[2]
    if not isinstance(inner, Node) or getattr(inner.target, "__name__", "") != "getitem":
        return None
    x, at = inner.args[:2]
    if not isinstance(at, tuple) or any(i not in (None, ..., slice(None)) for i in at if not isinstance(i, Node)):
        return None
    if any(isinstance(i, Node) for i in at) or any(acts(user) for user in getattr(x, "users", ())):
        return None
    own, out = value(x), value(node)
    if own is None or out is None or spread is None or own.ndim != 4 or spread.ndim != 5:
        return None
    batch, heads, length, depth = own.shape
    copies = spread.shape[2]
    shapes = value(inner).shape, spread.shape, out.shape  # type: ignore[union-attr]
    one = (batch, heads, 1, length, depth), (batch, heads, copies, length, depth), (batch, heads * copies, length, depth)
    return x if shapes == one else None  # type: ignore[return-value]
