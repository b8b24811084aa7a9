"""What torch's own operators do in place of ours, and the one line of the log that says so."""

from __future__ import annotations

import logging
from typing import Callable, TypeVar

from ... import _warplap
from ..optional_torch import Tensor

_log = logging.getLogger("warplap")
_logged: set[str] = set()

T = TypeVar("T")


def log_fallback(who: str, why: Exception) -> None:
    """Says once why torch answers."""
    if str(why) not in _logged:
        _logged.add(str(why))
        _log.warning("%s answers: %s", who, why)


def kernel_or_torch(kernel: Callable[[], T], torchs: Callable[[], T], expressed: bool = True, who: str = "torch") -> T:
    """What a kernel gives where a problem expresses the call, else what torch's own operators give."""
    if expressed:
        try:
            return kernel()
        except NotImplementedError as why:
            log_fallback(who, why)
    return torchs()


def kernel_or_none(kernel: Callable[[], T]) -> T | None:
    """What a kernel gives, or None where there is none for the call."""
    return kernel_or_torch(kernel, lambda: None)


def are_torchs(t: Tensor, *calls: _warplap.Prepared) -> bool:
    """Whether torch's own functions answer these calls on the tensor's device because nothing is decided: then a
    program gets the call that it would make itself, with torch's own gradients."""
    try:
        return all(call.is_torchs(t.device.index if t.is_cuda else None) for call in calls)
    except NotImplementedError:
        return False
