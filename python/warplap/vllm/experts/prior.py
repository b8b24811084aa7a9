"""What to try first: the winners of the tables that vLLM ships, counted when they are needed.

A row counts the more, the nearer its number of tokens is, and the more so if its device or its type is the one at hand.
Which shape it was for is not asked: what wins is a matter of tokens to an expert far more than of sizes.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable

from . import space
from .shapes import Shape

_NAME = re.compile(
    r"E=(?P<experts>\d+),N=(?P<shard>\d+),device_name=(?P<device>[^,]+)(,dtype=(?P<dtype>[^,]+))?"
    r"(?P<backend>,backend=[^,]+)?(,block_shape=\[(?P<n>\d+), ?(?P<k>\d+)\])?\.json"
)


@dataclass(frozen=True)
class Row:
    """A winner that somebody found."""

    experts: int
    shard: int
    device: str
    dtype: str | None
    blocked: bool
    tokens: int
    config: tuple[int, ...]  # by the names of the axes


def rows(folder: Path) -> list[Row]:
    """The rows of all tables of a folder. What cannot be read, or is another kernel's, is left out."""
    result = []
    for path in sorted(folder.glob("E=*,N=*,device_name=*.json")):
        name = _NAME.fullmatch(path.name)
        if name is None or name["backend"]:
            continue
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        for tokens, config in table.items() if isinstance(table, dict) else ():
            if not tokens.isdecimal() or not isinstance(config, dict):
                continue
            made = space.whole(config)
            if made is not None:
                about = (int(name["experts"]), int(name["shard"]), name["device"], name["dtype"])
                result.append(Row(*about, name["n"] is not None, int(tokens), space.key(made)))
    return result


def ranked(
    known: Iterable[Row],
    shape: Shape,
    tokens: int,
    device: str,
    arch: int = 90,
    room: int | None = None,
) -> list[space.Config]:
    """The winners that a device has room for, the likeliest first."""
    weights: dict[tuple[int, ...], float] = defaultdict(float)
    vendor = device.split("_")[0]
    for row in known:
        if row.device.split("_")[0] != vendor and vendor in ("NVIDIA", "AMD"):
            continue  # other warps, other memory
        octaves = abs(math.log2(max(row.tokens, 1) / max(tokens, 1)))
        weight = 1.0 / (1.0 + octaves) ** 2
        weight *= 2.0 if row.device == device else 1.0
        weight *= 1.0 if (row.dtype, row.blocked) == (shape.word, shape.block is not None) else 0.3
        config = space.effective(dict(zip(space.AXES, row.config)), shape)
        weights[space.key(config)] += weight
    best = sorted(weights, key=lambda config: (-weights[config], config))
    configs = (dict(zip(space.AXES, values)) for values in best)
    return [config for config in configs if space.why_not(config, shape, arch, room) is None]
