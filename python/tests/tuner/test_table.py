"""Tables show the order that was decided: nobody stands above the winner."""

from warplap.tuner.table import of_edition, shown_us, sure_text


def _trial(name, median, by=None, ci=None):
    measured = {"median_us": median, "ci_us": [0.9 * median, 1.1 * median], "samples_us": [], "rounds": 5}
    if by is not None:
        measured["behind"] = {"by": by, "ci": ci}
    return {"variant": name, "config": {}, "source": "", "measured": measured}


def _explanation(trials, ties=()):
    verdict = {
        "winner": {"variant": "won", "config": {}},
        "median_us": 100.0,
        "ci_us": [98.0, 102.0],
        "ties": [{"variant": name, "config": {}} for name in ties],
        "eps": 0.01,
        "confidence": 0.97,
        "grade": "clean",
        "rounds": 9,
        "launches": 30,
    }
    edition = {"verdict": verdict, "trials": trials, "skipped": [], "seconds": 1.0, "floor_us": 50.0}
    return {"problem": "p", "edition": {**edition, "work": {"flops": 1e6, "bytes": 0}}}


def test_a_loser_of_another_round_is_shown_by_its_gap_and_not_by_its_own_median():
    trials = [_trial("lost", 80.0, 0.25, [0.2, 0.3]), _trial("won", 100.0, 0.0, [0.0, 0.0])]
    trials.append(_trial("near", 90.0, 0.0, [-0.02, -0.001]))
    table = of_edition(_explanation(trials, ["near"]), every_config=True)
    assert [row["variant"] for row in table] == ["won", "near", "lost"]
    assert [round(row["time_us"]) for row in table] == [100, 100, 125]
    assert [row["outcome"] for row in table] == ["winner", "tie", "raced"]
    assert all(row["low_us"] <= row["time_us"] <= row["high_us"] for row in table)
    assert "± 5.0 %" in str(table) and "clean: decided" in str(table)


def test_records_of_earlier_programs_put_nobody_above_the_winner_either():
    table = of_edition(_explanation([_trial("lost", 80.0), _trial("won", 100.0)]), every_config=True)
    assert [row["variant"] for row in table] == ["won", "lost"] and table[1]["time_us"] == 100.0


def test_a_confidence_is_told_only_where_there_is_one():
    verdict = _explanation([])["edition"]["verdict"]
    assert sure_text(verdict) == "97 % sure to be within 1 % of the best"
    assert "do not say" in sure_text({**verdict, "confidence": 0.0})
    assert shown_us({"median_us": 7.0, "behind": {"by": 0.5, "ci": [0.4, 0.6]}}, verdict) == 150.0
