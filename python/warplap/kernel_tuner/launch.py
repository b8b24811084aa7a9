"""How a kernel is launched, in Kernel Tuner's terms: a problem's size, what divides it, the names of a block's sizes
and shared memory come in; blocks, threads and bytes go out, as numbers for one setting or as expressions for all."""

from __future__ import annotations

import math
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

from ..callables.tunable import BUILTINS

# The names that stand for the sizes of a block where nobody names others, and the sizes where no setting does.
USUAL, OTHERWISE = ("block_size_x", "block_size_y", "block_size_z"), (256, 1, 1)


class Sizes(NamedTuple):
    """One launch."""

    grid: list[int]
    block: list[int]
    shared: int


def block_names(names: Sequence[str] | None, params: Iterable[str]) -> list[str]:
    """The names of a block's sizes in x, y and z: those given, else the usual ones, in capitals too."""
    inputs = list(names or ())
    if len(inputs) > 3 or not all(isinstance(name, str) for name in inputs):
        raise ValueError(f"block_size_names: is {names!r}, expected one to three names")
    known = {name.lower(): name for name in params if names is None}
    return [*inputs, *(known.get(usual, usual) for usual in USUAL[len(inputs) :])]


def evaluated(text: str, config: Mapping[str, Any], what: str) -> Any:
    """What an expression over a setting gives."""
    try:
        return eval(text.strip(), {"__builtins__": BUILTINS}, dict(config))
    except Exception as error:
        raise ValueError(f"{what}: '{text}' gives no number: {type(error).__name__}: {error}") from None


class Launch:
    """The launches of a kernel, whatever the setting."""

    def __init__(
        self,
        problem_size: Any,
        grid_div: Sequence[Any],
        names: Sequence[str] | None,
        smem_args: Mapping[str, Any] | None,
        params: Iterable[str],
    ) -> None:
        params = list(params)
        self._size, self._divisors, self.names = problem_size, list(grid_div), block_names(names, params)
        self._known = [name in params for name in self.names]
        unknown = [key for key in smem_args or {} if key != "size"]
        if unknown:
            raise NotImplementedError(f"smem_args: holds {unknown[0]!r}, expected the size alone")
        self._shared = (smem_args or {}).get("size", 0)
        if not callable(problem_size):
            self._sizes(problem_size)

    def _sizes(self, size: Any) -> list[Any]:
        sizes = [size] if isinstance(size, (int, str)) or hasattr(size, "item") else list(size)
        if not 1 <= len(sizes) <= 3:
            raise ValueError(f"problem_size: has {len(sizes)} sizes, expected 1 to 3")
        return sizes

    def at(self, config: Mapping[str, Any]) -> Sizes:
        """The launch of one setting."""
        sizes = self._sizes(self._size(dict(config)) if callable(self._size) else self._size)
        sizes = [_whole(size, config, "problem_size") for size in sizes]
        sizes += [1] * (3 - len(sizes))
        by = [
            config.get(name, 1) if divisor is None else _whole(divisor, config, f"grid_div_{axis}")
            for axis, name, divisor in zip("xyz", self.names, self._divisors)
        ]
        if any(not part > 0 for part in (*sizes, *by)):
            raise ValueError(f"problem_size: {sizes} divided by {by} gives no grid, expected numbers above 0")
        block = [int(config.get(name, size)) for name, size in zip(self.names, OTHERWISE)]
        grid = [math.ceil(float(size) / float(part)) for size, part in zip(sizes, by)]
        return Sizes(grid, block, int(_whole(self._shared, config, "smem_args")))

    def calls(self) -> bool:
        """Whether a callable decides some of it, which no expression can say."""
        parts = [part for d in self._divisors for part in (d if isinstance(d, (list, tuple)) else [d])]
        return any(callable(part) for part in (self._size, self._shared, *parts))

    def block(self) -> list[str]:
        """The threads of a block as expressions over the settings."""
        return [name if known else str(size) for name, known, size in zip(self.names, self._known, OTHERWISE)]

    def expressions(self) -> tuple[list[str], str]:
        """Blocks and bytes of shared memory as expressions over the settings."""
        grid = []
        for size, name, known, divisor in zip(self._sizes(self._size), self.names, self._known, self._divisors):
            if divisor is None:
                parts = [name] if known else []
            else:
                parts = [_text(part) for part in (divisor if isinstance(divisor, (list, tuple)) else [divisor])]
            by = " * ".join(parts)
            grid.append(f"ceil({_text(size)} / ({by}))" if by else _text(size))
        return grid, _text(self._shared)

    def defines(self) -> list[str]:
        """What Kernel Tuner defines beside the settings: the sizes of a block that no setting names, and itself."""
        sizes = zip(self.names, self._known, OTHERWISE)
        return [*(f"-D{name}={size}" for name, known, size in sizes if not known), "-Dkernel_tuner=1"]


def _whole(value: Any, config: Mapping[str, Any], what: str) -> Any:
    """A number: given, worked out, asked for, or the product of several."""
    if callable(value):
        return value(dict(config))
    if isinstance(value, str):
        return int(evaluated(value, config, what))
    if isinstance(value, (int, float)) or hasattr(value, "item"):
        return value
    return math.prod(_whole(part, config, what) for part in value)


def _text(value: Any) -> str:
    return f"int({value})" if isinstance(value, str) else str(value)
