"""The space of configs of the fused kernel, and which of them a GPU has room for.

The rule is exact for Triton 3.6 and 3.7: a loop of so many stages keeps as many tiles of both operands in shared memory
where the product is a warp group's (its rows are at least 64, from Hopper on), and one less where it is a warp's.
"""

from __future__ import annotations

import itertools
from typing import Any, Iterator

from .shapes import Shape

Config = dict[str, int]

# Every axis of what vLLM's own tuner tries on NVIDIA's cards.
AXES: dict[str, tuple[int, ...]] = {
    "BLOCK_SIZE_M": (16, 32, 64, 128, 256),
    "BLOCK_SIZE_N": (32, 64, 128, 256),
    "BLOCK_SIZE_K": (64, 128, 256),
    "GROUP_SIZE_M": (1, 16, 32, 64),
    "num_warps": (4, 8),
    "num_stages": (2, 3, 4, 5),
}
# What Triton takes where a config does not say.
USUAL = {"GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}
# Bytes of shared memory that one block may have, by compute capability; others are asked of the device.
SHARED = {80: 163 << 10, 86: 99 << 10, 89: 99 << 10, 90: 227 << 10, 100: 227 << 10, 103: 227 << 10, 120: 99 << 10}


def whole(config: dict[str, Any]) -> Config | None:
    """A config with every axis of the space and nothing else; None where it is for another kernel. Splitting of K is
    said by some and always 1."""
    if any(name not in config for name in ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")):
        return None
    if any(name not in AXES and config[name] != 1 for name in config):
        return None
    made = {**USUAL, **config}
    return {name: made[name] for name in AXES} if all(type(made[name]) is int for name in AXES) else None


def key(config: Config) -> tuple[int, ...]:
    """What two configs are the same by."""
    return tuple(config[name] for name in AXES)


def effective(config: Config, shape: Shape) -> Config:
    """What the kernel is launched with: blocks of scales are the most columns of K that a tile has."""
    if shape.block is None:
        return config
    return {**config, "BLOCK_SIZE_K": min(config["BLOCK_SIZE_K"], *shape.block)}


def swapped(config: Config, shape: Shape, arch: int) -> bool:
    """Whether tokens and weights change places in the product: 8-bit floats on Hopper, few tokens."""
    narrow = shape.quantised == "fp8_w8a8" and arch == 90
    return narrow and config["BLOCK_SIZE_M"] < 64 and config["BLOCK_SIZE_N"] >= 64


def shared_memory(config: Config, shape: Shape, arch: int = 90) -> int:
    """Bytes of shared memory that the kernel takes for its tiles."""
    real = effective(config, shape)
    m, n, k = real["BLOCK_SIZE_M"], real["BLOCK_SIZE_N"], real["BLOCK_SIZE_K"]
    rows = n if swapped(real, shape, arch) else m
    by_groups = arch // 10 in (9, 10) and rows >= 64 and real["num_warps"] % 4 == 0
    tiles = real["num_stages"] if by_groups else real["num_stages"] - 1
    whole = max(tiles, 1) * k * (m * shape.bytes_of_input + n * shape.bytes_of_weight)
    if by_groups and arch // 10 == 10:
        return whole + 16  # what the product is waited for by
    if by_groups and shape.quantised == "int8_w8a16":
        whole += n * k  # a tile of weights as they are multiplied
    if by_groups and shape.block:  # scales on their way to the threads that multiply by them
        columns, warps = m + n - rows, real["num_warps"]
        whole += 4 * max(rows if rows > 16 * warps else 0, columns if columns >= 32 * warps else 0)
    return whole


def why_not(config: Config, shape: Shape, arch: int = 90, room: int | None = None) -> str | None:
    """Why a config cannot run, if so."""
    room = room or SHARED.get(arch, 99 << 10)
    for name in ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"):
        size = config[name]
        least = 8 if name == "BLOCK_SIZE_M" and swapped(config, shape, arch) else 16
        if size < least or size & (size - 1):
            return f"{name} is {size}, expected a power of two from {least}"
    if shape.block and shape.block[1] % effective(config, shape)["BLOCK_SIZE_K"]:
        return f"BLOCK_SIZE_K is {config['BLOCK_SIZE_K']}, expected a divisor of the block's {shape.block[1]}, or more"
    if shape.block and max(shape.block[0], config["BLOCK_SIZE_N"]) % min(shape.block[0], config["BLOCK_SIZE_N"]):
        return f"BLOCK_SIZE_N is {config['BLOCK_SIZE_N']}, expected a divisor or a multiple of {shape.block[0]}"
    taken = shared_memory(config, shape, arch)
    if taken > room:
        return f"it takes {taken} bytes of shared memory, the device has {room}"
    return None


def space(shape: Shape, arch: int = 90, room: int | None = None) -> Iterator[Config]:
    """Every config that a device has room for, each once by what it runs as."""
    seen = set()
    for values in itertools.product(*AXES.values()):
        config = dict(zip(AXES, values))
        same = key(effective(config, shape))
        if same not in seen and why_not(config, shape, arch, room) is None:
            seen.add(same)
            yield effective(config, shape)


def neighbours(config: Config, shape: Shape, arch: int = 90, room: int | None = None) -> Iterator[Config]:
    """The legal configs one step of one axis away."""
    for name, values in AXES.items():
        listed = sorted({*values, config[name]})
        at = listed.index(config[name])
        for other in listed[max(at - 1, 0) : at] + listed[at + 1 : at + 2]:
            step = {**config, name: other}
            if key(effective(step, shape)) == key(effective(config, shape)):
                continue
            if why_not(step, shape, arch, room) is None:
                yield effective(step, shape)
