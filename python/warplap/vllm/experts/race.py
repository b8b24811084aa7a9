"""The race of one row: a number of tokens comes in; the config that its row keeps goes out, and what is known of it.

vLLM's default defends the row. The shipped table's row, winners of rows nearby and the commonest winners of all shipped
tables race it first; then steps of one axis from the leaders, as long as steps help; then more of the common ones. The
last race is between the leaders, the default and the shipped row alone, and decides: who is not clearly faster than the
default does not take its place. Every race has a key of its own in the store, so that one that was run answers at once.
"""

from __future__ import annotations

import functools
import gc
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable

import torch

from ...callables import race as callables_race
from . import compile_ahead, fused, prior, space as experts_space
from .compile_ahead import Compiler, Refusal
from .layer import Layer
from .space import Config

OP = "vllm_fused_moe"
# Candidates of one race at most, candidates of the shipped tables in all, and leaders that are gone on from.
MOST, COMMON, LEADERS = 40, 200, 3
# A leader that is so much behind is none; a step that gains less does not help.
BEHIND, HELPS = 1.10, 0.99
# Shares of a row's seconds: its first race, each one after, the last.
FIRST, NEXT, LAST = 0.4, 0.2, 0.2


class DeviceLost(RuntimeError):
    """A candidate took the GPU's context with it: this process measures nothing any more."""


@dataclass
class Row:
    """What is known of a row."""

    tokens: int
    config: Config
    kept: str  # "default", "shipped" or "raced"
    us: float | None = None
    default_us: float | None = None
    shipped_us: float | None = None
    tried: int = 0
    refused: dict[str, int] = field(default_factory=dict)  # by the word
    grade: str = ""
    seconds: float = 0.0

    @property
    def gain(self) -> float | None:
        """How many times as fast as the default."""
        return self.default_us / self.us if self.default_us and self.us else None


@functools.cache
def source() -> str:
    """What makes earlier results stale when it changes: the kernel, and who compiles it."""
    kernel: Any = fused.named("fused_moe_kernel")
    text = getattr(kernel, "cache_key", None) or callables_race.source_of(getattr(kernel, "fn", kernel))
    return f"{text}\ntriton {fused.version('triton')}\nvllm {fused.version('vllm')}"


class Race:
    """The races of one row."""

    def __init__(
        self,
        layer: Layer,
        device: fused.Device,
        tokens: int,
        *,
        known: Iterable[prior.Row] = (),
        near: Iterable[Config] = (),
        compiler: Compiler | None = None,
        budget: float = 20.0,
        again: bool = False,
        most: int = MOST,
        common: int = COMMON,
        whole: bool = False,
        harmful: Iterable[Config] = (),
        trying: Callable[[Config | None], None] = lambda config: None,
    ) -> None:
        self.layer, self.shape, self.device, self.tokens = layer, layer.shape, device, tokens
        self.compiler, self.budget, self.again, self.trying = compiler, budget, again, trying
        self.most = self._fitting(most)
        self.harmful = {experts_space.key(c) for c in harmful}
        self.default = experts_space.whole(fused.default(self.shape, tokens))
        self.shipped = fused.nearest(fused.shipped(self.shape), tokens)
        ranked = prior.ranked(known, self.shape, tokens, device.name, device.arch, device.room)[:common]
        rest = experts_space.space(self.shape, device.arch, device.room) if whole else ()
        self.waiting = [c for c in [*near, *ranked, *rest] if self._is_legal(c)]
        self.times: dict[tuple[int, ...], float] = {}
        self.tried: set[tuple[int, ...]] = set()
        self.refused: dict[tuple[int, ...], str] = {}
        self.names: dict[tuple[int, ...], list[str]] = {}
        self.waited = 0.0
        self.grade = ""
        self._args: tuple[torch.Tensor, ...] | None = None
        self._right: list[torch.Tensor] | None = None

    def _fitting(self, most: int) -> int:
        """Candidates of one race: each keeps what it allocates until its race has ended."""
        if not self.device.torch.startswith("cuda"):
            return most
        s, size = self.shape, 4 if self.shape.dtype == "float32" else 2
        each = self.tokens * s.top_k * (max(2 * s.shard, s.hidden) + s.shard) + 3 * self.tokens * s.hidden
        free, _ = torch.cuda.mem_get_info()
        return max(4, min(most, int(0.5 * free / (size * each))))

    def _is_legal(self, config: Config) -> bool:
        fits = experts_space.why_not(config, self.shape, self.device.arch, self.device.room) is None
        return fits and experts_space.key(config) not in self.harmful

    @property
    def key(self) -> str:
        """What the row is kept by."""
        s = self.shape
        sizes = f"E={s.experts},N={s.shard},K={s.hidden},topk={s.top_k},M={self.tokens},of={s.of_all},dtype={s.dtype}"
        more = f",weights={s.quantised}" if s.quantised else ""
        return sizes + more + (f",block={s.block[0]}x{s.block[1]}" if s.block else "")

    def ahead(self, configs: Iterable[Config]) -> None:
        """Has the kernels of configs compiled in other processes."""
        if self.compiler is None:
            return
        x, shares, ids = self.arguments
        for config in configs:
            name = experts_space.key(config)
            if name in self.names:
                continue
            try:
                with compile_ahead.recording() as result:
                    self.layer.run(config, x, shares[:1], ids[:1])
            except Exception as error:
                self.refused[name] = f"launch_failed: {type(error).__name__}: {error}".splitlines()[0][:200]
                result = []
            self.names[name] = self.compiler.order(result)

    @property
    def arguments(self) -> tuple[torch.Tensor, ...]:
        """Tokens and their routings."""
        if self._args is None:
            self._args = self.layer.arguments(self.tokens)
        return self._args

    def _reference(self, x: torch.Tensor, shares: torch.Tensor, ids: torch.Tensor) -> list[torch.Tensor]:
        """The right answers, worked out once: every race of the row has the same tokens."""
        if bool(x.isnan().any() | shares.isnan().any()):
            return self.layer.right(x, shares, ids)
        if self._right is None:
            self._right = self.layer.right(x, shares, ids)
        return self._right

    def _trial(self, config: Config) -> Refusal | None:
        """Why a config must not be launched: its compiler said so."""
        name = experts_space.key(config)
        if name in self.refused and name in self.names and not self.names[name]:
            return "launch_failed", self.refused[name], 0.0
        self.trying(config)
        if self.compiler is None:
            return None
        began = time.monotonic()
        refused = self.compiler.wait(self.names.get(name, []))
        self.waited += time.monotonic() - began
        return refused

    def race(self, stage: str, configs: list[Config], seconds: float) -> tuple[Config, set[tuple[int, ...]]]:
        """Races configs under one key; the winner, and who cannot be told from it."""
        self.ahead(configs)
        try:
            winner, result = callables_race.compete(
                OP,
                f"{self.key},stage={stage}",
                [("fused_moe_kernel", dict(c), source()) for c in configs],
                [functools.partial(self.layer.run, c) for c in configs],
                self._reference,
                self.arguments,
                {},
                budget=max(seconds, 0.2),
                again=self.again,
                trial=lambda rig, i: self._trial(configs[i]),
            )
        finally:
            self._is_alive()
        self.trying(None)
        if result is None:
            raise RuntimeError("nothing can be raced here, expected mode tune: unset WARPLAP_MODE")
        verdict = result["edition"]["verdict"]
        for trial in result["edition"]["trials"]:
            name = tuple(int(trial["config"][axis]) for axis in experts_space.AXES)
            self.tried.add(name)
            rejected = trial.get("rejected") or {}
            measured = trial.get("measured") or rejected.get("measurement")
            if measured:  # whoever was too slow to go on was right all the same
                self.times[name] = measured["median_us"]
            else:
                self.refused[name] = f"{rejected.get('why', 'rejected')}: {rejected.get('reason', '')}"
        self.grade = verdict["grade"]
        ties = {tuple(int(t["config"][axis]) for axis in experts_space.AXES) for t in verdict["ties"]}
        return configs[winner], ties

    def _is_alive(self) -> None:
        if not self.device.torch.startswith("cuda"):
            return
        try:
            torch.cuda.synchronize()
        except Exception as error:
            raise DeviceLost(f"M={self.tokens}: {type(error).__name__}: {error}".splitlines()[0]) from error
        gc.collect()
        torch.cuda.empty_cache()

    def first(self) -> list[Config]:
        """Who races first: the default, the shipped row, and the likeliest."""
        known = [c for c in (self.default, self.shipped) if c is not None and experts_space.key(c) not in self.harmful]
        return _distinct([*known, *self.waiting])[: self.most]

    def run(self) -> Row:
        """Races the row."""
        began = time.monotonic()
        self.race("first", self.first(), FIRST * self.budget)
        stage, climbing, best = 0, True, min(self.times.values(), default=0.0)
        while self.times and time.monotonic() - began - self.waited < self.budget * (1 - LAST):
            new = self._steps() if climbing else self._common()
            if not new:
                if not climbing:
                    break
                climbing = False
                continue
            stage += 1
            self.race(f"{'step' if climbing else 'more'}{stage}", [self._leaders()[0], *new], NEXT * self.budget)
            before, best = best, min(self.times.values())
            climbing = best < HELPS * before
        return self._decided(began)

    def _leaders(self) -> list[Config]:
        order = sorted(self.times, key=lambda name: (self.times[name], name))
        near = [name for name in order if self.times[name] <= BEHIND * self.times[order[0]]]
        return [dict(zip(experts_space.AXES, name)) for name in near]

    def _steps(self) -> list[Config]:
        """Configs one step away from the leaders that nobody has tried."""
        leaders = self._leaders()[:LEADERS]
        about = self.shape, self.device.arch, self.device.room
        steps = (n for c in leaders for n in experts_space.neighbours(c, *about))
        return self._untried(steps)

    def _common(self) -> list[Config]:
        return self._untried(self.waiting)

    def _untried(self, configs: Iterable[Config]) -> list[Config]:
        known = {*self.tried, *self.harmful}
        new = [c for c in configs if experts_space.key(c) not in known]
        return _distinct(new)[: self.most - 1]

    def _decided(self, began: float) -> Row:
        """The last race, and what the row keeps."""
        said = [(word, c) for word, c in (("default", self.default), ("shipped", self.shipped)) if c is not None]
        said = [(word, c) for word, c in said if experts_space.key(c) in self.times]
        leaders = self._leaders()[: LEADERS + 1]
        winner, ties = self.race("last", _distinct([*(c for _, c in said), *leaders]), LAST * self.budget)
        known = {word: experts_space.key(c) for word, c in said}
        equal = {experts_space.key(winner), *ties}
        kept = next((word for word, name in known.items() if name in equal), "raced")
        config = dict(zip(experts_space.AXES, known[kept])) if kept in known else winner
        words: dict[str, int] = {}
        for why in self.refused.values():
            words[why.partition(":")[0]] = words.get(why.partition(":")[0], 0) + 1
        # A run goes through several routings: what is told is the time of one.
        share = 1.0 / self.layer.routings(self.tokens)
        us = {word: self.times[name] * share for word, name in known.items()}
        return Row(
            self.tokens, config, kept, self.times[experts_space.key(config)] * share,
            us.get("default"), us.get("shipped"),
            len(self.tried), words, self.grade, round(time.monotonic() - began, 3),
        )  # fmt: skip


def _distinct(configs: Iterable[Config]) -> list[Config]:
    return list({experts_space.key(c): c for c in configs}.values())
