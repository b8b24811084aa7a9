"""Every example runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))

# A dozen graphs each, which a compiler has to write first.
LONG = ("10_llama_block", "11_bert_block")
is_long = pytest.mark.skipif(not os.environ.get("WARPLAP_LONG"), reason="long: WARPLAP_LONG=1")
marked = [pytest.param(e, marks=is_long) if e.stem in LONG else e for e in EXAMPLES]


@pytest.mark.parametrize("example", marked, ids=lambda p: p.stem)
def test_the_example_runs(example, tmp_path):
    env = {**os.environ, "WARPLAP_STORE": str(tmp_path / "store"), "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout


def test_there_are_examples():
    assert len(EXAMPLES) >= 7


def test_the_example_of_triton_says_one_sentence_where_there_is_no_gpu(tmp_path):
    env = {**os.environ, "WARPLAP_STORE": str(tmp_path / "store"), "CUDA_VISIBLE_DEVICES": ""}
    env.pop("TRITON_INTERPRET", None)
    example = next(e for e in EXAMPLES if e.stem == "07_triton")
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, env=env, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert len(done.stdout.splitlines()) == 1 and "no GPU" in done.stdout


def test_what_was_tuned_ahead_is_no_slower_than_torch(tmp_path, capsys):
    """By who answers, not by the clock of a machine that others use: torch's own call, or who was ahead of it."""
    env = {**os.environ, "WARPLAP_STORE": str(tmp_path / "store")}
    example = next(e for e in EXAMPLES if e.stem == "04_tune_ahead")
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    served = re.findall(r"^(\d+x\d+x\d+): (\w+) [\d.]+ us, torch [\d.]+ us, [\d.]+ x as fast$", done.stdout, re.M)
    tuned = dict(re.findall(r"^gemm:m=(\d+),\S+: (\w+)", done.stdout, re.M))
    assert len(served) == len(tuned) == 3, done.stdout
    assert [who for _, who in served] == list(tuned.values()), done.stdout
    with capsys.disabled():
        print("\n" + "\n".join(line for line in done.stdout.splitlines() if "as fast" in line))
