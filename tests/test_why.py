"""Why: facts in, the first cause out, in a sentence that a person can act on."""

from __future__ import annotations

import msgspec
import pytest

from penstock.broker.views import WorkerRow
from penstock.job import Job, State
from penstock.operate.time_text import duration_text, time_text
from penstock.operate.why import explain
from penstock.rules.rule import Rule, RuleKind

NOW = 1_794_733_800.0  # 2026-11-15 09:10:00 UTC
JOB = Job(task="mail:send", id="job-1", queue="mail", enqueued_at=NOW - 60)
WORKER = WorkerRow(id="worker-1", tasks={"mail:send": 1}, host="ada", pid=7)


def why(job=JOB, rules=(), workers=(WORKER,), ahead=0, **changes):
    job = msgspec.structs.replace(job, **changes) if job else None
    return explain("job-1", job, NOW, list(rules), list(workers), ahead)


def test_an_unknown_job():
    answer = why(job=None)

    assert (answer.job, answer.state, answer.cause) == ("job-1", None, "unknown")
    assert "job-1" in answer.sentence


def test_a_job_that_waits_for_its_time():
    answer = why(run_at=NOW + 200)

    assert (answer.state, answer.cause) == (State.READY, "time")
    assert answer.sentence == (
        "It waits for its time: due in 3 min 20 s (2026-11-15 09:13:20 UTC)."
    )


def test_a_job_that_failed_and_waits():
    answer = why(run_at=NOW + 60, failures=2, error="Traceback\n  ...\nValueError: boom\n")

    assert answer.sentence.startswith("It failed 2 times (ValueError: boom)")
    assert "due in 1 min" in answer.sentence


def test_a_job_that_asked_to_run_later():
    """G41: why, in its own words."""
    answer = why(run_at=NOW + 60, reason="later", error="the platform is rate limited")

    assert answer.cause == "time"
    assert answer.sentence.startswith("It asked to run later (the platform is rate limited): due")


def test_a_job_that_waits_and_whose_queue_is_paused_says_both():
    answer = why(run_at=NOW + 60, rules=[Rule(RuleKind.PAUSE, "mail", created_at=NOW)])

    assert answer.cause == "time"
    assert "paused" in answer.sentence


def test_a_paused_queue():
    rule = Rule(RuleKind.PAUSE, "mail", None, "ada", "provider down", NOW - 60)

    answer = why(rules=[rule])

    assert answer.cause == "paused"
    assert answer.sentence == (
        "Queue mail is paused by ada since 2026-11-15 09:09:00 UTC: 'provider down'. "
        "`penstock resume mail` lets it run."
    )


def test_a_block_wins_over_a_pause():
    """D57."""
    rules = [Rule(RuleKind.PAUSE, "mail"), Rule(RuleKind.BLOCK, None, "mail:send", until=NOW + 5)]

    answer = why(rules=rules)

    assert answer.cause == "blocked"
    assert answer.sentence.startswith("Task mail:send is blocked since")
    assert "until 2026-11-15 09:10:05 UTC" in answer.sentence
    assert "`penstock unblock --task mail:send --admin`" in answer.sentence


def test_a_rule_over_queue_and_task_names_both_in_the_way_out():
    answer = why(rules=[Rule(RuleKind.PAUSE, "mail", "mail:send")])

    assert answer.sentence.startswith("Queue mail and task mail:send is paused")
    assert "`penstock resume mail --task mail:send`" in answer.sentence


def test_a_rule_over_everything():
    assert why(rules=[Rule(RuleKind.PAUSE)]).sentence.startswith("Everything is paused")
    assert why(rules=[Rule(RuleKind.BLOCK)]).sentence.startswith("The store is frozen")


def test_no_worker_at_all():
    answer = why(workers=[])

    assert answer.cause == "no_worker"
    assert "`penstock worker`" in answer.sentence


def test_only_workers_that_fell_silent():
    answer = why(workers=[msgspec.structs.replace(WORKER, alive=False)])

    assert answer.cause == "no_worker"
    assert "worker-1 (ada, pid 7)" in answer.sentence


def test_a_task_that_nobody_knows_has_a_near_name():
    """D53."""
    answer = why(task="mail:sned")

    assert answer.cause == "no_task"
    assert answer.sentence == (
        "No live worker knows the task 'mail:sned'; workers know 'mail:send' (did you mean "
        "that?). It runs when a worker that knows it is started."
    )


def test_a_task_that_nobody_knows_and_nothing_is_near():
    workers = [msgspec.structs.replace(WORKER, tasks={f"task-{n}": 1 for n in range(8)})]

    answer = why(task="mail:send", workers=workers)

    assert "workers know 'task-0', 'task-1', 'task-2', 'task-3', 'task-4' and 3 more" in (
        answer.sentence
    )


def test_a_queue_that_nobody_serves():
    answer = why(workers=[msgspec.structs.replace(WORKER, queues=("media",))])

    assert answer.cause == "no_queue"
    assert "'mail'" in answer.sentence
    assert "'media'" in answer.sentence


def test_a_version_that_is_too_new():
    answer = why(version=3)

    assert answer.cause == "no_version"
    assert "version 3" in answer.sentence
    assert "version 1 at most" in answer.sentence


def test_tags_that_no_worker_has():
    workers = [
        msgspec.structs.replace(WORKER, tags=frozenset({"gpu"})),
        msgspec.structs.replace(WORKER, id="worker-2", tags=frozenset({"linux"})),
    ]

    answer = why(runs_on=("gpu", "linux"), workers=workers)

    assert answer.cause == "no_tags"
    assert "'gpu', 'linux'" in answer.sentence


def test_one_worker_that_can_is_enough():
    workers = [
        msgspec.structs.replace(WORKER, alive=False),
        msgspec.structs.replace(WORKER, id="worker-2", queues=("media",)),
        msgspec.structs.replace(WORKER, id="worker-3", queues=("mail",)),
    ]

    assert why(workers=workers).cause == "next"


@pytest.mark.parametrize(
    ("ahead", "sentence"),
    [
        (0, "It is ready and next: no job of its lane is ahead of it."),
        (1, "It is ready: 1 job of its lane is ahead of it."),
        (12, "It is ready: 12 jobs of its lane are ahead of it."),
        (None, "It is ready, and workers that can run it are alive."),
    ],
)
def test_a_ready_job_says_what_is_ahead(ahead, sentence):
    assert why(ahead=ahead).sentence == sentence


def test_a_running_job_says_where_and_since_when():
    answer = why(state=State.RUNNING, worker="worker-1", claimed_at=NOW - 90, attempt=2)

    assert (answer.state, answer.cause) == (State.RUNNING, "running")
    assert answer.sentence == (
        "It runs on worker worker-1 (ada, pid 7) since 2026-11-15 09:08:30 UTC (1 min 30 s), "
        "attempt 2."
    )


def test_a_running_job_whose_worker_fell_silent_says_so():
    workers = [msgspec.structs.replace(WORKER, alive=False)]

    answer = why(state=State.RUNNING, worker="worker-1", claimed_at=NOW, workers=workers)

    assert answer.cause == "running"
    assert "becomes ready again" in answer.sentence


def test_a_running_job_whose_worker_has_no_row():
    assert "worker-9" in why(state=State.RUNNING, worker="worker-9").sentence


def test_a_waiting_job():
    assert why(state=State.WAITING).cause == "needs"


def test_a_job_that_succeeded():
    answer = why(state=State.SUCCEEDED, ended_at=NOW)

    assert answer.cause == "ended"
    assert answer.sentence == "It succeeded at 2026-11-15 09:10:00 UTC."


def test_a_job_that_failed_says_why_and_the_way_out():
    answer = why(
        state=State.FAILED, reason="error", error="Traceback\nValueError: boom", ended_at=NOW
    )

    assert answer.sentence == (
        "It failed at 2026-11-15 09:10:00 UTC (error): ValueError: boom. "
        "`penstock retry job-1` runs it again."
    )


def test_a_job_that_crashed_without_a_word():
    assert "(crashed). " in why(state=State.FAILED, reason="crashed").sentence


def test_a_job_that_was_cancelled_or_expired():
    assert "(cancelled)" in why(state=State.CANCELLED, reason="cancelled").sentence
    assert "expired" in why(state=State.CANCELLED, reason="expired").sentence


def test_a_job_that_has_expired_but_nobody_looked_yet():
    answer = why(expires_at=NOW - 5)

    assert answer.cause == "time"
    assert "expired" in answer.sentence


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "less than a second"),
        (1, "1 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (90061, "1 d 1 h"),
        (-5, "less than a second"),
    ],
)
def test_a_span_in_its_two_largest_units(seconds, text):
    assert duration_text(seconds) == text


def test_a_moment_beyond_the_calendar_is_still_said():
    assert time_text(1e30).endswith("since 1970")
