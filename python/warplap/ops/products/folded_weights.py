"""Weights with a norm's gain folded in: made once, kept as long as the weight lives."""

from __future__ import annotations

import threading
import weakref
from typing import Any, NamedTuple

from ...callables import race
from ...operator.optional_torch import Tensor, torch

if torch is not None:
    from torch.utils.weak import WeakIdKeyDictionary


class _Kept(NamedTuple):
    """A folded weight: of which gain, in which state of both, and the stream that made it."""

    gain: weakref.ref[Tensor]
    state: tuple[Any, ...]
    made: Tensor
    stream: Any


# By the weight, as long as that lives. What a captured graph has seen lives for ever: it may be replayed at any time.
_folded: Any = None if torch is None else WeakIdKeyDictionary()
_captured: dict[int, Tensor] = {}
_lock = threading.Lock()


def folded(w: Tensor, gain: Tensor | None, make: bool = False) -> Tensor | None:
    """The weight with a norm's gain folded in, where it is known; with ``make`` it is made, where both are parameters:
    those stay where they are, and say when they were changed in place. What a program computes does neither."""
    if gain is None:
        return w
    if any(type(t) is not torch.nn.Parameter or t.is_inference() for t in (w, gain)):
        return None
    state = w._version, gain._version, w.data_ptr(), gain.data_ptr(), w.dtype
    kept = _folded.get(w)
    is_known = kept is not None and kept.gain() is gain and kept.state == state
    if not is_known and (not make or race.capturing()):
        return None
    stream = torch.cuda.current_stream(w.device) if w.is_cuda else None
    if not is_known:
        made = (w.detach() * gain.detach()).contiguous()
        if stream is not None:
            stream.synchronize()  # once a weight: other streams may read it at once
        kept = _Kept(weakref.ref(gain), state, made, stream)
        with _lock:
            _folded[w] = kept
    elif stream is not None and stream != kept.stream:
        kept.made.record_stream(stream)
    if stream is not None and race.capturing():
        _captured[kept.made.data_ptr()] = kept.made
    result: Tensor = kept.made
    return result


def forget() -> None:
    """Frees all folded weights but those of captured graphs."""
    with _lock:
        if _folded is not None:
            _folded.clear()
