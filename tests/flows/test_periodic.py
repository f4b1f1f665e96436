"""Tasks that start themselves again, on every store: an exception does not end the series."""

from __future__ import annotations

import pytest

from penstock import App, Repeat, State, current_job


@pytest.fixture
def under_test(url: str):
    app = App("memory:")
    with app.testing(url=url) as t:
        yield t


def beats_of(t, seconds: int) -> list[float]:
    """Let the time pass, second by second, with other jobs in between."""
    app = t.app
    beats: list[float] = []
    begin = t.clock.now()

    @app.task(name="other")
    def other() -> None: ...

    @app.hook("claimed")
    def note(job) -> None:
        if job.task == "beat":
            beats.append(t.clock.now() - begin)

    for _ in range(seconds):
        other.enqueue()
        assert [ran.job.task for ran in t.drain()].count("other") == 1
        t.clock.advance(seconds=1)
    return beats


def test_a_task_that_repeats_goes_on_after_an_exception(under_test):
    """B22, B23: ten beats in forty seconds; the errors are told, and others run in between."""
    t = under_test

    @t.app.task(name="beat", on_success=Repeat(delay=4), on_error=Repeat(delay=4))
    def beat() -> None:
        if current_job().attempt % 3 == 0:
            raise RuntimeError("a bad beat")

    handle = beat.enqueue()

    assert beats_of(t, 40) == [4.0 * number for number in range(10)]
    told = [event.error for event in t.broker.history(job=handle.id) if event.error]
    assert [text.strip().endswith("a bad beat") for text in told] == [True] * 3


def test_a_task_that_enqueues_itself_at_its_end_goes_on_after_an_exception(under_test):
    """B22, B23: as haskell-bee does it; the error strategy is applied to the job that raised."""
    t = under_test

    @t.app.task(name="beat")
    def beat(number: int) -> None:
        try:
            if number == 2:
                raise RuntimeError("a bad beat")
        finally:
            beat.options(delay=4).enqueue(number + 1)

    beat.enqueue(0)

    assert beats_of(t, 20) == [0.0, 4.0, 8.0, 12.0, 16.0]
    [failed] = t.jobs("beat", State.FAILED)
    assert "a bad beat" in failed.error
    assert len(t.jobs("beat", State.READY)) == 1


def test_a_series_outlives_the_worker_that_dies_in_it(under_test):
    """B22, B23: the next run is part of the end of this one."""
    t = under_test

    @t.app.task(name="beat", on_success=Repeat(delay=4), on_error=Repeat(delay=4))
    def beat() -> None: ...

    handle = beat.enqueue()
    with t.crash_at("settle", "beat"):
        t.drain()
    t.clock.advance(seconds=4)
    t.drain()

    job = t.broker.get(handle.id)
    assert (job.state, job.repeats, job.lapses) == (State.READY, 2, 1)
