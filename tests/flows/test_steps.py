"""The steps of a flow, each with its own time, tries and priority; and how one of them ends it."""

from __future__ import annotations

from penstock import RetryLater, State, chain, current_job
from penstock.broker.filter import Filter
from penstock.task.retry import Retry


def test_the_last_step_of_a_worker_that_lost_its_lease_is_refused(guild):
    """G48: the right verdict where nothing follows, too."""
    broker = guild.t.broker
    handle = guild.access_flow().enqueue()
    guild.t.drain(limit=4)

    with guild.t.crash_at("settle", "finish"):
        ran = guild.t.drain()

    assert [attempt.job.attempt for attempt in ran] == [1, 2]
    assert broker.flow(handle.id).ended_at is not None
    attempts = [event for event in broker.history(job=handle.id) if event.kind == "attempt"]
    assert [event.state for event in attempts] == [State.READY, State.SUCCEEDED]


def test_what_is_gone_is_told_and_never_run_with_nothing(guild):
    """G49: a step whose arguments are not there any more fails with a reason, and is not called."""
    first = guild.check.job(62)
    handle = guild.reward.job("discord", access=first.output).enqueue()
    guild.t.drain(limit=1)
    guild.t.broker.act("delete", [first.id])

    guild.t.drain()

    job = guild.t.broker.get(handle.id)
    assert (job.state, job.reason) == (State.FAILED, "needs")
    assert [task for task, _ in guild.calls] == ["access-check"]


def test_a_step_nobody_began_in_time_is_told_as_expired(guild):
    """G49: reported, not run."""
    handle = guild.check.options(expires=60).enqueue(62)
    guild.t.clock.advance(seconds=61)

    guild.t.drain()

    job = guild.t.broker.get(handle.id)
    assert (job.state, job.reason) == (State.CANCELLED, "expired")
    assert guild.calls == []


def test_a_task_asks_to_run_later_and_says_why(guild):
    """G41: at that time, with no retry consumed, and the reason is there to be read."""
    app = guild.t.app
    runs: list[int] = []

    @app.task(name="busy", retry=Retry(limit=0))
    def busy() -> None:
        runs.append(current_job().attempt)
        if len(runs) == 1:
            raise RetryLater(after=90, note="the platform is rate limited")

    handle = busy.enqueue()
    guild.t.drain()
    job = guild.t.broker.get(handle.id)
    assert (job.state, job.failures, job.run_at) == (State.READY, 0, guild.t.clock.now() + 90)
    assert "the platform is rate limited" in handle.why().sentence
    guild.t.clock.advance(seconds=89)
    assert guild.t.drain() == []
    guild.t.clock.advance(seconds=1)
    guild.t.drain()

    assert runs == [1, 2]
    assert handle.state() is State.SUCCEEDED
    [put_back, _] = guild.t.broker.history(job=handle.id)
    assert (put_back.reason, put_back.error) == ("later", "the platform is rate limited")


def test_each_step_has_retries_of_its_own(guild):
    """G42: one retry is two runs; the next step begins at zero; the task can see the count."""
    app = guild.t.app
    seen: list[tuple[str, int]] = []

    @app.task(name="first", retry=Retry(limit=1, delay=0))
    def first() -> int:
        seen.append(("first", current_job().attempt))
        if len(seen) == 1:
            raise OSError("once")
        return 1

    @app.task(name="second", retry=Retry(limit=1, delay=0))
    def second(n: int) -> int:
        seen.append(("second", current_job().attempt))
        raise OSError("always")

    @app.task(name="never-again")
    def plain() -> None:
        seen.append(("plain", current_job().attempt))
        raise OSError("no retry unless asked for")

    handle = chain(first.job(), second).enqueue()
    plain.enqueue()
    guild.t.drain()

    assert sorted(seen) == [("first", 1), ("first", 2), ("plain", 1), ("second", 1), ("second", 2)]
    job = guild.t.broker.get(handle.id)
    assert (job.state, job.failures) == (State.FAILED, 2)


def test_what_is_delayed_is_listed_with_its_time(guild):
    """G38."""
    soon = guild.check.options(delay=60).enqueue(1)
    late = guild.check.options(delay=7200).enqueue(2)
    now = guild.t.clock.now()

    jobs = {job.id: job.run_at for job in guild.t.broker.find(Filter(queue=("access-check",))).jobs}

    assert jobs == {soon.id: now + 60, late.id: now + 7200}
    [count] = guild.t.broker.count()
    assert (count.scheduled, count.ready) == (2, 0)


def test_a_step_may_go_on_with_another_priority(guild):
    """G53: the higher first, and a flow may change it from one step to the next."""
    app = guild.t.app
    order: list[str] = []

    @app.task(name="step")
    def step(name: str) -> str:
        order.append(name)
        return f"{name}, then"

    app.enqueue(
        [
            chain(step.options(priority=1).job("low"), step.options(priority=9)),
            step.options(priority=2).job("middle"),
            step.options(priority=5).job("high"),
        ]
    )

    guild.t.drain()

    assert order == ["high", "middle", "low", "low, then"]
    assert [job.priority for job in sorted(guild.t.jobs("step"), key=lambda job: job.priority)] == [
        1,
        2,
        5,
        9,
    ]


def test_a_step_beyond_its_time_fails_and_says_so(guild):
    """G45: a deadline is a failure, not silence; and it ends the flow by its policy."""
    app = guild.t.app

    @app.task(name="slow", timeout=60)
    def slow() -> bool:
        guild.t.clock.advance(seconds=61)
        return True

    first = slow.job()
    handle = guild.reward.job("discord", access=first.output).enqueue()
    guild.t.drain()

    job = guild.t.broker.get(first.id)
    assert (job.state, job.reason) == (State.FAILED, "timeout")
    assert handle.state() is State.CANCELLED


def test_a_step_that_failed_says_where_and_why_and_the_flow_is_done(guild):
    """G43, G50."""
    app = guild.t.app

    @app.task(name="broken", queue="broken")
    def broken(user: int) -> bool:
        raise ConnectionError(f"no answer for {user}")

    first = broken.job(62)
    handle = guild.reward.job("discord", access=first.output).enqueue()
    guild.t.drain()

    job = guild.t.broker.get(first.id)
    assert (job.state, job.queue, job.reason) == (State.FAILED, "broken", "error")
    assert "no answer for 62" in job.error
    flow = guild.t.broker.flow(handle.id)
    assert [(node.task, node.bad) for node in flow.nodes] == [
        ("broken", 1),
        ("manage-reward:platform", 1),
    ]
    assert flow.ended_at == guild.t.clock.now()
