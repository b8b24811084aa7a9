"""The loop over rows: a shape and a folder come in; a table that vLLM reads goes out, whole after every row.

Rows that are not raced yet hold what vLLM would take without the table, so that whoever stops early has a table that is
nowhere worse. A finished row is kept: the same command goes on where it was stopped.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

from ... import _warplap
from ...tuner.modes import set_mode
from . import compile_ahead, fused, prior, space
from .journal import Journal, text_of, write
from .layer import Layer
from .race import COMMON, MOST, DeviceLost, Race, Row
from .shapes import Shape

# The numbers of tokens that vLLM's own tables have, and prefills above them.
USUAL = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
TOKENS = (*USUAL, 8192, 16384)
# Winners of rows nearby that race in a row's first race.
NEAR = 4

Tell = Callable[[dict[str, Any]], None]


def quiet(event: dict[str, Any]) -> None:
    """Tells nobody."""


def facts_of(shape: Shape, device: fused.Device) -> dict[str, Any]:
    """What a row was raced under."""
    versions = {name: fused.version(name) for name in ("vllm", "triton", "torch")}
    return {"shape": shape.as_dict(), "device": device.name, **versions}


def tune(
    shape: Shape,
    folder: Path,
    tokens: Sequence[int] = TOKENS,
    *,
    rows: Sequence[int] | None = None,
    budget: float = 20.0,
    again: bool = False,
    most: int = MOST,
    common: int = COMMON,
    whole: bool = False,
    processes: int | None = None,
    about: dict[str, Any] | None = None,
    tell: Tell = quiet,
) -> list[Row]:
    """Races the rows of a table (of ``rows`` only, where several processes share them) and writes it."""
    with set_mode("tune"), _compiler(processes) as compiler:
        device = fused.Device.here()
        if compiler is not None:
            compiler.room = device.room
        journal = Journal(folder, fused.table_name(shape), facts_of(shape, device))
        if again and rows is None:
            journal.forget()
        other = journal.other()
        if other is not None:
            tell({"event": "other", "table": journal.name, "facts": other})
        mine = sorted(set(tokens if rows is None else rows))
        done = journal.rows()
        tokens = sorted({*tokens, *done})  # rows that were asked for before stay
        tell({"event": "started", "table": str(journal.table), "rows": len(mine), "done": len(done.keys() & set(mine))})
        began = time.monotonic()
        save(journal, shape, tokens, done)
        left = [m for m in mine if m not in done]
        if left:
            how = {"budget": budget, "again": again, "most": most, "common": common, "whole": whole}
            _race_all(shape, device, journal, left, tokens, done, compiler, tell, how)
        compiled = compiler.seconds if compiler else 0.0
    if rows is None:
        spent = {"seconds": round(time.monotonic() - began, 1), "compiling_seconds": round(compiled, 1)}
        finish(journal, shape, tokens, {**(about or {}), **spent, "budget": budget}, tell)
    return [done[m] for m in mine]


@contextlib.contextmanager
def _compiler(processes: int | None) -> Iterator[compile_ahead.Compiler | None]:
    """Compilers of their own, where Triton compiles. They load vLLM while this process does."""
    if processes == 0 or not compile_ahead.can():
        yield None
        return
    made = compile_ahead.Compiler(processes)
    made.begin()
    try:
        yield made
    finally:
        made.end()


def _race_all(
    shape: Shape, device: fused.Device, journal: Journal, open_rows: list[int], tokens: Sequence[int],
    done: dict[int, Row], compiler: compile_ahead.Compiler | None, tell: Tell, how: dict[str, Any],
) -> None:  # fmt: skip
    """Races rows one after the other; the next one's kernels are compiled meanwhile."""
    layer, known = Layer(shape, device.torch), prior.rows(fused.folder())

    def race_of(m: int) -> Race:
        harmful = journal.harmful(m)
        inputs = {**how, "again": how["again"] or bool(harmful)}  # what was kept of a lost GPU says nothing
        near = [done[other].config for other in sorted(done, key=lambda other: (abs(other - m), other))[:NEAR]]
        race = Race(layer, device, m, known=known, near=near, compiler=compiler, harmful=harmful,
                    trying=lambda config: journal.trying(m, config), **inputs)  # fmt: skip
        race.ahead(race.first())
        return race

    races: dict[int, Race] = {}
    failed: dict[int, str] = {}
    for at, m in enumerate(open_rows):
        for soon in open_rows[at : at + 2]:
            with contextlib.suppress(RuntimeError):  # it is said when its turn comes
                races[soon] = races.get(soon) or race_of(soon)
        try:
            row = (races.pop(m, None) or race_of(m)).run()
        except DeviceLost:
            journal.lost()
            raise
        except RuntimeError as why:  # no room for so many tokens, nobody right: others may have more luck
            failed[m] = str(why).splitlines()[0] if str(why) else type(why).__name__
            tell({"event": "skipped", "tokens": m, "why": failed[m]})
            continue
        done[m] = row
        journal.keep(row)
        save(journal, shape, tokens, journal.rows())
        tell({"event": "row", "tokens": m, "row": row})
    if failed:
        raise RuntimeError("; ".join(f"{m} tokens: {why}" for m, why in failed.items()))


def save(journal: Journal, shape: Shape, tokens: Sequence[int], done: dict[int, Row]) -> None:
    """Writes the table: rows that are done, and for the others what vLLM would take."""
    shipped = fused.shipped(shape)
    rows = {m: fused.nearest(shipped, m) or space.whole(fused.default(shape, m)) for m in tokens}
    rows |= {m: row.config for m, row in done.items() if m in rows}
    write(journal.table, text_of(fused.version("triton"), {m: config for m, config in rows.items() if config}))


def finish(journal: Journal, shape: Shape, tokens: Sequence[int], more: dict[str, Any], tell: Tell) -> None:
    """The last word on a table: whole, checked, read back by vLLM, with its record beside it."""
    done = {m: row for m, row in journal.rows().items() if m in tokens}
    save(journal, shape, tokens, done)
    code, said = checked(journal.table)
    read_back(journal.table, shape)
    if code:
        raise RuntimeError(f"{journal.table}: {said}")
    if not set(tokens) - done.keys():
        journal.finish([done[m] for m in sorted(done)], more)
    tell({"event": "finished", "table": str(journal.table), "said": said, "rows": [done[m] for m in sorted(done)]})


def checked(path: Path) -> tuple[int, str]:
    """What the program's own checker says of a table: its exit code, and a sentence."""
    with tempfile.TemporaryFile() as heard:
        kept = [os.dup(stream) for stream in (1, 2)]
        try:
            for stream in (1, 2):
                os.dup2(heard.fileno(), stream)
            code = _warplap.program(["warplap", "export", str(path), "--vllm-moe"])
        finally:
            for stream, to in zip((1, 2), kept):
                os.dup2(to, stream)
                os.close(to)
        heard.seek(0)
        return code, heard.read().decode(errors="replace").strip()


def read_back(path: Path, shape: Shape) -> dict[int, Any]:
    """A table as vLLM's own code reads it."""
    reads = fused.named("get_moe_configs")
    before = os.environ.get("VLLM_TUNED_CONFIG_FOLDER")
    os.environ["VLLM_TUNED_CONFIG_FOLDER"] = str(path.parent)
    try:
        block = shape.block or (None, None)
        result = getattr(reads, "__wrapped__", reads)(shape.experts, shape.shard, shape.word, *block)
    finally:
        if before is None:
            del os.environ["VLLM_TUNED_CONFIG_FOLDER"]
        else:
            os.environ["VLLM_TUNED_CONFIG_FOLDER"] = before
    if result != fused.read_table(path):
        raise RuntimeError(f"{path}: vLLM reads other rows than were written: is VLLM_BATCH_INVARIANT set?")
    return dict(result)
