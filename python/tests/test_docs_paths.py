"""What the Markdown files name is there: every path of the repository in backticks or links."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What the pages "adding-…" have the reader write.
TO_BE_WRITTEN = {"add.rs", "dots.cu", "dots.rs", "tall.rs"}
TOP = ("crates/", "python/", "lab/", "docs/", "examples/", ".ci/")


def listed():
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode or not done.stdout:
        pytest.skip("the repository is not here")
    return done.stdout.splitlines()


def named(text):
    """Paths of the repository that a text names, and targets of its links."""
    code = re.findall(r"`([^`\n]+)`", text)
    words = [word.strip(".,;:()") for span in code for word in span.split()]
    paths = {word for word in words if word.startswith(TOP) and not re.search(r"[*<>{}$…]|\.\.\.", word)}
    links = {link for link in re.findall(r"\]\(([^)#\s]+)", text) if not re.match(r"[a-z]+:", link)}
    return paths, links


def test_every_path_that_is_named_is_there():
    files = listed()
    folders = {str(parent) for file in files for parent in Path(file).parents}
    known = set(files) | folders
    missing, seen = [], 0
    for file in (f for f in files if f.endswith(".md")):
        paths, links = named((ROOT / file).read_text())
        seen += len(paths) + len(links)
        # Results say what was run when they were measured.
        for path in sorted(paths) if not file.startswith("docs/results/") else []:
            if path.rstrip("/").partition(":")[0] not in known and Path(path).name not in TO_BE_WRITTEN:
                missing.append(f"{file}: {path}")
        for link in sorted(links):
            target = ((ROOT / file).parent / link).resolve()
            missing += [] if target.exists() else [f"{file}: {link}"]
    assert seen > 50 and missing == []
