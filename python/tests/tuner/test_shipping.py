"""What is tuned in one place serves in another: the program's records in Python, bundles, and the recipe of the docs."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import torch

import warplap

SIZES = (48, 40, 32)
GEMM = "gemm:m=48,n=40,k=32,dtype=f32"
ROOT = Path(__file__).parents[3]


def program(store, *args):
    env = {**os.environ, "WARPLAP_STORE": str(store)}
    done = subprocess.run([sys.executable, "-m", "warplap", *args], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def operands():
    m, n, k = SIZES
    return torch.randn(m, k), torch.randn(k, n)


def test_what_the_program_tuned_is_pythons_and_only_torchs_forms_race_anew(own_store):
    (tuned,) = program(own_store, "tune", GEMM, "--budget", "0.4", "--json", "--device", "cpu")
    raced = {trial["variant"] for trial in tuned["trials"]}
    assert "torch_mm" not in raced and len(raced) > 2
    warplap.configure(store=own_store)
    before = warplap.explain(GEMM)
    assert before.how == "stored" and before.variant == tuned["winner"]["variant"]
    # Of the program's variants nobody is new; what only Python has is.
    assert before.newcomers and all(name not in raced for name in before.newcomers)
    (here,) = warplap.tune(GEMM, budget=0.4, progress=False)
    assert not here.from_store
    trials = {trial["variant"] for trial in here.record["trials"]}
    assert raced <= trials | {s["variant"] for s in here.record["skipped"]} and "torch_mm" in trials
    assert "torch" in here.record["soft"] and "gemm" not in here.record["soft"]
    # Nobody sends the other one back to race: each answers with the best that it has.
    assert warplap.explain(GEMM).newcomers == []
    (again,) = program(own_store, "explain", GEMM, "--json", "--device", "cpu")
    assert again["matched"].startswith("exact") and again["newcomers"] == []
    assert again["winner"]["variant"] != "torch_mm"


def shipped(tmp_path, **how):
    """A store with winners of another one."""
    warplap.tune(GEMM, budget=0.4, progress=False)
    winner = warplap.explain(GEMM).variant
    warplap.store.export(tmp_path / "bundle")
    warplap.configure(store=tmp_path / "production")
    return winner, warplap.store.import_(tmp_path / "bundle", **how)


def test_an_imported_winner_is_proved_at_once_and_answers_a_replay(tmp_path, caplog):
    winner, done = shipped(tmp_path)
    assert done == (1, 0, 0) and done.proofs.proved == 1 and not done.proofs.failed and not done.proofs.late
    a, b = operands()
    with warplap.replay(), caplog.at_level(logging.WARNING, logger="warplap"):
        assert torch.allclose(warplap.matmul(a, b), a @ b, atol=1e-4)
        explained = warplap.explain(GEMM)
    assert explained.proved and explained.answers == winner and winner in str(explained)
    assert not caplog.records


def test_an_unproved_winner_leaves_its_calls_to_torch_with_one_warning(tmp_path, caplog):
    store, problems = tmp_path / "tuned", [GEMM, "gemm:m=48,n=24,k=32,dtype=f32"]
    program(store, "tune", *problems, "--budget", "0.4", "--json", "--device", "cpu")
    program(store, "store", "export", str(tmp_path / "bundle"))
    warplap.configure(store=tmp_path / "production")
    done = warplap.store.import_(tmp_path / "bundle", prove=False)
    assert done == (2, 0, 0) and done.proofs is None
    a, b = operands()
    with warplap.replay(), caplog.at_level(logging.WARNING, logger="warplap"):
        said = str(warplap.explain(GEMM))
        assert "answers  torch_mm (" in said and "never proved here" in said, said
        assert not caplog.records, "who only asks is not warned"
        for other in (b, b[:, :24].contiguous(), b):
            assert torch.allclose(warplap.matmul(a, other), a @ other, atol=1e-4)
        (warning,) = [record.getMessage() for record in caplog.records]
    assert "never proved here" in warning and "torch_mm" in warning
    # Proving goes on where importing left off.
    proofs = warplap.store.prove()
    assert proofs.proved == 2 and proofs.raced == 2 and not proofs.failed
    with warplap.replay():
        assert warplap.explain(GEMM).answers == warplap.explain(GEMM).variant


def test_what_the_program_tuned_meets_torch_when_it_is_imported(tmp_path):
    store, production = tmp_path / "tuned", tmp_path / "production"
    program(store, "tune", GEMM, "--budget", "0.4", "--json", "--device", "cpu")
    program(store, "store", "export", str(tmp_path / "bundle"))
    # Imported and proved by the program, it has met nobody of torch's: torch's call answers, and that is said.
    program(production, "store", "import", str(tmp_path / "bundle"), "--json", "--device", "cpu")
    warplap.configure(store=production)
    with warplap.replay():
        explained = warplap.explain(GEMM)
        assert explained.proved, "what the program proved is proved for Python"
        assert explained.answers == "torch_mm" and "never raced beside" in str(explained)
    proofs = warplap.store.prove()
    assert proofs.raced == 1
    with warplap.replay():
        explained = warplap.explain(GEMM)
        assert explained.answers == explained.variant
        assert "torch_mm" in {trial["variant"] for trial in explained.record["trials"]}


def test_times_of_another_size_of_the_key_say_so(tmp_path):
    m, n, k = 300, 32, 32
    warplap.tune(f"gemm:m={m},n={n},k={k},dtype=f32", budget=0.3, progress=False)
    other = warplap.explain(f"gemm:m={m + 20},n={n},k={k},dtype=f32")
    assert other.measured_at is not None and f"m={m}" in other.measured_at
    assert f"at {other.measured_at}, not at the size asked for" in str(other)
    assert other.measured_at in other.table().title
    assert warplap.explain(f"gemm:m={m},n={n},k={k},dtype=f32").measured_at is None


def test_the_recipe_of_the_docs_runs_in_two_processes_with_two_stores(tmp_path):
    text = (ROOT / "docs" / "shipping.md").read_text()
    tunes, serves = re.findall(r"```sh\n(.*?)```", text, re.S)
    here = tmp_path / "bin"
    here.mkdir()
    for name, command in (("warplap", f'"{sys.executable}" -m warplap "$@"'), ("python", f'"{sys.executable}" "$@"')):
        (here / name).write_text(f"#!/bin/sh\nexec {command}\n")
        (here / name).chmod(0o755)
    said = []
    for block, store in ((tunes, "tuned"), (serves, "serving")):
        env = {**os.environ, "PATH": f"{here}:{os.environ['PATH']}", "WARPLAP_STORE": str(tmp_path / store)}
        done = subprocess.run(["sh", "-e", "-c", block], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said[0].count("gemm:") == 2 and "2 records" in said[0], said[0]
    assert "added=2" in said[1] and "failed=[]" in said[1], said[1]
    assert re.search(r"^answers: \w+$", said[1], re.M) and "answers: None" not in said[1]
