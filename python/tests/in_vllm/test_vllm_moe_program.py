"""The program ``warplap vllm``: whoever starts it, and what it says of bad input. vLLM is not needed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")

DENSE = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 64}


def run(*arguments, module="warplap.vllm"):
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_bad_input_is_said_in_a_sentence(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(DENSE))
    done = run("tune", tmp_path, "--json")
    assert done.returncode == 2 and "LlamaForCausalLM has no field for the number of experts" in done.stderr
    assert json.loads(done.stdout)["event"] == "failed"
    for option, value, part in [("--tokens", "0", "numbers of tokens from 1"), ("--budget", "-1", "seconds above 0")]:
        done = run("tune", tmp_path, option, value)
        assert done.returncode == 2 and part in done.stderr, done.stderr


def test_a_folder_is_checked_without_a_gpu(tmp_path):
    folder = tmp_path / "tables"
    folder.mkdir()
    done = run("check", folder)
    assert done.returncode == 1 and "holds no table" in done.stderr
    row = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
    (folder / "E=8,N=64,device_name=X.json").write_text(json.dumps({"1024": row}))
    done = run("check", folder, "--no-measure")
    assert done.returncode == 0 and "1 rows" in done.stdout and "nobody knows the hidden size" in done.stdout
    (folder / "E=8,N=96,device_name=X.json").write_text("{}")
    done = run("check", folder, "--no-measure", "--json")
    assert done.returncode == 1
    assert [json.loads(line)["right"] for line in done.stdout.splitlines()] == [True, False]


def test_the_whole_program_hands_it_on(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(DENSE))
    done = run("vllm", "tune", tmp_path, module="warplap")
    assert done.returncode == 2 and "has no field for the number of experts" in done.stderr
    assert "usage: warplap vllm" in run("vllm", "--help", module="warplap").stdout
    assert "E=" not in run("--version", module="warplap").stdout  # what is not for vLLM is the native half's
