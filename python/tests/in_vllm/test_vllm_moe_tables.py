"""The tables that vLLM ships, through our checker; and our table, read by vLLM for every number of tokens."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

if importlib.util.find_spec("vllm") is None:  # loading it takes half a minute, which most of this does without
    pytest.skip("vllm is not installed", allow_module_level=True)

from warplap.vllm.experts import prior, shapes, space as experts_space
from warplap.vllm.experts.journal import text_of
from warplap.vllm.experts.tune import TOKENS, checked

WHEEL = Path(importlib.util.find_spec("vllm").origin).parent  # type: ignore[union-attr, arg-type]
SHIPPED = WHEEL / "model_executor" / "layers" / "fused_moe" / "configs"


def test_every_shipped_table_is_taken_or_rightly_refused():
    paths = sorted(SHIPPED.glob("E=*.json"))
    assert len(paths) >= 300
    refused = {path.name: said for path in paths for code, said in [checked(path)] if code}
    for name, said in refused.items():
        print(name, said)
    # What is refused must be one that our rules know to be wrong, never a form we do not know.
    assert all(any(part in said for part in ("power of two", "a divisor")) for said in refused.values()), refused
    assert len(refused) <= len(paths) // 50


def test_shipped_winners_are_a_good_list_for_shapes_that_they_do_not_hold():
    known = [row for row in prior.rows(SHIPPED) if row.device.startswith("NVIDIA")]
    rows = [row for row in known if row.device == "NVIDIA_H200" and row.dtype is None]
    assert len(known) > 3000 and len(rows) > 200
    counts = Counter()
    for row in rows[::7]:
        held_out = [other for other in known if (other.experts, other.shard) != (row.experts, row.shard)]
        shape = shapes.Shape(row.experts, row.shard, 4096, 2)
        listed = [experts_space.key(c) for c in prior.ranked(held_out, shape, row.tokens, row.device)[:200]]
        counts["all"] += 1
        counts[40] += row.config in listed[:40]
        counts[200] += row.config in listed
    assert counts[40] >= 0.5 * counts["all"] and counts[200] >= 0.8 * counts["all"], counts
    print(counts)


READ = """
import json, os, sys
from vllm.model_executor.layers.fused_moe.fused_moe import get_moe_configs, try_get_optimal_moe_config
from warplap.vllm.experts import fused, shapes
from warplap.vllm.experts.tune import read_back
from pathlib import Path
folder, tokens = Path(os.environ["VLLM_TUNED_CONFIG_FOLDER"]), json.loads(sys.argv[1])
shape = shapes.Shape(8, 96, 64, 2)
path = folder / fused.table_name(shape)
written = fused.read_table(path)
assert sorted(written) == tokens, written
assert read_back(path, shape) == get_moe_configs(8, 96, None) == written
for m in range(1, 32769):
    meant = min(tokens, key=lambda row: (abs(row - m), row))
    taken = try_get_optimal_moe_config((8, 192, 64), (8, 64, 96), 2, None, m)
    assert taken == written[meant] == fused.nearest(written, m), (m, taken)
assert fused.default(shape, 64)["BLOCK_SIZE_M"] and fused.folder().is_dir()
print("read")
"""


def test_every_number_of_tokens_finds_the_row_we_mean(tmp_path):
    space = list(experts_space.space(shapes.Shape(8, 96, 64, 2)))
    rows = {m: space[i] for i, m in enumerate(TOKENS)}  # all different
    (tmp_path / "E=8,N=96,device_name=cpu.json").write_text(text_of("3.6.0", rows))
    env = {**os.environ, "VLLM_TUNED_CONFIG_FOLDER": str(tmp_path)}
    command = [sys.executable, "-c", READ, json.dumps(sorted(TOKENS))]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=600)
    assert done.stdout.strip().endswith("read"), done.stderr[-3000:]
