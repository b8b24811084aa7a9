"""Choosing between callables by the rules of every race, and keeping what was found: the base of ``tunable``, of the
Triton decorator, and of torch's backends on CUDA."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import textwrap
from typing import Any, Callable, Sequence

from . import _warplap
from ._rig import Rig, Stopwatch, leaves, word_for

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]


def describe(values: Any) -> str:
    """Types, sizes and strides of the tensors in a value: what decides which candidate is fastest."""
    parts = []
    for t in leaves(values):
        strides = t.stride() if hasattr(t, "stride") else tuple(s // max(t.itemsize, 1) for s in t.strides)
        sizes = "x".join(map(str, t.shape))
        dtype = str(t.dtype).removeprefix("torch.")
        parts.append(f"{dtype}[{sizes}|{'x'.join(map(str, strides))}]")
    return " ".join(parts)


def device_of(values: Any) -> tuple[dict[str, str], dict[str, str]] | None:
    """Who the CUDA device is that tensors are on; None for the CPU."""
    if torch is None:
        return None
    found = next((t.device for t in leaves(values) if isinstance(t, torch.Tensor) and t.is_cuda), None)
    if found is None:
        return None
    chip = torch.cuda.get_device_properties(found)
    hard = {
        "kind": "cuda",
        "model": chip.name,
        "cc": f"{chip.major}.{chip.minor}",
        "sms": str(chip.multi_processor_count),
        "memory": str(chip.total_memory >> 30),
    }
    return hard, {"torch": torch.__version__, "cuda": str(torch.version.cuda)}


def source_of(fn: Any) -> str:
    """The source of a function without its decorators: a space that grows does not make what was kept stale."""
    try:
        source = textwrap.dedent(inspect.getsource(fn))
    except (OSError, TypeError):
        return f"{getattr(fn, '__module__', '')}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"
    found = re.search(r"^(async\s+)?def\s", source, re.MULTILINE)
    return source[found.start() :] if found else source


def capturing() -> bool:
    """Whether a CUDA stream is being captured: nothing may be measured then."""
    return torch is not None and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def op_name(name: str) -> str:
    """A name the store takes: lower case letters, digits and underscores."""
    plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in name.lower()).strip("_") or "callable"
    if len(plain) <= 48:
        return plain
    return f"{plain[:39]}_{hashlib.blake2s(name.encode()).hexdigest()[:8]}"


def compete(
    op: str,
    key: str,
    candidates: list[tuple[str, dict[str, Any], str]],
    runs: Sequence[Callable[..., Any]],
    reference: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    tolerance: float | None = None,
    budget: float | None = None,
    again: bool = False,
    before: Callable[[Rig, int], None] | None = None,
    measure: bool | None = None,
    keep: bool = True,
    trial: Callable[[Rig, int], tuple[str, str, float] | None] | None = None,
) -> tuple[int, dict[str, Any] | None]:
    """The number of the fastest right candidate, and what is known about the key; the first one where nothing may be
    measured and nothing is known. ``before`` is called on the rig's arguments before each timed launch; ``measure`` is
    for those who ask by hand, whatever the mode; without ``keep`` everyone is raced and nothing is kept. ``trial`` runs
    a candidate elsewhere before it runs here for the first time, and says why it must not."""
    mode = _warplap.mode()
    if mode == "off" and measure is None:
        return 0, None
    if measure is None:
        measure = mode == "tune" and not capturing()
    rig: Rig | None = None
    watches: dict[int, Stopwatch] = {}

    failed: BaseException | None = None

    def ready() -> Rig:
        nonlocal rig, failed
        if failed is not None:
            raise failed
        if rig is None:
            made = Rig(args, kwargs, tolerance)
            try:
                made.settle(reference)
            except Exception as error:
                failed = error
                raise
            rig = made
        return rig

    tried: set[int] = set()

    def prove(i: int) -> tuple[str, str, float]:
        try:
            rig = ready()
            if trial is not None and i not in tried:
                tried.add(i)
                rig.reset()
                refused = trial(rig, i)
                if refused is not None:
                    return refused
            return rig.prove(runs[i])
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a candidate that fails is a result
            return word_for(error)

    def sample(i: int) -> float:
        r = ready()
        if i not in watches:
            r.reset()

            def run() -> None:
                if before is not None:
                    before(r, i)
                runs[i](*r.args, **r.kwargs)

            watches[i] = Stopwatch(run, r.device)
        return watches[i].sample()

    try:
        found = _warplap.contest(
            op_name(op),
            key,
            f"{op_name(op)}:{key}",
            candidates,
            prove,
            sample,
            device=device_of((args, kwargs)),
            budget=4.0 if budget is None else budget,
            measure=measure,
            again=again,
            keep=keep,
        )
    except RuntimeError as error:
        if failed is not None:
            raise RuntimeError(f"{op}: the reference failed: {type(failed).__name__}: {failed}") from failed
        raise error
    return (0, None) if found is None else (found[0], json.loads(found[1]))
