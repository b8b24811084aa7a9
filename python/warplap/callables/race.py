"""Callables as candidates of a race: the base of ``tunable``, ``tune_kernel`` and the Triton decorator. The engine
races them as it races every variant; what is said here is how one is run, proved and tried out."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import logging
import re
import textwrap
from typing import Any, Callable, Sequence

from .. import _warplap
from .harness import Rig, leaves, word_for

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]


_log = logging.getLogger("warplap")


def describe(values: Any) -> str:
    """Types, sizes and strides of the tensors in a value: what decides which candidate is fastest."""
    parts = []
    for t in leaves(values):
        strides = t.stride() if hasattr(t, "stride") else tuple(s // max(t.itemsize, 1) for s in t.strides)
        sizes = "x".join(map(str, t.shape))
        dtype = str(t.dtype).removeprefix("torch.")
        parts.append(f"{dtype}[{sizes}|{'x'.join(map(str, strides))}]")
    return " ".join(parts)


def gpu_of(values: Any) -> int | None:
    """The ordinal of the CUDA device that tensors are on; None for the CPU."""
    if torch is None:
        return None
    result = next((t.device for t in leaves(values) if isinstance(t, torch.Tensor) and t.is_cuda), None)
    return None if result is None else result.index


def source_of(fn: Any) -> str:
    """The source of a function without its decorators: a space that grows does not make what was kept stale."""
    try:
        source = textwrap.dedent(inspect.getsource(fn))
    except (OSError, TypeError):
        return f"{getattr(fn, '__module__', '')}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"
    result = re.search(r"^(async\s+)?def\s", source, re.MULTILINE)
    return source[result.start() :] if result else source


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
    measure: bool = True,
    before: Callable[[Rig], None] | None = None,
    trial: Callable[[Rig, int], tuple[str, str, float] | None] | None = None,
    settle: Callable[[Rig], None] | None = None,
    mode: str | None = None,
    by_wall: bool = False,
) -> tuple[int, dict[str, Any] | None]:
    """The number of the fastest right candidate, and what is known about the key; the first one where nothing may be
    measured (in this mode, under capture, without ``measure``) and nothing is known. ``before`` is called on the rig's
    arguments before each timed launch; ``trial`` runs a candidate elsewhere before it runs here for the first time, and
    says why it must not. ``settle`` finds the rig's reference where that is more than a call of ``reference``.
    ``mode`` is gone by instead of the process's. ``by_wall`` has the host's clock time candidates that wait for their
    GPU themselves."""
    mode = mode or _warplap.mode()
    if mode == "off":
        return 0, None
    gpu = None if by_wall else gpu_of((args, kwargs))
    if gpu is not None:  # the device's own versions say nothing of torch
        candidates = [(name, config, f"{source}\ntorch {torch.__version__}") for name, config, source in candidates]
    shop = _Shop(runs, reference, args, kwargs, tolerance, before, trial, settle)
    try:
        result = _warplap.race(
            op_name(op),
            key,
            candidates,
            shop.ready,
            shop.prove,
            None if trial is None else shop.trial,
            gpu=gpu,
            budget=budget,
            measure=measure and mode == "tune" and not capturing(),
            again=again,
        )
    except NotImplementedError as why:
        _log.warning("%s: nothing can be raced on this device (%s): the first one runs", op, why)
        return 0, None
    except RuntimeError as error:
        if shop.failed is not None:
            reason = f"{type(shop.failed).__name__}: {shop.failed}"
            raise RuntimeError(f"{op}: the reference failed: {reason}") from shop.failed
        raise error
    return (0, None) if result is None else (result[0], json.loads(result[1]))


class _Shop:
    """What a race asks of its candidates, by number. The rig is set up when somebody is to run for the first time."""

    def __init__(
        self,
        runs: Sequence[Callable[..., Any]],
        reference: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tolerance: float | None,
        before: Callable[[Rig], None] | None,
        trial: Callable[[Rig, int], tuple[str, str, float] | None] | None,
        settle: Callable[[Rig], None] | None,
    ) -> None:
        self._runs, self._inputs = runs, (args, kwargs, tolerance)
        self._before, self._trial = before, trial
        self._settle = settle or (lambda rig: rig.settle(reference))
        self._made: Rig | None = None
        self._tried: set[int] = set()
        self.failed: BaseException | None = None

    def _rig(self) -> Rig:
        if self.failed is not None:
            raise self.failed
        if self._made is None:
            try:
                made = Rig(*self._inputs)
                self._settle(made)
            except Exception as error:
                self.failed = error
                raise
            self._made = made
        return self._made

    def ready(self, i: int) -> Callable[[], Any]:
        """What runs a candidate once on the rig's arguments, as they are."""
        rig, run = self._rig(), self._runs[i]
        rig.reset()
        rig.wait()
        once = functools.partial(run, *rig.args, **rig.kwargs)
        before = self._before
        if before is None:
            return once

        def restored() -> Any:
            before(rig)
            return once()

        return restored

    def prove(self, i: int) -> tuple[str, str, float, float | None]:
        """Whether a candidate is right: a word, a reason, the share of the allowed error, and how long it took."""
        try:
            return self._rig().prove(self._runs[i])
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a candidate that fails is a result
            return *word_for(error), None

    def trial(self, i: int) -> tuple[str, str, float] | None:
        """Why a candidate must not run here, if so."""
        if self._trial is None or i in self._tried:
            return None
        self._tried.add(i)
        try:
            rig = self._rig()
            rig.reset()
            return self._trial(rig, i)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            return word_for(error)
