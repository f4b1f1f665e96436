"""wait_for and app.signal, as a program uses them: values, deadlines, spawns, refusals."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from penstock import App, Job, JobCancelled, Refused, State, chain, current_job, group, wait_for
from penstock.flows.flow import WAIT_TASK

app = App("memory:")


@dataclass
class Approval:
    by: str
    amount: int = 0


@app.task
def ship(order: int, approval: Approval) -> str:
    return f"{order} for {approval.by}"


@app.task
def collect(values: list[Any]) -> list[Any]:
    return values


@app.task
def tell(order: int, approval: Approval | None) -> str:
    return f"{order}: {approval}"


@app.task
def ask(order: int) -> None:
    approved = wait_for(f"approve-{order}", timeout=3600, returns=Approval)
    current_job().spawn([approved], then=ship.job(order, approved.output))


@app.task
def ask_wrongly() -> None:
    current_job().spawn([ask.job(1)], then=wait_for("approve"))


@pytest.fixture
def t():
    with app.testing() as t:
        yield t


def test_the_output_of_a_wait_is_the_value_of_the_signal(t):
    approved = wait_for("approve-7", timeout=86400, returns=Approval)
    handle = ship.job(7, approval=approved.output).enqueue()
    assert t.drain() == []

    assert app.signal("approve-7", Approval("ada", 3)) == 1

    t.drain()
    assert handle.result() == "7 for ada"
    assert app.handle(approved.id).result() == {"by": "ada", "amount": 3}


def test_a_plain_dict_will_do_and_is_checked_when_it_is_filled_in(t):
    good = ship.job(7, wait_for("good").output).enqueue()
    bad = ship.job(8, wait_for("bad").output).enqueue()

    app.signal("good", {"by": "ada"})
    app.signal("bad", {"by": 7})

    t.drain()
    assert good.result() == "7 for ada"
    assert bad.state() is State.FAILED


def test_nobody_waits(t):
    assert app.signal("approve-7", True) == 0

    handle = ship.job(7, wait_for("approve-7").output).enqueue()

    assert t.drain() == []
    assert handle.state() is State.WAITING


def test_a_signal_without_a_value_is_none(t):
    handle = collect.job([wait_for("a").output, wait_for("b").output]).enqueue()

    assert (app.signal("a"), app.signal("b", [1])) == (1, 1)

    t.drain()
    assert handle.result() == [None, [1]]


def test_its_time_begins_when_it_is_stored(t):
    """By the store's clock, and not when the value was made."""
    approved = wait_for("approve-7", timeout=timedelta(hours=1))
    t.clock.advance(hours=5)
    handle = ship.job(7, approved.output).enqueue()

    job = t.broker.get(approved.id)

    assert job.expires_at == t.clock.now() + 3600
    t.clock.advance(hours=1)
    t.drain()
    with pytest.raises(JobCancelled, match="needs"):
        handle.result()
    assert app.handle(approved.id).why().cause == "ended"


@pytest.mark.parametrize("days", [-400, 0, 400])
def test_whatever_time_a_test_lets_it_be(t, days):
    t.clock.jump(days * 86400)
    handle = tell.job(7, wait_for("approve-7", timeout=60).output).enqueue()

    app.signal("approve-7", {"by": "ada"})

    t.drain()
    assert handle.result() == "7: Approval(by='ada', amount=0)"


def test_whoever_goes_on_runs_without_it(t):
    approved = wait_for("approve-7", timeout=60)
    handle = tell.job(7, approved.output).enqueue(on_failure="continue")

    t.clock.advance(seconds=60)
    t.drain()

    assert handle.result() == "7: None"


def test_alone_it_is_stored_by_an_app(t):
    [handle] = app.enqueue([wait_for("approve-7", timeout=60)])

    assert handle.state() is State.WAITING
    assert handle.why().cause == "signal"
    app.signal("approve-7", "yes")
    assert handle.result() == "yes"


def test_by_itself_it_has_no_store():
    with pytest.raises(Refused, match=r"app\.enqueue"):
        wait_for("approve-7").enqueue()
    with pytest.raises(Refused, match=r"app\.enqueue"):
        group(wait_for("a"), wait_for("b")).enqueue()


def test_in_chains_and_groups(t):
    handle = chain(group(wait_for("a"), wait_for("b")), collect).enqueue()

    app.signal("b", 2)
    app.signal("a", 1)

    t.drain()
    assert handle.result() == [1, 2]


def test_one_wait_may_be_handed_to_several(t):
    approved = wait_for("approve-7", returns=Approval)
    handles = app.enqueue([ship.job(1, approved.output), ship.job(2, approved.output)])

    assert app.signal("approve-7", {"by": "ada"}) == 1

    t.drain()
    assert [handle.result() for handle in handles] == ["1 for ada", "2 for ada"]


def test_sent_again_it_is_stored_once(t):
    job = ship.job(7, wait_for("approve-7", 60, returns=Approval).output)
    handle = job.enqueue()
    app.signal("approve-7", {"by": "ada"})

    job.enqueue()

    assert app.signal("approve-7", {"by": "bob"}) == 0
    t.drain()
    assert handle.result() == "7 for ada"


def test_enqueued_from_an_event_loop(t):
    async def send() -> Any:
        return await app.enqueue_async([ship.job(7, wait_for("approve-7", 60).output)])

    [handle] = asyncio.run(send())
    [wait] = [job for job in t.jobs() if job.task == WAIT_TASK]

    assert wait.expires_at == t.clock.now() + 60
    app.signal("approve-7", {"by": "ada"})
    t.drain()
    assert handle.result() == "7 for ada"


def test_spawned_it_waits_from_then_on(t):
    """G63: handed to somebody outside, and the flow goes on with what they say."""
    ask.enqueue(7)
    t.drain()
    [wait] = [job for job in t.jobs() if job.task == WAIT_TASK]
    assert wait.state is State.WAITING
    assert wait.expires_at == t.clock.now() + 3600

    assert app.signal("approve-7", Approval("ada")) == 1

    [ran] = t.drain()
    assert (ran.task, ran.outcome.result) == (ship.name, b'"7 for ada"')


def test_it_cannot_come_after_others(t):
    handle = ask_wrongly.enqueue()

    t.drain()

    assert handle.state() is State.FAILED
    assert "then=wait_for" in t.broker.get(handle.id).error


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 201, 7, None])
def test_names_are_checked(t, name):
    with pytest.raises(Refused, match="signal"):
        wait_for(name)
    with pytest.raises(Refused, match="signal"):
        app.signal(name)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "1h", True])
def test_timeouts_are_checked(timeout):
    with pytest.raises(Refused, match="timeout"):
        wait_for("a", timeout)


def test_values_are_checked(t):
    with pytest.raises(Refused, match="signal a"):
        app.signal("a", object())
    with pytest.raises(Refused, match="limit"):
        app.signal("a", "x" * 1_000_000)


def test_what_it_waits_for_is_said(t):
    wait = wait_for("approve 7", timeout=60)
    handle = ship.job(7, wait.output).enqueue()
    [endless] = app.enqueue([wait_for("other")])

    assert endless.why().sentence == (
        "It waits for the signal 'other': `penstock signal other` ends it."
    )
    said = app.handle(wait.id).why().sentence
    assert said.startswith("It waits for the signal 'approve 7' until ")
    assert "`penstock signal 'approve 7'` ends it" in said
    assert f"a signal, see `penstock why {wait.id}`" in handle.why().sentence
    t.clock.advance(seconds=60)
    assert "did not come by" in app.handle(wait.id).why().sentence
    t.drain()
    assert "did not come in time" in app.handle(wait.id).why().sentence


def test_no_task_is_called_that():
    with pytest.raises(Refused, match="wait_for"):
        App("memory:").task(name=WAIT_TASK)(lambda: None)


def test_it_is_a_value_like_any_other_job():
    job = wait_for("approve-7", timeout=60)

    assert isinstance(job, Job)
    assert (job.task, job.tags) == (WAIT_TASK, {"signal": "approve-7"})
    assert repr(job.output) == f"<output of {WAIT_TASK}, {job.id}>"


def test_not_inside_a_transaction_of_the_store(tmp_path):
    """It would have to wait for itself."""
    shop = App(f"sqlite:///{tmp_path / 'jobs.db'}")

    @shop.task(name="approve")
    def approve() -> None:
        with current_job().transaction():
            shop.signal("approve-7")

    with shop.testing(url=f"sqlite:///{tmp_path / 'test.db'}") as t:
        handle = approve.enqueue()
        t.drain()
        assert handle.state() is State.FAILED
        assert "signal" in t.broker.get(handle.id).error


def test_joined_to_the_callers_transaction(tmp_path):
    shop = App(f"sqlite:///{tmp_path / 'jobs.db'}")
    shop.task(name="collect")(collect.function)
    shop.broker.count()
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        approved = wait_for("approve-7", 60)
        [handle] = shop.enqueue(
            [shop.tasks["collect"].job([approved.output])], connection=connection
        )
    connection.close()

    assert shop.signal("approve-7", 1) == 1
    assert handle.state() is State.READY
    shop.close()
