"""Which arguments of a CUDA kernel are its outputs, found out by running it: what differs afterwards was written, and
what is the same whatever was there before is written whole and not read."""

from __future__ import annotations

import logging
from typing import Any, Sequence

from .cuda_kernel import Kernel
from .run_once import Failed

_log = logging.getLogger("warplap")

# Settings tried before a kernel counts as one that never runs, and seconds for a launch of one.
TRIES, PATIENCE = 16, 20.0


def infer(
    kernel: Kernel, configs: Sequence[dict[str, Any]], arguments: Sequence[Any]
) -> tuple[dict[str, Any], list[str], list[Any]]:
    """The first setting that runs, each argument's role with it (``in``, ``out``, ``inout``), and what it leaves."""
    first: Failed | None = None
    for config in configs[:TRIES]:
        try:
            after = kernel.run(config, arguments, PATIENCE, loud=False)
        except Failed as why:
            first = first or Failed(why.why, f"with {config}: {why}")
            continue
        return config, _roles(kernel, config, arguments, after), after
    assert first is not None
    tried = min(len(configs), TRIES)
    raise Failed(first.why, f"none of {tried} settings runs, {first}")


def _roles(kernel: Kernel, config: dict[str, Any], arguments: Sequence[Any], after: Sequence[Any]) -> list[str]:
    written = [before is not now and not _same(before, now) for before, now in zip(arguments, after)]
    strange = [_poison(now, i) if is_written else now for i, (now, is_written) in enumerate(zip(after, written))]
    try:
        again: Sequence[Any] = kernel.run(config, strange, PATIENCE, loud=False)
    except Failed as why:
        # It read what it should have written: as an index, or to know when it is done.
        _log.debug("the outputs are read: %s", why)
        again = strange
    kinds = {(False, False): "in", (False, True): "in", (True, True): "out", (True, False): "inout"}
    return [kinds[is_written, _same(one, two)] for is_written, one, two in zip(written, after, again)]


def _same(one: Any, two: Any) -> bool:
    """Whether two arguments are of the same bytes."""
    return bool(one.tobytes() == two.tobytes())


def _poison(value: Any, seed: int) -> Any:
    """Another content of the same type: numbers far from those there, of both signs."""
    import numpy

    rng = numpy.random.default_rng(seed)
    if value.dtype.kind != "f":
        return numpy.frombuffer(rng.bytes(value.nbytes), value.dtype).reshape(value.shape).copy()
    large = float(numpy.finfo(value.dtype).max) / 8
    return (rng.choice([-large, large], value.shape) * rng.uniform(0.25, 1.0, value.shape)).astype(value.dtype)
