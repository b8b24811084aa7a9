"""Modes, the store, benchmark, tune, explain, foreign variants."""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys

import pytest
import torch

import warplap

GEMM = "gemm:m=32,n=24,k=16,dtype=f32"


def test_a_first_call_races_and_a_second_process_measures_nothing(own_store):
    a, b = torch.randn(32, 16), torch.randn(16, 24)
    warplap.matmul(a, b)
    (row,) = warplap.store.ls()
    assert row["op"] == "gemm" and row["problem"].startswith("gemm:m=32,n=24,k=16")
    stamp = row["modified"], warplap.store.show(row["hash"])
    code = f"""
import torch, warplap
warplap.configure(store={str(own_store)!r})
warplap.set_mode("replay")
warplap.matmul(torch.randn(32, 16), torch.randn(16, 24))
explanation = warplap.explain(warplap.matmul, torch.randn(32, 16), torch.randn(16, 24))
assert explanation.how == "stored", explanation
print(explanation.variant)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == stamp[1]["editions"][0]["verdict"]["winner"]["variant"]
    assert warplap.store.show(row["hash"]) == stamp[1]


def test_each_clock_has_records_of_its_own(own_store):
    a, b = torch.randn(32, 16), torch.randn(16, 24)
    assert "clock=use" in warplap.explain(warplap.matmul, a, b).key
    warplap.matmul(a, b)
    warplap.configure(clock="back-to-back")
    try:
        explanation = warplap.explain(warplap.matmul, a, b)
        assert "clock=back-to-back" in explanation.key and explanation.how != "stored"
        warplap.matmul(a, b)
    finally:
        warplap.configure(clock="use")
    assert len(warplap.store.ls()) == 2


def test_cold_caches_have_records_of_their_own(own_store):
    a, b = torch.randn(32, 16), torch.randn(16, 24)
    warplap.matmul(a, b)
    warplap.configure(cache="cold")
    try:
        explanation = warplap.explain(warplap.matmul, a, b)
        assert "cache=cold" in explanation.key and explanation.how != "stored"
        warplap.matmul(a, b)
        assert warplap.explain(warplap.matmul, a, b).how == "stored"
    finally:
        warplap.configure(cache="hot")
    assert sorted("cache=cold" in row["key"] for row in warplap.store.ls()) == [False, True]


def test_modes_are_functions_and_context_managers():
    a = torch.randn(16, 16)
    assert warplap.mode() == "tune"
    with warplap.off():
        assert warplap.mode() == "off"
        warplap.matmul(a, a)
    with warplap.replay():
        warplap.matmul(a, a)
    assert warplap.store.ls() == [] and warplap.store.misses() == []
    with warplap.record():
        warplap.matmul(a, a)
    (missed,) = warplap.store.misses()
    assert missed["problem"].startswith("gemm:m=16,n=16,k=16")
    assert warplap.mode() == "tune"
    warplap.set_mode("replay")
    assert warplap.mode() == "replay"
    with pytest.raises(ValueError, match="expected off, replay, record, tune or background"):
        warplap.set_mode("fast")  # type: ignore[arg-type]
    tuned = warplap.tune([m["problem"] for m in warplap.store.misses()], progress=False)
    assert len(tuned) == 1 and warplap.store.misses() == []
    assert warplap.explain(warplap.matmul, a, a).how == "stored"


def test_torch_is_among_the_candidates_and_everyone_is_in_the_table():
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    table = warplap.benchmark(warplap.matmul, a, b, budget=0.5)
    names = {row["variant"] for row in table}
    assert {"torch_mm", "library", "reference", "direct"} <= names
    measured = [row for row in table if row["time_us"] is not None]
    assert all(row["low_us"] <= row["time_us"] <= row["high_us"] for row in measured)
    assert [row["outcome"] for row in table].count("winner") == 1 and table[0]["outcome"] == "winner"
    assert all(row["gflops"] > 0 for row in measured)
    assert "torch_mm" in repr(table) and "<table>" in table._repr_html_()
    assert warplap.store.ls() == []
    q = torch.randn(1, 2, 32, 16)
    assert "torch_sdpa" in {
        row["variant"] for row in warplap.benchmark("attention", q, q, q, is_causal=True, budget=0.3)
    }
    s = torch.randn(64, 64).to_sparse_bsr((16, 16))
    names = {row["variant"] for row in warplap.benchmark(warplap.bsr_matmul, s, b, budget=0.3)}
    assert ("torch_bsr" in names) == torch.backends.mkl.is_available()


def test_the_table_is_a_dataframe_where_pandas_is_there():
    pandas = pytest.importorskip("pandas")
    frame = warplap.benchmark(GEMM, budget=0.1).to_pandas()
    assert isinstance(frame, pandas.DataFrame) and "time_us" in frame.columns


def test_a_wrong_callable_is_rejected_and_a_right_one_may_win():
    calls = {"wrong": 0, "right": 0}

    def wrong(a, b, out):
        calls["wrong"] += 1
        torch.mm(a, b, out=out)
        out[-1, -1] += 1.0

    def right(a, b, out):
        calls["right"] += 1
        torch.mm(a, b, out=out)

    def never(a, b, out):
        raise AssertionError("stood aside")

    def raises(a, b, out):
        raise MemoryError("not today")

    warplap.add_variant("matmul", "wrong_one", wrong)
    warplap.add_variant("matmul", "right_one", right)
    warplap.add_variant("matmul", "aside_one", never, fit=lambda problem: "only on Sundays")
    warplap.add_variant("matmul", "raising_one", raises)
    try:
        table = {row["variant"]: row for row in warplap.benchmark(GEMM, budget=4.0)}
        assert table["wrong_one"]["outcome"].startswith("wrong answer")
        assert table["right_one"]["time_us"] > 0 and calls["right"] > 3
        assert table["aside_one"]["outcome"] == "aside: only on Sundays"
        assert "not today" in table["raising_one"]["outcome"]
    finally:
        for name in ("wrong_one", "right_one", "aside_one", "raising_one"):
            warplap.add_variant("matmul", name, never, fit=lambda problem: "its test is over")


def test_tune_tells_its_progress_and_logs(caplog, capsys):
    with caplog.at_level(logging.INFO, logger="warplap"):
        (tuned,) = warplap.tune(GEMM, budget=0.1, progress=True)
    assert "gemm:m=32" in caplog.text
    assert "gemm:m=32" in capsys.readouterr().err
    assert not tuned.from_store and tuned.time_us > 0 and tuned.variant in repr(tuned)
    (again,) = warplap.tune([GEMM], progress=False)
    # What a busy machine has left open is gone on with, and says so.
    assert again.from_store if tuned.grade == "clean" else "went on with" in repr(again) or "stands" in repr(again)
    assert len(tuned.table()) > 2
    a, b = torch.randn(8, 8), torch.randn(8, 8)
    assert warplap.tune([(warplap.matmul, a, b), ("linear", a, b)], budget=0.05, progress=False)[0].problem.startswith(
        "gemm:m=8"
    )


def test_explain_says_who_and_why():
    assert "miss" in str(warplap.explain(GEMM))
    with pytest.raises(ValueError, match="not raced"):
        warplap.explain(GEMM).table()
    warplap.tune(GEMM, budget=0.1, progress=False)
    text = str(warplap.explain(GEMM))
    assert "winner" in text and "exact" in text


def test_the_store_goes_out_and_comes_back(tmp_path):
    warplap.tune([GEMM, "gemm:m=8,n=8,k=8,dtype=f32"], budget=0.05, progress=False)
    bundle = tmp_path / "bundle.jsonl"
    assert warplap.store.export(bundle) == 2
    warplap.configure(store=tmp_path / "other")
    assert warplap.store.ls() == [] and warplap.store.place() == str(tmp_path / "other")
    assert warplap.store.import_(bundle) == (2, 0, 0)
    assert warplap.store.import_(bundle) == (0, 0, 2)
    assert warplap.explain(GEMM).how == "stored"
    assert warplap.store.prune()["records"] == []
    assert len(warplap.store.prune(keep=1, dry_run=True)["records"]) == 1
    assert len(warplap.store.prune(keep=1)["records"]) == 1 and len(warplap.store.ls()) == 1
    with pytest.raises(KeyError):
        warplap.store.show("zz")
    broken = tmp_path / "broken"
    broken.write_text("no bundle")
    with pytest.raises(ValueError, match="no bundle"):
        warplap.store.import_(broken)


def test_bad_problems_and_settings_name_the_field():
    for call, match in [
        (lambda: warplap.tune("gemm:m=0,n=1,k=1"), "'m'"),
        (lambda: warplap.tune("gem:m=1"), "gem"),
        (lambda: warplap.benchmark("softmin", torch.zeros(2)), "op:"),
        (lambda: warplap.configure(budget=-1), "budget"),
        (lambda: warplap.configure(bucket="tens"), "bucket"),  # type: ignore[arg-type]
        (lambda: warplap.configure(clock="late"), "clock"),  # type: ignore[arg-type]
        (lambda: warplap.configure(cache="warm"), "cache"),  # type: ignore[arg-type]
        (lambda: warplap.configure(threads=0), "threads"),
        (lambda: warplap.tune(GEMM, budget=float("nan")), "budget"),
    ]:
        with pytest.raises(ValueError, match=match):
            call()


def test_a_store_that_cannot_be_used_is_a_warning(tmp_path, caplog):
    file = tmp_path / "file"
    file.write_text("")
    with caplog.at_level(logging.WARNING, logger="warplap"):
        warplap.configure(store=file)
    assert "memory only" in caplog.text and warplap.store.place() == "memory"
    warplap.matmul(torch.randn(4, 4), torch.randn(4, 4))


def test_orders_are_compiled_beside_each_other_by_a_process_that_is_kept(tmp_path):
    import threading

    from warplap.callables.compile_pool import Compiler

    compiler, answers = Compiler(), []
    order = lambda *args: answers.append(compiler.ask("callables.race", "op_name", *args))
    threads = [threading.Thread(target=order, args=(str(i),)) for i in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert answers == ["done"] * 4
    first = compiler._process.pid
    order(), order("a")
    assert "TypeError" in answers[-2] and answers[-1] == "done" and compiler._process.pid == first
    compiler._process.kill(), compiler._process.wait()
    order("a")
    assert answers[-1] == "done" and compiler._process.pid != first
    folder = compiler._folder
    compiler.end()
    assert not os.path.exists(folder)


def begins_of(*lengths):
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)


_q = torch.randn(2, 4, 12, 16)
_rows = torch.randn(20, 4, 16)
_pool = torch.randn(6, 16, 4, 16)
ATTENTION_CALLS = {
    "window": ((_q, _q, _q), {"window": 3, "is_causal": True}),
    "softcap": ((_q, _q, _q), {"softcap": 2.0}),
    "alibi_slopes": ((_q, _q, _q), {"alibi_slopes": torch.rand(4)}),
    "align": ((_q[:, :, :5], _q, _q), {"align": "bottom_right", "is_causal": True}),
    "dropout": ((_q, _q, _q), {"dropout_p": 0.25, "seed": 7}),
    "lengths": ((_q, _q, _q), {"lengths": torch.tensor([3, 12], dtype=torch.int32)}),
    "block_table": (
        (_q[:, :, :1], _pool, _pool),
        {"block_table": torch.tensor([[1, 2], [3, 5]], dtype=torch.int32), "lengths": torch.tensor([9, 20], dtype=torch.int32)},
    ),
    "cu_seqlens_q": ((_rows, _rows, _rows), {"cu_seqlens_q": begins_of(5, 9, 6), "max_seqlen_q": 9}),
}


@pytest.mark.parametrize("name", ATTENTION_CALLS)
def test_what_attention_takes_those_who_ask_about_it_take(name):
    args, more = ATTENTION_CALLS[name]
    asked = warplap.explain(warplap.attention, *args, **more)
    assert "miss" in str(asked)
    warplap.attention(*args, **more)
    known = warplap.explain(warplap.attention, *args, **more)
    assert known.problem == asked.problem and "miss" not in str(known)
    assert warplap.tune([(warplap.attention, *args, more)])[0].problem == asked.problem


def test_leading_dimensions_are_batches_to_those_who_ask_about_attention():
    five = torch.randn(2, 3, 4, 8, 16)
    assert "attention:b=6,h=4," in warplap.explain(warplap.attention, five, five, five).problem
