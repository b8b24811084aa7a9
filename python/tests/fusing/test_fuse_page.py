"""Pages about fused graphs: what is on them, and where they are written."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from fuse_graphs import Block, r, traced, uncompiled  # noqa: F401

import warplap
from warplap.fusing import page
from warplap.fusing.explain import Contestant, Decision
from warplap.fusing.plan import Plan
from warplap.fusing.race import recorded_times


def decided(how="raced", lanes=()):
    """A decision that takes a layer with its activation."""
    layer = torch.nn.Linear(16, 16)
    plan = Plan(traced(lambda x: F.gelu(layer(x)).view(-1) + 1, r(4, 16))[0])
    (partition,) = [p for p in plan.partitions(None, 9) if p.kinds == ("linear_gelu",)]
    return Decision("a key", plan, partition, how, "inductor", contestants=list(lanes))


def test_a_decision_is_told_with_all_that_is_drawn():
    lanes = [
        Contestant("linear_gelu", ("linear_gelu",), 10.0),
        Contestant("inductor", (), 10.1, is_tie=True),
        Contestant("eager", (), None, "wrong_answer: output 0"),
    ]
    graph = page._graph(decided(lanes=lanes), 1)
    assert [(n["name"], n["kind"]) for n in graph["nodes"] if n["kind"] != "work"] == [("x", "input"), ("view", "view")]
    by_name = {n["name"]: n for n in graph["nodes"]}
    linear, gelu = by_name["linear"], by_name["gelu"]
    assert (linear["cover"], gelu["cover"], by_name["view"]["cover"]) == (0, 0, None)
    assert graph["nodes"][linear["reads"][0]]["name"] == "x", "weights are left out"
    assert graph["nodes"][gelu["reads"][0]] is linear
    assert graph["nodes"][-1]["is_seen"] and not linear["is_seen"]
    assert graph["covers"] == [{"name": "linear_gelu"}] and graph["plain"] == "inductor"
    assert [lane["is_taken"] for lane in graph["lanes"]] == [True, False, False]
    assert graph["lanes"][1]["is_tie"] and graph["lanes"][2]["why"] == "no right answer: output 0"


def test_a_page_is_one_file_that_loads_nothing(tmp_path):
    lanes = [Contestant("linear_gelu", ("linear_gelu",), 10.0), Contestant("<inductor>", (), 11.5)]
    path = page.written(tmp_path / "fusing.html", [decided(lanes=lanes), decided("the mode is off")])
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>") and text.count("<svg") == 2
    assert "&lt;inductor&gt;" in text and "<inductor>" not in text
    assert "slower than the winner by 15 %" in text and "the mode is off" in text
    assert not re.search(r"https?://|<script|<link|<img", text)


def test_what_cannot_be_written_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="path: the page cannot be written: No such file"):
        page.written(tmp_path / "nowhere" / "fusing.html", [])
    with pytest.raises(IsADirectoryError, match="path: the page cannot be written"):
        page.written(tmp_path, [])


def test_a_record_tells_what_everyone_took():
    fused = {"covers": "add_norm linear", "rest": "inductor"}
    trials = [
        {"variant": "fused", "config": fused, "measured": {"median_us": 20.0}},
        {"variant": "inductor", "config": {}, "rejected": {"why": "outpaced", "measurement": {"median_us": 50.0}}},
        {"variant": "eager", "config": {}, "rejected": {"why": "wrong_answer", "reason": "output 0\nand more"}},
    ]
    ties = [{"variant": "inductor", "config": {}}]
    result = {"edition": {"trials": trials, "verdict": {"median_us": 20.0, "ties": ties}}}
    first, second, third = recorded_times.contestants(result, 1)
    assert (first.name, first.kinds, first.us) == ("add_norm + linear", ("add_norm", "linear"), 20.0)
    assert (second.us, second.is_tie, first.is_tie) == (50.0, True, False)
    assert (third.us, third.why) == (None, "wrong_answer: output 0")
    # Of how many runs in a row a time is, nobody knows.
    first, second, third = recorded_times.contestants(result, None)
    assert (first.us, first.times, second.us, second.times, third.times) == (None, 1.0, None, 2.5, None)
    text = str(decided("from the store", [first, second, third]))
    assert "2.50×" in text and "µs" not in text and "raced as a whole" in text


def test_a_fused_function_reports_what_was_raced_and_what_the_store_knew(uncompiled, tmp_path):
    block = Block().eval()
    fused = warplap.fuse(block, dynamic=False)
    assert "No graph was decided yet" in fused.report(tmp_path / "none.html").read_text(encoding="utf-8")
    with torch.no_grad():
        fused(r(2, 8, 32), r(2, 8, 32))
        fused(r(2, 7, 32), r(2, 7, 32))
    raced, known = fused.decisions
    assert known.how == "from the store"
    us = {lane.name: lane.us for lane in raced.contestants}
    assert all(us[lane.name] == lane.us for lane in known.contestants)
    assert {name for name in us if us[name]} <= {lane.name for lane in known.contestants}
    text = fused.report(tmp_path / "fusing.html").read_text(encoding="utf-8")
    assert text.count("<svg") == 2 and "from the store" in text
    for lane in raced.contestants:
        assert f">{lane.name}</span>" in text
    assert warplap.report_graphs(tmp_path / "all.html").read_text(encoding="utf-8").count("<svg") >= 2
