"""What an engine in Python remembers of its jobs: who waits, who was lost, who is given up."""

from __future__ import annotations

import io
import json

from warplap.fleet.jobs import BATCH_SECONDS, Class, Jobs, TRIES


def jobs_of(*ids: str, budget: float = 1.0) -> tuple[Jobs, Class]:
    jobs = Jobs(io.StringIO())
    jobs.take(json.dumps({"id": name, "device": "card", "soft": "0", "budget": budget}) for name in ids)
    (one,) = jobs.classes.values()
    one.nodes = {"a": 1, "b": 1}
    return jobs, one


def said(jobs: Jobs) -> list[tuple[str, str]]:
    return [(event["id"], event["state"]) for event in map(json.loads, jobs.out.getvalue().splitlines())]


def test_every_device_gets_a_share_and_no_batch_is_long():
    _, one = jobs_of(*map(str, range(8)))
    assert [job["id"] for job in one.batch()] == ["0", "1", "2", "3"]
    _, one = jobs_of(*map(str, range(200)))
    assert len(one.batch()) == int(BATCH_SECONDS / 1.4)


def test_a_job_that_ends_its_worker_is_tried_alone_and_given_up_after_its_tries():
    jobs, one = jobs_of("good", "bad", "behind")
    batch, one.waiting = one.waiting, []
    lines = [{"id": "good", "state": "begun"}, {"id": "good", "state": "done"}, {"id": "bad", "state": "begun"}]
    jobs.ended(one, batch, [*lines, {"code": -9, "errors": ""}])
    # What was behind it lost no try.
    assert [(job["id"], job["attempt"]) for job in one.waiting] == [("bad", 2), ("behind", 1)]
    for _ in range(2, TRIES + 1):
        batch = one.batch()
        assert [job["id"] for job in batch] == ["bad"]
        one.waiting = []
        jobs.ended(one, batch, [{"id": "bad", "state": "begun"}, {"code": -9, "errors": "killed"}])
    assert said(jobs)[-1] == ("bad", "failed") and not one.waiting
    assert "exit -9) killed; tried 3 times" in jobs.out.getvalue()


def test_a_worker_that_says_nothing_costs_its_first_job_a_try():
    jobs, one = jobs_of("first", "second")
    batch, one.waiting = one.waiting, []
    jobs.ended(one, batch, [{"code": 1, "errors": "no such store"}])
    assert [(job["id"], job["attempt"]) for job in one.waiting] == [("first", 2), ("second", 1)]


def test_a_job_that_met_another_card_is_tried_again():
    jobs, one = jobs_of("a")
    batch, one.waiting = one.waiting, []
    jobs.ended(one, batch, [{"id": "a", "state": "refused", "why": "this is another"}, {"code": 0, "errors": ""}])
    assert said(jobs) == [("a", "lost")] and one.waiting[0]["attempt"] == 2


def test_nonsense_is_refused_by_its_line_and_nobody_waits_for_ever():
    jobs, one = jobs_of("a")
    jobs.take(["nonsense", "", "[]", '{"id": "b"}'])
    assert said(jobs) == [("line-1", "failed"), ("line-2", "failed"), ("line-3", "failed")]
    jobs.give_up(0)
    assert one.waiting
    one.nodes = {}
    jobs.give_up(-1)
    assert not one.waiting and "no node has had a device of card 0" in jobs.out.getvalue()
