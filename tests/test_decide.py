"""Where an attempt leads, from its policy alone."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.enqueue.codec import JobOptions, RetryWire
from penstock.job import Job, Outcome, State
from penstock.run.decide import Policy, after_error, after_success, after_timeout, policy_for
from penstock.task.retry import Repeat, Retry

NOW = 1000.0
STARTED = 990.0


def a_job(**fields: Any) -> Job[Any]:
    return Job(task="mail:send", **fields)


def on_error(policy: Policy, job: Job[Any], error: BaseException | None = None) -> Outcome:
    return after_error(policy, job, error or ValueError(), "trace", NOW, started_at=STARTED)


def test_a_success_is_kept_with_its_result_and_its_times() -> None:
    assert after_success(Policy(), a_job(), b"7", NOW, started_at=STARTED) == Outcome(
        State.SUCCEEDED, result=b"7", started_at=STARTED, ended_at=NOW
    )


def test_a_success_may_be_deleted() -> None:
    outcome = after_success(Policy(on_success="delete"), a_job(), b"7", NOW, started_at=STARTED)

    assert (outcome.state, outcome.keep) == (State.SUCCEEDED, False)


def test_a_success_may_be_repeated_up_to_its_limit_with_failures_forgotten() -> None:
    policy = Policy(on_success=Repeat(limit=2, delay=4, then="delete"))

    again = after_success(policy, a_job(repeats=1, failures=3), None, NOW, started_at=STARTED)
    last = after_success(policy, a_job(repeats=2), None, NOW, started_at=STARTED)

    assert (again.state, again.reason, again.run_at) == (State.READY, "repeat", NOW + 4)
    assert (again.repeats, again.failures) == (1, -3)
    assert (last.state, last.keep) == (State.SUCCEEDED, False)


def test_an_error_without_a_retry_rule_fails_and_is_kept() -> None:
    assert on_error(Policy(), a_job()) == Outcome(
        State.FAILED, "error", error="trace", failures=1, started_at=STARTED, ended_at=NOW
    )


@pytest.mark.parametrize(("failures", "state"), [(0, "ready"), (1, "ready"), (2, "failed")])
def test_the_limit_counts_retries(failures: int, state: str) -> None:
    outcome = on_error(Policy(retry=Retry(limit=2, delay=300)), a_job(failures=failures))

    assert outcome.state == state
    assert outcome.run_at == (NOW + 300 if state == "ready" else None)
    assert (outcome.failures, outcome.repeats) == (1, 0)


def test_retries_wait_longer_each_time() -> None:
    policy = Policy(retry=Retry(limit=None, delay=10, factor=2, max=35))

    waits = [on_error(policy, a_job(failures=failures)).run_at for failures in range(4)]

    assert waits == [NOW + 10, NOW + 20, NOW + 35, NOW + 35]


def test_when_no_retry_is_left_the_rule_may_delete() -> None:
    policy = Policy(retry=Retry(limit=0, then="delete"))

    assert not on_error(policy, a_job()).keep


def test_an_error_that_is_not_retried_goes_to_the_strategy() -> None:
    retry = Retry(limit=5, on=(OSError,), never=(FileNotFoundError,), then="delete")
    policy = Policy(retry=retry, on_error=Repeat(limit=1, delay=7))

    for error in (ValueError(), FileNotFoundError(), SystemExit(), KeyboardInterrupt()):
        again = on_error(policy, a_job(), error)
        assert (again.state, again.run_at, again.repeats) == (State.READY, NOW + 7, 1)
        last = on_error(policy, a_job(repeats=1), error)
        assert (last.state, last.keep) == (State.FAILED, True)


def test_an_error_may_be_deleted() -> None:
    assert not on_error(Policy(on_error="delete"), a_job()).keep


def test_a_timeout_is_an_error_unless_it_has_its_own_strategy() -> None:
    policy = Policy(retry=Retry(limit=1, delay=3, on=(TimeoutError,)), on_error="delete")

    again = after_timeout(policy, a_job(), "late", NOW, started_at=STARTED)
    last = after_timeout(policy, a_job(failures=1), "late", NOW, started_at=STARTED)

    assert (again.state, again.reason, again.run_at) == (State.READY, "timeout", NOW + 3)
    assert (last.state, last.reason, last.keep) == (State.FAILED, "timeout", False)


def test_a_timeout_with_its_own_strategy_is_not_retried() -> None:
    policy = Policy(retry=Retry(limit=9), on_timeout=Repeat(limit=2, then="keep"))

    states = [
        after_timeout(policy, a_job(repeats=repeats), "late", NOW, started_at=STARTED).state
        for repeats in range(3)
    ]

    assert states == [State.READY, State.READY, State.FAILED]


def test_a_job_without_options_has_the_policy_of_its_task() -> None:
    policy = Policy(retry=Retry(limit=1))

    assert policy_for(policy, JobOptions(headers={"a": "b"})) is policy


def test_what_a_job_says_goes_before_its_task_but_exceptions_stay() -> None:
    policy = Policy(retry=Retry(limit=1, on=(OSError,), never=(TimeoutError,)), on_success="delete")
    options = JobOptions(retry=RetryWire(limit=5, delay=1, then="delete"), on_error="delete")

    own = policy_for(policy, options)

    assert own.retry == Retry(limit=5, delay=1, then="delete", on=(OSError,), never=(TimeoutError,))
    assert (own.on_success, own.on_error, own.on_timeout) == ("delete", "delete", None)
    of_task = policy_for(Policy(on_timeout="delete"), JobOptions(on_error="keep"))
    of_job = policy_for(Policy(on_error="delete"), JobOptions(on_timeout="delete"))
    assert (of_task.on_error, of_task.on_timeout) == ("keep", "delete")
    assert (of_job.on_error, of_job.on_timeout) == ("delete", "delete")
