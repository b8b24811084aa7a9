"""What the store knows of a product at the sizes of a server: who won there, and how long it took.

Numbers of tokens that share a race (``bucket="changing"``, the default) share an answer. Nothing is measured unless the
mode says so (``modes``).
"""

from __future__ import annotations

import json
import logging
import os
import re
from typing import Any, Iterable, NamedTuple

from .. import _warplap

_log = logging.getLogger("warplap")

# One number of tokens for each race that decoding and prefill share: what is measured where a server is tuned.
SIZES = (1, 2, 4, 8, 16, 32, 64, 256, 1024, 4096)
# Decoding is where a choice pays; prefill is large products, in which everybody is good.
DECODE = 256
# Seconds for each race ahead of serving, unless WARPLAP_VLLM_BUDGET says otherwise.
BUDGET = 6.0
# A server leaves torch's function only for one that is faster by so much, as far as the race can vouch for it: what is
# less is lost in the noise of a model, and may be less than nothing there.
CLEARLY = 0.02


class Known(NamedTuple):
    """The winner of a race, and its time."""

    variant: str
    us: float
    # The share by which torch's function takes longer at the least; nothing where it was not timed.
    lead: float | None

    @property
    def is_worth_it(self) -> bool:
        """Whether somebody is clearly faster than torch's own function; else that is called as if nobody had come."""
        ours = not self.variant.startswith("torch_")
        return ours and (self.lead is None or self.lead >= CLEARLY)


def shared(tokens: int) -> int:
    """The largest number of tokens that shares a race with this one."""
    return _warplap.shared_size(tokens)


def sizes(most: int) -> list[int]:
    """The numbers of tokens to be known for a server of so many at a time."""
    return [size for size in SIZES if size <= max(most, 1)]


def at(text: str, field: str, tokens: int) -> str:
    """A problem's text with another number of tokens."""
    return re.sub(rf"\b{field}=\d+", f"{field}={tokens}", text, count=1)


def lookup(text: str, gpu: int | None) -> Known | None:
    """What was measured of a problem here; nothing that is stale or comes from another device."""
    report: dict[str, Any] = json.loads(_warplap.explain(text, gpu=gpu))
    if report["how"] not in ("stored", "raced") or report["edition"] is None:
        return None
    verdict, behind = report["edition"]["verdict"], []
    for trial in report["edition"]["trials"]:
        timed = trial.get("measured") or trial.get("rejected", {}).get("measurement")
        if trial["variant"].startswith("torch_") and timed and timed.get("behind"):
            behind.append(timed["behind"]["ci"][0])
    return Known(verdict["winner"]["variant"], verdict["median_us"], min(behind, default=None))


def raced(texts: Iterable[str], gpu: int | None) -> None:
    """Races what is not known of problems; what cannot be raced is said and left to torch."""
    budget = float(os.environ.get("WARPLAP_VLLM_BUDGET", BUDGET))
    for text in texts:
        try:
            if lookup(text, gpu) is None:
                _warplap.tune(text, budget=budget, gpu=gpu)
        except (NotImplementedError, RuntimeError, ValueError, OSError) as error:
            _log.warning("left to torch: %s", error if text in str(error) else f"{text}: {error}")
