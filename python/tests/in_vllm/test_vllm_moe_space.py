"""Which configs fit, what is tried first, how rows are dealt, what a table and its records look like."""

from __future__ import annotations

import json

import pytest

from warplap.vllm.experts import prior, shapes, space as experts_space

pytest.importorskip("torch")
from warplap.vllm.experts.gpus import hands  # noqa: E402
from warplap.vllm.experts.journal import Journal, text_of  # noqa: E402
from warplap.vllm.experts.race import Row  # noqa: E402
from warplap.vllm.experts.tune import TOKENS, USUAL, checked  # noqa: E402

BF16 = shapes.Shape(8, 14336, 4096, 2)
BLOCKED = shapes.Shape(256, 2048, 7168, 8, "bfloat16", "fp8_w8a8", (128, 128))


def config(m, n, k, group=1, warps=4, stages=3):
    return dict(zip(experts_space.AXES, (m, n, k, group, warps, stages)))


def test_what_fits_hopper_is_what_was_counted():
    assert sum(1 for _ in experts_space.space(BF16, 90)) == 1304
    assert experts_space.shared_memory(config(64, 64, 64, stages=4), BF16, 90) == 4 * 64 * 128 * 2
    assert experts_space.shared_memory(config(32, 64, 64, stages=4), BF16, 90) == 3 * 64 * 96 * 2
    assert experts_space.why_not(config(256, 256, 128, stages=2), BF16, 90) == (
        "it takes 262144 bytes of shared memory, the device has 232448"
    )
    # Other GPUs have other products, and some less room.
    assert experts_space.shared_memory(config(64, 64, 64, stages=4), BF16, 80) == 3 * 64 * 128 * 2
    assert sum(1 for _ in experts_space.space(BF16, 89)) < 1000


def test_blocks_of_scales_bound_a_tile():
    wide = config(16, 128, 256)
    assert experts_space.effective(wide, BLOCKED)["BLOCK_SIZE_K"] == 128
    assert experts_space.why_not(wide, BLOCKED) is None
    assert {c["BLOCK_SIZE_K"] for c in experts_space.space(BLOCKED)} == {64, 128}
    odd = shapes.Shape(8, 192, 192, 2, "bfloat16", "fp8_w8a8", (96, 96))
    assert "a divisor of the block's 96" in str(experts_space.why_not(config(16, 32, 64), odd))
    assert "power of two" in str(experts_space.why_not(config(24, 32, 64), BF16))
    # Eight rows are enough where tokens change places with the weights.
    assert experts_space.why_not(config(8, 128, 128), BLOCKED, 90) is None
    assert "from 16" in str(experts_space.why_not(config(8, 128, 128), BF16, 90))


def test_steps_go_along_one_axis_and_stay_legal():
    for start in (config(16, 32, 64, stages=2), config(64, 128, 128, 16, 8, 3), config(256, 256, 64, 64, 8, 2)):
        neighbours = list(experts_space.neighbours(start, BF16, 90))
        assert len({experts_space.key(c) for c in neighbours}) == len(neighbours) > 4
        for step in neighbours:
            assert sum(step[axis] != start[axis] for axis in experts_space.AXES) == 1
            assert experts_space.why_not(step, BF16, 90) is None
    assert all(c["BLOCK_SIZE_K"] <= 128 for c in experts_space.neighbours(config(64, 64, 128), BLOCKED, 90))


def test_configs_of_others_are_made_whole_or_left_out():
    assert experts_space.whole({**config(16, 64, 128), "SPLIT_K": 1}) == config(16, 64, 128)
    assert experts_space.whole({"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128}) == config(16, 64, 128)
    assert experts_space.whole({"BLOCK_SIZE_M": 16, "SPLIT_K": 1}) is None
    assert experts_space.whole({**config(16, 64, 128), "waves_per_eu": 2}) is None


def tables(folder, rows):
    folder.mkdir(exist_ok=True)
    for name, body in rows.items():
        (folder / name).write_text(json.dumps(body))
    return prior.rows(folder)


def test_winners_at_near_token_counts_come_first(tmp_path):
    few, many, odd = config(16, 64, 128), config(128, 128, 64, 16, 8, 3), config(256, 256, 256)
    known = tables(tmp_path, {
        "E=8,N=64,device_name=NVIDIA_H200.json": {"triton_version": "3", "1": few, "2": few, "4096": many, "64": odd},
        "E=8,N=64,device_name=NVIDIA_A100.json": {"4": few, "2048": many, "16": {"BLOCK_SIZE_M": 16}},
        "E=8,N=64,device_name=AMD_Instinct.json": {"1": config(32, 32, 64)},
        "E=8,N=64,device_name=NVIDIA_H200,dtype=bf16,backend=flydsl.json": {"1": {"tile_m": 1}},
        "E=8,N=96,device_name=NVIDIA_H200.json": "damaged",
    })  # fmt: skip
    assert len(known) == 7
    assert prior.ranked(known, BF16, 1, "NVIDIA_H200") == [few, many]
    assert prior.ranked(known, BF16, 4096, "NVIDIA_H200")[0] == many
    # Where rows are of two types, those of the type at hand weigh more.
    (tmp_path / "E=8,N=64,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json").write_text(
        json.dumps({"1": config(64, 128, 128)})
    )
    known = [row for row in prior.rows(tmp_path) if row.tokens == 1 and row.device == "NVIDIA_H200"]
    assert prior.ranked(known, BF16, 1, "NVIDIA_H200")[0] == few
    assert prior.ranked(known, BLOCKED, 1, "NVIDIA_H200")[0] == config(64, 128, 128)


def test_rows_are_dealt_like_cards():
    dealt = hands(TOKENS, 4)
    assert sorted(m for hand in dealt for m in hand) == sorted(TOKENS) and {len(h) for h in dealt} == {5}
    assert {max(hand) for hand in dealt} == {16384, 8192, 4096, 3072}
    assert hands([1, 2], 4) == [[2], [1]]
    assert len(USUAL) == 18


def test_rows_are_kept_by_their_facts(tmp_path):
    name, facts, folder = "E=8,N=64,device_name=X.json", {"device": "X", "vllm": "0.26.0"}, tmp_path / "tables"
    journal = Journal(folder, name, facts)
    row = Row(16, config(16, 64, 128), "raced", 2.0, 3.0)
    assert journal.rows() == {} and row.gain == 1.5
    journal.keep(row)
    assert journal.rows() == {16: row}
    assert Journal(folder, name, {**facts, "vllm": "0.27.0"}).rows() == {}
    (journal.partial / "row-32.json").write_text("{")  # a damaged one is raced anew
    journal.trying(32, row.config)
    journal.lost()
    assert journal.harmful(32) == [row.config] and journal.harmful(16) == []
    journal.finish([row], {"seconds": 1})
    assert not journal.partial.exists() and journal.rows() == {16: row} and journal.other() is None
    assert Journal(folder, name, {**facts, "vllm": "0.27.0"}).other() == facts
    journal.forget()
    assert journal.rows() == {} and list(folder.iterdir()) == []


def test_a_table_is_one_that_the_checker_takes(tmp_path):
    path = tmp_path / "E=8,N=64,device_name=NVIDIA_H200.json"
    path.write_text(text_of("3.6.0", {4096: config(128, 128, 64), 1: config(16, 64, 128)}))
    assert list(json.loads(path.read_text())) == ["triton_version", "1", "4096"]
    assert checked(path) == (0, f"{path.name}: 2 rows")
    path.write_text(text_of("3.6.0", {1: config(24, 64, 128)}))
    code, said = checked(path)
    assert code == 2 and "row 1: BLOCK_SIZE_M is '24'" in said
