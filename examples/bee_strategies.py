"""Strategies (haskell-bee's story): what happens to a job that succeeded, failed or timed out.

    python examples/bee_strategies.py

    archive strategy    on_success="keep" or "delete"
    error strategy      on_error="keep", "delete", Repeat() or Repeat(limit=N, then="keep")
    timeout strategy    on_timeout=... the same

They are set for a task, or for one job with `options(...)`. A periodic task is one that repeats
after success and after an error. The test clock makes time pass at once.
"""

from penstock import App, Repeat, State
from penstock.task.retry import Strategy
from penstock.testing import Testing

app = App("memory:")
runs: list[str] = []


@app.task(name="bee:echo", on_success="delete")
def echo(text: str) -> str:
    """A job that is deleted when it succeeds."""
    runs.append(text)
    return text


@app.task(name="bee:work", timeout=5)
def work(how: str) -> str:
    """Succeed, fail, or take too long."""
    runs.append(how)
    if how == "error":
        raise ValueError("no honey")
    if how == "timeout":
        testing.clock.advance(seconds=6)
    return how


@app.task(name="bee:heartbeat", on_success=Repeat(delay=4), on_error=Repeat(delay=4))
def heartbeat() -> None:
    """Run every four seconds, for ever, errors or not."""
    runs.append("heartbeat")
    if runs.count("heartbeat") == 3:
        raise ConnectionError("missed a beat")


def after_success(t: Testing) -> None:
    """Archived, or deleted."""
    kept, gone = work.enqueue("fine"), echo.enqueue("hello")
    t.drain()
    print(f"success: kept is {kept.state()}, deleted is {gone.state()}")
    assert kept.state() is State.SUCCEEDED
    assert gone.state() is None


def after_failure(t: Testing, how: str) -> None:
    """The five strategies, for errors and for timeouts alike."""
    strategies: dict[str, Strategy] = {
        "keep": "keep",
        "delete": "delete",
        "repeat": Repeat(),
        "repeat 1, else keep": Repeat(limit=1, then="keep"),
        "repeat 1, else delete": Repeat(limit=1, then="delete"),
    }
    for name, strategy in strategies.items():
        runs.clear()
        with_strategy = (
            work.options(on_error=strategy) if how == "error" else work.options(on_timeout=strategy)
        )
        handle = with_strategy.enqueue(how)
        t.drain(limit=4)
        job = t.broker.get(handle.id)
        state = "gone" if job is None else job.state
        print(f"{how}, {name}: runs {len(runs)} times, then is {state}")
        expected = {"keep": (1, State.FAILED), "delete": (1, "gone"), "repeat": (4, State.READY)}
        ended = State.FAILED if name.endswith("keep") else "gone"
        assert (len(runs), state) == expected.get(name, (2, ended))
        if job is not None:
            assert job.attempt == len(runs)  # bee's readCount
            handle.cancel()


def periodic(t: Testing) -> None:
    """Ten beats in forty seconds, one of which fails; other jobs run in between."""
    runs.clear()
    beat = heartbeat.enqueue()
    for _ in range(40):
        echo.options(delay=0.5).enqueue("between")
        t.drain()
        t.clock.advance(seconds=1)
    print(f"40 seconds: {runs.count('heartbeat')} beats, {runs.count('between')} others")
    assert runs.count("heartbeat") == 10
    assert runs.count("between") == 39
    failed = [event for event in t.broker.history(job=beat.id) if event.error]
    assert "missed a beat" in str(failed[0].error)
    assert beat.cancel()


if __name__ == "__main__":
    with app.testing() as testing:
        after_success(testing)
        after_failure(testing, "error")
        after_failure(testing, "timeout")
        periodic(testing)
