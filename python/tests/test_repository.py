"""The repository as its readers find it: what the Markdown files name is there, every path in backticks or links, and
folders of Python files are short enough to look through."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What the pages "adding-…" have the reader write.
TO_BE_WRITTEN = {"add.rs", "add.txt", "dots.cu", "dots.rs", "tall.rs"}
# Files of Python in a folder at the most; those of its folders are not counted.
MOST_FILES = 15
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


def test_no_folder_has_more_files_than_can_be_looked_through():
    folders = Counter(str(Path(file).parent) for file in listed() if file.endswith(".py"))
    assert len(folders) > 30 and {folder: n for folder, n in folders.items() if n > MOST_FILES} == {}
