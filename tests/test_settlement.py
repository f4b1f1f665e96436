"""Settlement: where an outcome leaves its job, decided without a store."""

from __future__ import annotations

import msgspec
import pytest

from penstock.broker.settlement import kept_until, leaves_history, retried, settled
from penstock.job import Job, Outcome, State, failed, lapsed, put_back, succeeded, try_again

NOW = 1000.0
RUNNING = Job(task="a", state=State.RUNNING, attempt=1, worker="w", claimed_at=990.0)


def after(outcome: Outcome, *, cancelled: bool = False, **changes):
    return settled(msgspec.structs.replace(RUNNING, **changes), outcome, NOW, cancelled=cancelled)


def test_counters_are_added_and_the_attempt_stays():
    job = after(try_again("x", 1060.0), failures=1, lapses=1, repeats=1)

    assert (job.failures, job.lapses, job.repeats, job.attempt) == (2, 1, 1, 1)
    assert (job.state, job.run_at, job.ended_at) == (State.READY, 1060.0, None)


def test_a_job_that_is_ready_again_belongs_to_nobody():
    job = after(put_back("limit"))

    assert (job.worker, job.claimed_at, job.run_at, job.reason) == (None, None, NOW, "limit")


def test_a_put_back_keeps_the_error_of_the_last_failure():
    assert after(put_back("limit"), error="boom").error == "boom"
    assert after(try_again("new", NOW), error="old").error == "new"


@pytest.mark.parametrize(
    ("lapses", "state", "reason"),
    [(0, State.READY, "crashed"), (1, State.READY, "crashed"), (2, State.FAILED, "crashed")],
)
def test_the_crash_budget(lapses, state, reason):
    """D27."""
    job = after(lapsed(), lapses=lapses)

    assert (job.state, job.reason, job.lapses) == (state, reason, lapses + 1)


@pytest.mark.parametrize(
    ("budget", "lapses", "state"),
    [(1, 0, State.FAILED), (5, 3, State.READY), (5, 4, State.FAILED)],
)
def test_a_body_may_have_a_crash_budget_of_its_own(budget, lapses, state):
    """D27, D28."""
    body = b'{"args":{},"crash_budget":%d}' % budget

    assert after(lapsed(), lapses=lapses, body=body).state is state


def test_an_argument_of_that_name_is_no_crash_budget():
    body = b'{"args":{"crash_budget":1}}'

    assert after(lapsed(), body=body).state is State.READY


@pytest.mark.parametrize(
    ("lapses", "delay"), [(0, 0), (1, 1), (2, 2), (3, 4), (8, 128), (9, 256), (10, 300), (99, 300)]
)
def test_silence_has_a_back_off(lapses, delay):
    """V24."""
    body = b'{"args":{},"crash_budget":1000}'

    assert after(lapsed(), lapses=lapses, body=body).run_at == NOW + delay


def test_an_at_most_once_job_is_lost_with_its_first_lapse():
    """C3."""
    job = after(lapsed(), at_most_once=True)

    assert (job.state, job.reason, job.ended_at) == (State.FAILED, "lost", NOW)
    assert after(put_back("limit"), at_most_once=True).state is State.READY


@pytest.mark.parametrize(
    "outcome", [put_back("x"), try_again("x", 5.0), lapsed(), Outcome(State.CANCELLED)]
)
def test_a_cancelled_job_is_not_run_again(outcome):
    job = after(outcome, cancelled=True)

    assert (job.state, job.reason, job.ended_at) == (State.CANCELLED, "cancelled", NOW)


@pytest.mark.parametrize("outcome", [succeeded(b"1"), failed("x")])
def test_an_end_of_its_own_stands_against_a_cancel(outcome):
    assert after(outcome, cancelled=True).state is outcome.state


def test_an_end_has_the_time_the_worker_says():
    assert after(succeeded()).ended_at == NOW
    assert after(Outcome(State.SUCCEEDED, ended_at=998.0)).ended_at == 998.0


@pytest.mark.parametrize(
    ("outcome", "leaves"),
    [
        (put_back("x"), False),
        (msgspec.structs.replace(put_back("x"), started_at=1.0), True),
        (lapsed(), True),
        (succeeded(), True),
        (failed("x"), True),
        (Outcome(State.CANCELLED), True),
    ],
)
def test_an_attempt_leaves_history_if_it_began_lapsed_or_was_the_last(outcome, leaves):
    assert leaves_history(outcome, after(outcome)) is leaves


@pytest.mark.parametrize(
    ("expires_at", "kept"), [(None, None), (NOW - 1, None), (NOW, None), (NOW + 1, NOW + 1)]
)
def test_a_retried_job_begins_anew_and_goes_on_counting_attempts(expires_at, kept):
    ended = msgspec.structs.replace(
        RUNNING,
        state=State.FAILED,
        attempt=4,
        failures=3,
        lapses=2,
        repeats=1,
        reason="error",
        ended_at=NOW - 5,
        keep_until=NOW + 5,
        expires_at=expires_at,
    )

    job = retried(ended, State.READY, NOW)

    assert (job.state, job.attempt, job.run_at) == (State.READY, 4, NOW)
    assert (job.failures, job.lapses, job.repeats) == (0, 0, 0)
    assert (job.reason, job.ended_at, job.keep_until, job.expires_at) == (None, None, None, kept)


def test_what_is_kept_for_a_time_is_kept_that_long_after_its_end():
    assert kept_until(Outcome(State.FAILED, keep_for=60.0), NOW) == NOW + 60
    assert kept_until(Outcome(State.FAILED), NOW) is None
    assert kept_until(Outcome(State.FAILED, keep_for=60.0), None) is None
