"""Why a queue, a task, a worker, a flow or a schedule is as it is: findings with what helps."""

from __future__ import annotations

import msgspec
import pytest

from penstock.broker.views import WorkerRow
from penstock.errors import Refused
from penstock.job import failed, succeeded
from penstock.operate.refusals import NotFound
from penstock.operate.why_named import why_named
from penstock.rules.rule import Rule, RuleKind
from penstock.schedules.schedule import Schedule
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    claim,
    claim_for,
    part,
    settle,
    some_jobs,
)


def said(broker, target: str) -> dict[str, tuple[str, str, str]]:
    """The findings by their names."""
    _, findings = why_named(broker, target)
    return {each.name: (str(each.colour), each.says, each.remedy) for each in findings}


def a_worker(id: str = "berlin-1", **fields) -> WorkerRow:
    return WorkerRow(**{"id": id, "tasks": {"mail:send": 1}, "host": "berlin", "pid": 7, **fields})


def test_a_paused_queue_without_a_worker_says_both_with_the_commands(broker, clock):
    broker.enqueue(some_jobs(clock, 3, queue="mail"))
    broker.put(Rule(RuleKind.PAUSE, "mail", None, "ada", "provider is down"))

    findings = said(broker, "queue:mail")

    assert findings["jobs"][1] == "3 paused"
    assert "set by ada: provider is down; 3 jobs are held back" in findings["rules"][1]
    assert findings["rules"][2] == "penstock resume mail"
    assert findings["workers"] == ("yellow", "no worker is alive", "penstock worker MODULE:APP")


def test_a_queue_that_no_worker_serves_is_red_while_jobs_are_ready(broker, clock):
    broker.enqueue([a_job(clock, queue="mail")])
    claim_for(broker, a_worker(queues=("media",)), queues=("media",))

    findings = said(broker, "mail")

    assert findings["workers"] == (
        "red",
        "no live worker serves queue mail; they serve media",
        "penstock worker MODULE:APP --queues mail",
    )


def test_a_task_whose_queue_nobody_serves_is_red(broker, clock):
    broker.enqueue([a_job(clock, queue="mail"), a_job(clock, queue="bulk")])

    assert said(broker, "task:mail:send")["workers"] == (
        "red",
        "no worker is alive",
        "penstock worker MODULE:APP",
    )
    claim_for(broker, a_worker(queues=("bulk",)), queues=("bulk",))

    assert "no live worker serves queue mail" in said(broker, "task:mail:send")["workers"][1]


def test_failed_jobs_and_tasks_that_nobody_knows_are_named(broker, clock):
    broker.enqueue([a_job(clock, queue="mail"), a_job(clock, queue="mail", task="mail:sned")])
    [job] = claim_for(broker, a_worker())
    settle(broker, job, failed("boom"))

    findings = said(broker, "queue:mail")

    assert findings["failed"][2] == "penstock find state:failed queue:mail"
    assert "no live worker knows it; similar: mail:send" in findings["tasks"][1]
    assert said(broker, "task:mail:sned")["tasks"][0] == "red"


def test_how_long_the_oldest_job_waits_and_whether_the_queue_grows(broker, clock):
    broker.enqueue(some_jobs(clock, 2, queue="mail"))
    broker.gauge()
    clock.advance(seconds=660)
    broker.enqueue(some_jobs(clock, 5, queue="mail"))
    broker.gauge()

    colour, says, remedy = said(broker, "queue:mail")["wait"]

    assert colour == "yellow"
    assert "its oldest due job waited 11 min" in says
    assert "5 more ready than 11 min before" in says
    assert remedy


def test_a_worker_says_what_it_runs_and_whether_it_is_alive(broker, clock):
    broker.enqueue([a_job(clock)])
    [job] = claim_for(broker, a_worker())
    clock.advance(seconds=5)

    findings = said(broker, "worker:berlin-1")
    assert findings["worker"][1].startswith("busy: running jobs (berlin, pid 7")
    assert findings["runs"] == ("green", "mail:send for 5 s", f"penstock show {job.id}")

    clock.advance(seconds=60)
    colour, says, _ = said(broker, "berlin-1")["worker"]
    assert (colour, "its lease has expired" in says) == ("red", True)


def test_a_flow_says_what_failed_and_what_it_waits_for(broker, clock):
    parts = a_flow(clock, first=part(), second=part(task="mail:other"), last=part("first"))
    parts.send(broker)
    [job] = claim(broker, tasks={"mail:send": 1})
    settle(broker, job, failed("ValueError: no such order"))

    findings = said(broker, f"flow:{parts.flow.id}")

    assert findings["flow"][0] == "red"
    assert findings["flow"][2] == f"penstock retry --flow {parts.flow.id}"
    assert "ValueError: no such order" in findings["mail:send"][1]
    assert findings["mail:send"][2] == f"penstock show {job.id}"
    assert "1 job left." in findings["mail:other"][1]


def test_a_schedule_says_where_it_stands_and_what_became_of_its_last_job(broker, clock):
    schedule = Schedule(name="nightly", job=a_job(clock), every=60.0, created_at=clock.now())
    broker.put(msgspec.structs.replace(schedule, decided_until=clock.now(), paused=True))

    findings = said(broker, "nightly")

    assert findings["schedule"] == ("yellow", "paused", "penstock schedules nightly --resume")


def test_a_name_of_two_things_is_refused_with_both(broker, clock):
    broker.enqueue([a_job(clock, queue="mail:send")])

    with pytest.raises(Refused, match="`penstock why queue:mail:send` or `penstock why task:"):
        why_named(broker, "mail:send")


@pytest.mark.parametrize("kind", ["", "queue:", "task:", "worker:", "schedule:"])
def test_what_is_not_there_is_refused_with_similar_names(broker, clock, kind):
    broker.enqueue([a_job(clock, queue="payments")])

    with pytest.raises(NotFound) as refused:
        why_named(broker, f"{kind}payment")

    if kind in {"", "queue:"}:
        assert "similar: payments" in str(refused.value)


def test_an_unknown_flow_is_refused(broker):
    with pytest.raises(NotFound, match="is not a flow in this store"):
        why_named(broker, f"flow:{'0' * 32}")


def test_an_ended_flow_says_so(broker, clock):
    parts = a_flow(clock, only=part())
    parts.send(broker)
    [job] = claim(broker)
    settle(broker, job, succeeded())

    assert said(broker, f"flow:{parts.flow.id}")["flow"][1].startswith("it has ended: 1 of 1 jobs")
