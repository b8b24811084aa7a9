"""``warplap.enable()``: torch's own functions go where measurements say, without an edit of the program.

Each function is replaced in the module where programs look it up (``torch.nn.functional.linear`` is what ``nn.Linear``
calls). What is not plainly a call of ours goes to torch's function at once: a compiler that traces, a subclass, another
type or device; and so does whatever an operator of ours refuses, and what was seen to be faster by torch's function,
the host's part of the call included (``call_race``). Compiled programs are for :func:`warplap.fuse`, which
sees more than a call at a time.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from types import TracebackType
from typing import Any, Callable, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from ..ops import functions
from .call.call_race import CallRace

_log = logging.getLogger("warplap")

Call = Callable[..., Any]

_TYPES = frozenset((torch.float32, torch.float16, torch.bfloat16))
_PLAIN = frozenset((Tensor, torch.nn.Parameter))
# Whether one of torch.func's transforms is on: most of our operators are no part of them.
_transforms = torch._C._are_functorch_transforms_active
# What says that an operator of ours does not take a call: torch's function does, or says what is wrong.
_REFUSED = (NotImplementedError, TypeError, ValueError)

# Whether an operator of ours is at work in this thread: what it calls of torch's is torch's.
_at_work = threading.local()


class _Replaced(NamedTuple):
    """A function of torch's and who answers for it. ``ours`` gives None for a call that it leaves to torch."""

    owner: Any
    name: str
    ours: Call


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if weight.dtype != input.dtype or weight.ndim != 2:
        return None
    return functions.linear(input, weight, bias)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    if dropout_p or not query.ndim == key.ndim == value.ndim == 4:
        return None
    return functions.attention(query, key, value, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)


def _softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    if dtype is not None or dim is None or input.ndim == 0 or dim not in (-1, input.ndim - 1):
        return None
    return functions.softmax(input)


def _torch_softmax(input: Tensor, dim: int | None = None, dtype: Any = None, **other: Any) -> Any:
    return None if other else _softmax(input, dim, dtype=dtype)


def _rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Any:
    if tuple(normalized_shape) != input.shape[-1:]:
        return None
    # Where none is given torch takes that of the type it computes in, which for halves is float32.
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    return functions.norm(input, weight, kind="rms", eps=eps)


def _layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:  # fmt: skip
    if tuple(normalized_shape) != input.shape[-1:]:
        return None
    return functions.norm(input, weight, bias, kind="layer", eps=eps)


def _cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None, ignore_index: int = -100,
    reduce: Any = None, reduction: Any = "mean", label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    if weight is not None or size_average is not None or reduce is not None:
        return None
    if input.ndim != 2 or target.ndim != 1 or target.dtype != torch.int64 or input.numel() == 0:
        return None
    loss = functions.cross_entropy(
        input, target, ignore_index=ignore_index, label_smoothing=label_smoothing, reduction=reduction
    )
    return loss.to(input.dtype)


def _matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Any:
    if out is not None or other.dtype != input.dtype or input.ndim < 2 or other.ndim < 2:
        return None
    return functions.matmul(input, other)


def _mm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None, **other: Any) -> Any:
    return _matmul(input, mat2, out=out) if not other and input.ndim == mat2.ndim == 2 else None


def _bmm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None, **other: Any) -> Any:
    is_one = input.ndim == mat2.ndim == 3 and input.shape[0] == mat2.shape[0]
    return _matmul(input, mat2, out=out) if not other and is_one else None


_ALL = [
    _Replaced(F, "linear", _linear),
    _Replaced(F, "scaled_dot_product_attention", _attention),
    _Replaced(F, "softmax", _softmax),
    _Replaced(torch, "softmax", _torch_softmax),
    _Replaced(F, "rms_norm", _rms_norm),
    _Replaced(F, "layer_norm", _layer_norm),
    _Replaced(F, "cross_entropy", _cross_entropy),
    _Replaced(torch, "matmul", _matmul),
    _Replaced(torch, "mm", _mm),
    _Replaced(torch, "bmm", _bmm),
]


def _full_name(one: _Replaced) -> str:
    return f"{one.owner.__name__}.{one.name}"


def _standing_in(stock: Call, ours: Call) -> Call:
    """A function that looks as torch's does, and asks ours first."""

    def asked(*args: Any, **kwargs: Any) -> Any:
        _at_work.on = True
        try:
            return ours(*args, **kwargs)
        except _REFUSED as why:
            _log.debug("%s is torch's own here: %s", stock.__name__, why)
            return None
        finally:
            _at_work.on = False

    choose = CallRace(stock, asked).choose

    def call(*args: Any, **kwargs: Any) -> Any:
        inputs: Any = args[0] if args else next(iter(kwargs.values()), None)
        if type(inputs) not in _PLAIN or inputs.dtype not in _TYPES or is_dynamo_compiling() or _transforms():
            return stock(*args, **kwargs)
        if getattr(_at_work, "on", False) or sys._getframe(1).f_globals.get("__name__", "").startswith("warplap."):
            return stock(*args, **kwargs)
        result = None if (chosen := choose(args, kwargs)) is stock else chosen(*args, **kwargs)
        return stock(*args, **kwargs) if result is None else result

    return functools.wraps(stock)(call)


# What torch had, by the place where it is replaced; empty while nothing is.
_stock: dict[tuple[Any, str], Call] = {}
# What stood in last, with the function it stood in for: what it has learnt of calls holds when it does so again.
_last: dict[tuple[Any, str], tuple[Call, Call]] = {}
_lock = threading.Lock()


class enable:
    """Replaces functions of torch by what is fastest here, for all programs of this process, until :func:`disable`:
    ``torch.nn.functional.linear`` (and with it ``nn.Linear``), ``scaled_dot_product_attention``, ``softmax``,
    ``rms_norm``, ``layer_norm``, ``cross_entropy``, ``torch.matmul``, ``mm`` and ``bmm``; or those of the names that
    are given (``enable("linear", "softmax")``). Answers, types and gradients are torch's; what was never seen is raced
    as the mode says, and torch's own functions race too. With transformers loaded, models take
    ``attn_implementation="warplap"`` besides.

    Printing what comes back says what was replaced. As a context manager it is undone at the end of the block.
    """

    def __init__(self, *names: str) -> None:
        known = {one.name for one in _ALL}
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ValueError(f"names: {unknown[0]!r} is none of {', '.join(sorted(known))}")
        self._mine: list[_Replaced] = []
        with _lock:
            for one in _ALL:
                place = one.owner, one.name
                if (not names or one.name in names) and place not in _stock and hasattr(*place):
                    stock = getattr(*place)
                    if _last.get(place, (None,))[0] is not stock:
                        _last[place] = stock, _standing_in(stock, one.ours)
                    setattr(one.owner, one.name, _last[place][1])
                    _stock[place] = stock
                    self._mine.append(one)
        self._is_in_transformers = _register_in_transformers()
        _log.info("%s", self)

    def __repr__(self) -> str:
        if not self._mine:
            return "warplap.enable(): everything was replaced already"
        more = '; transformers takes attn_implementation="warplap"' if self._is_in_transformers else ""
        return f"warplap.enable(): stands in for {', '.join(map(_full_name, self._mine))}{more}"

    def __enter__(self) -> enable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _undo(self._mine)


def disable() -> None:
    """Gives torch its functions back."""
    _undo(_ALL)


def _undo(ones: list[_Replaced]) -> None:
    with _lock:
        for one in ones:
            stock = _stock.pop((one.owner, one.name), None)
            if stock is not None:
                setattr(one.owner, one.name, stock)


def _register_in_transformers() -> bool:
    """Lets models of transformers be told to attend by warplap, where that library is loaded."""
    if "transformers" not in sys.modules:
        return False
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask
    except ImportError:  # a version that has no such door
        return False
    AttentionInterface.register("warplap", _of_transformers)
    AttentionMaskInterface.register("warplap", sdpa_mask)
    return True


def _of_transformers(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, dropout: float = 0.0,
    scaling: float | None = None, is_causal: bool | None = None, **other: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Attention as its models call it: (batches, heads, tokens, d) in, (batches, tokens, heads, d) out."""
    for name in ("s_aux", "position_bias"):
        if other.get(name) is not None:
            raise NotImplementedError(f"{name}: is given, expected a model without; use attn_implementation='eager'")
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    is_causal = bool(is_causal) and attention_mask is None and query.shape[2] > 1
    gqa = query.shape[1] != key.shape[1]
    result = functions.attention(
        query, key, value, attention_mask, is_causal=is_causal, scale=scaling, enable_gqa=gqa, dropout_p=dropout,
        softcap=other.get("softcap"),
    )  # fmt: skip
    return result.transpose(1, 2).contiguous(), None
