"""crash_at, drain(twice=True) and assert_idempotent: the worker dies, and the task is run again."""

from __future__ import annotations

import pytest

from penstock import App, Refused, Retry, State, current_job, use


@pytest.fixture
def app():
    return App("memory:")


@pytest.fixture
def calls():
    return []


@pytest.fixture
def work(app, calls):
    @app.task(name="work")
    def work(n: int = 0) -> int:
        calls.append(n)
        return n

    return work


@pytest.mark.parametrize(
    ("point", "counted"), [("claim", (1, 0)), ("run", (1, 1)), ("settle", (2, 1))]
)
def test_a_worker_that_dies_loses_nothing(app, work, calls, point, counted):
    runs, lapses = counted
    with app.testing() as t:
        handle = work.enqueue(7)

        with t.crash_at(point):
            ran = t.drain()

        assert [each.died_at for each in ran] == [point, None]
        assert [each.state for each in ran] == [State.READY, State.SUCCEEDED]
        assert handle.result(timeout=0) == 7
        assert len(calls) == runs
        [job] = t.jobs()
        history = [event for event in t.broker.history(job=job.id) if event.kind == "attempt"]
        assert sum(event.reason == "crashed" for event in history) == lapses


@pytest.mark.parametrize(("point", "runs"), [("claim", 1), ("run", 1), ("settle", 2)])
def test_async_tasks_die_at_the_same_points(app, calls, point, runs):
    @app.task
    async def fetch() -> None:
        calls.append("fetch")

    with app.testing() as t:
        fetch.enqueue()

        with t.crash_at(point):
            t.drain()

        assert len(calls) == runs
        assert [job.state for job in t.jobs()] == [State.SUCCEEDED]


def test_a_crash_is_for_one_time(app, work, calls):
    with app.testing() as t:
        for n in range(3):
            work.enqueue(n)
        t.crash_at("settle")

        t.drain()

        assert sorted(calls) == [0, 0, 1, 2]


def test_a_crash_can_wait_for_a_task(app, work, calls):
    @app.task
    def other() -> None:
        calls.append("other")

    with app.testing() as t:
        work.enqueue(1)
        other.enqueue()
        t.crash_at("settle", other)

        t.drain()

        assert sorted(calls, key=str) == [1, "other", "other"]


def test_a_block_that_ends_without_the_crash_fails(app, work):
    with app.testing() as t:
        work.enqueue()

        with (
            pytest.raises(AssertionError, match=r'crash_at\("settle"\): no job of gone got there'),
            t.crash_at("settle", "gone"),
        ):
            t.drain()


def test_an_error_in_the_block_is_not_hidden(app, work):
    with app.testing() as t, pytest.raises(ZeroDivisionError), t.crash_at("settle"):
        _ = 1 / 0


def test_an_unknown_point_is_refused(app):
    with app.testing() as t, pytest.raises(Refused, match='"claim", "run" or "settle"'):
        t.crash_at("enqueue")


def test_crashes_beyond_the_budget_end_the_job(app, work, calls):
    with app.testing() as t:
        work.enqueue()
        for _ in range(3):
            t.crash_at("run")

        t.drain()
        t.clock.advance(seconds=1)  # after the second crash it waits
        t.drain()

        [job] = t.jobs()
        assert (job.state, job.reason, calls) == (State.FAILED, "crashed", [])


def test_an_at_most_once_job_is_lost_and_not_run_again(app, calls):
    @app.task(at_most_once=True)
    def charge() -> None:
        calls.append("charged")

    with app.testing() as t:
        charge.enqueue()
        t.crash_at("settle")

        t.drain()

        [job] = t.jobs()
        assert (job.state, job.reason, calls) == (State.FAILED, "lost", ["charged"])


def test_steps_are_remembered_across_a_crash(app, calls):
    def charge() -> str:
        calls.append("charge")
        return "receipt"

    @app.task
    def order() -> str:
        return current_job().step("charge", charge)

    with app.testing() as t:
        handle = order.enqueue()
        t.crash_at("settle")

        t.drain()

        assert calls == ["charge"]
        assert handle.result(timeout=0) == "receipt"


def test_twice_runs_every_job_a_second_time_once(app, work, calls):
    with app.testing() as t:
        for n in range(3):
            work.enqueue(n)

        ran = t.drain(twice=True)

        assert sorted(calls) == [0, 0, 1, 1, 2, 2]
        assert len(ran) == 6
        assert {job.state for job in t.jobs()} == {State.SUCCEEDED}


def test_twice_leaves_failures_and_at_most_once_jobs_alone(app, calls):
    @app.task(retry=Retry(limit=1, delay=0))
    def flaky() -> None:
        calls.append("flaky")
        if len(calls) == 1:
            raise OSError

    @app.task(at_most_once=True)
    def charge() -> None:
        calls.append("charge")

    with app.testing() as t:
        flaky.enqueue()
        t.drain(twice=True)
        assert calls == ["flaky"] * 3

        charge.enqueue()
        t.drain(twice=True)
        assert calls == [*["flaky"] * 3, "charge"]


def test_twice_with_a_state_tells_which_tasks_are_not_idempotent(app):
    stock = {"tea": 3}

    @app.task(name="take")
    def take(what: str) -> None:
        stock[what] -= 1

    @app.task(name="set")
    def set_to(what: str, count: int) -> None:
        stock[what] = count

    with app.testing() as t:
        for _ in range(20):
            stock["tea"] = 3
            set_to.enqueue("mugs", 1)
            take.enqueue("tea")
            set_to.enqueue("mugs", 1)

            ran = t.drain(twice=True, state=lambda: stock)

            assert [each.job.attempt for each in ran] == [1, 2] * 3
            guilty = {each.task: each.difference for each in ran if each.difference}
            assert guilty == {"take": "state()['tea']: 2 became 1"}


def test_an_idempotent_task_passes(app):
    sent = {}

    def mailer() -> dict:
        return sent

    @app.task
    def send(to: str, box: dict = use(mailer)) -> None:
        box[current_job().idempotency_key()] = to

    with app.testing() as t:
        t.assert_idempotent(send, "ada", state=lambda: sent)

    assert list(sent.values()) == ["ada"]


def test_a_task_that_is_not_idempotent_is_named_with_the_difference(app):
    sent = []

    @app.task(name="send")
    def send(to: str) -> None:
        sent.append(to)

    with app.testing() as t, pytest.raises(AssertionError) as failure:
        t.assert_idempotent(send, "ada", state=lambda: sent)

    assert str(failure.value) == (
        "send('ada') is not idempotent: run a second time, it changed state()[1]: 'ada' is new"
    )


def test_only_the_job_in_question_is_run(app, work, calls):
    with app.testing() as t:
        work.enqueue(1)

        t.assert_idempotent(work, 2, state=lambda: None)

        assert calls == [2, 2]
        assert len(t.jobs(state="ready")) == 1


def test_a_task_that_fails_is_no_proof(app):
    @app.task(name="fail")
    def fail() -> None:
        raise ValueError("always")

    with app.testing() as t, pytest.raises(AssertionError, match=r"(?s)did not succeed:.*always"):
        t.assert_idempotent(fail, state=lambda: None)


def test_a_task_that_fails_the_second_time_is_not_idempotent(app):
    seen = []

    @app.task(name="insert")
    def insert(row: int) -> None:
        if row in seen:
            raise KeyError(row)
        seen.append(row)

    with app.testing() as t, pytest.raises(AssertionError, match=r"(?s)did not succeed:.*KeyError"):
        t.assert_idempotent(insert, 1, state=lambda: seen)


def test_a_task_that_may_not_run_says_why(app, work):
    from penstock.rules.rule import Rule, RuleKind

    with app.testing() as t:
        t.broker.put(Rule(RuleKind.PAUSE, task="work"))

        with pytest.raises(AssertionError, match=r"did not run: .*paused"):
            t.assert_idempotent(work, state=lambda: None)


def test_an_at_most_once_task_cannot_be_tried_twice(app):
    @app.task(name="charge", at_most_once=True)
    def charge() -> None: ...

    with app.testing() as t, pytest.raises(Refused, match="never run a second time"):
        t.assert_idempotent(charge, state=lambda: None)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (1, 1, None),
        (1, 2, "state(): 1 became 2"),
        ({"a": 1}, {}, "state()['a']: 1 is gone"),
        ({}, {"a": 1}, "state()['a']: 1 is new"),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, "state()['a'][1]['b']: 2 became 3"),
        ([1, 2], [1], "state()[1]: 2 is gone"),
        ([1], (1,), "state(): [1] became (1,)"),
        ({1}, {1, 2}, "state(): {1} became {1, 2}"),
    ],
)
def test_differences_are_said_with_their_place(before, after, words):
    from penstock.testing.compare import difference

    assert difference(before, after) == words
