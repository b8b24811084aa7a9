"""What lies beside a table: a record of where each row comes from, and, until all are done, the rows that are."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .race import Row
from .space import Config


def write(path: Path, body: Any) -> None:
    """Writes a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name[-80:]}.{os.getpid()}")
    try:
        aside.write_text(body if isinstance(body, str) else json.dumps(body, indent=2) + "\n", encoding="utf-8")
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def read(path: Path) -> Any:
    """What a file holds; None where there is none or it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


class Journal:
    """The rows of one table, each in a file of its own: several processes write different ones."""

    def __init__(self, folder: Path, name: str, facts: dict[str, Any]) -> None:
        self.folder, self.name, self.facts = folder, name, facts
        self.table = folder / name
        self.record = folder / f"warplap-{name}"
        self.partial = folder / f"warplap-{name.removesuffix('.json')}.partial"

    def rows(self) -> dict[int, Row]:
        """The rows that were raced under the same facts."""
        result: dict[int, Row] = {}
        done = read(self.record)
        if isinstance(done, dict) and done.get("facts") == self.facts:
            for report in done.get("rows", []):
                result[report["tokens"]] = Row(**report)
        for path in self.partial.glob("row-*.json") if self.partial.is_dir() else ():
            report = read(path)
            if isinstance(report, dict) and report.get("facts") == self.facts:
                result[report["row"]["tokens"]] = Row(**report["row"])
        return result

    def other(self) -> dict[str, Any] | None:
        """The facts of a table of this name that is for something else: another hidden size, another version."""
        done = read(self.record)
        facts = done.get("facts") if isinstance(done, dict) else None
        return facts if isinstance(facts, dict) and facts != self.facts else None

    def keep(self, row: Row) -> None:
        """Keeps a finished row."""
        write(self.partial / f"row-{row.tokens}.json", {"facts": self.facts, "row": asdict(row)})

    def trying(self, tokens: int, config: Config | None) -> None:
        """Notes who is tried for the first time: should the GPU be lost, it was that one."""
        self._trying = (tokens, config)

    def lost(self) -> None:
        """Notes that the GPU was lost to whoever was tried."""
        tokens, config = self._trying
        if config is not None:
            harm = [*self.harmful(tokens), config]
            write(self.partial / f"harmful-{tokens}.json", {"facts": self.facts, "configs": harm})

    def harmful(self, tokens: int) -> list[Config]:
        """Who lost the GPU in an earlier process."""
        report = read(self.partial / f"harmful-{tokens}.json")
        return list(report["configs"]) if isinstance(report, dict) and report.get("facts") == self.facts else []

    def forget(self) -> None:
        """Forgets every row."""
        shutil.rmtree(self.partial, ignore_errors=True)
        self.record.unlink(missing_ok=True)

    def finish(self, rows: list[Row], more: dict[str, Any]) -> None:
        """Writes the record of all rows and clears the partial ones."""
        report = [asdict(row) for row in rows]
        write(self.record, {"facts": self.facts, **more, "written": int(time.time()), "rows": report})
        shutil.rmtree(self.partial, ignore_errors=True)

    _trying: tuple[int, Config | None] = (0, None)


def text_of(triton: str, rows: dict[int, Config]) -> str:
    """A table as vLLM writes it: the compiler's version, then rows by tokens."""
    body: dict[str, Any] = {"triton_version": triton}
    body |= {str(tokens): rows[tokens] for tokens in sorted(rows)}
    return json.dumps(body, indent=4) + "\n"
