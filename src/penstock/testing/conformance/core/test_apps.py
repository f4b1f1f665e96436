"""Programs of different names share a store, and never run each other's jobs."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from penstock import App
from penstock.broker.filter import Filter, parse_filter
from penstock.broker.protocol import Broker
from penstock.errors import Refused
from penstock.job import Job, Lane, Parcel, State, succeeded
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import a_job, a_worker, an_id, claim_for, some_jobs
from penstock.worker import Worker


def test_a_worker_is_handed_jobs_of_its_own_app_alone(broker: Broker, clock: Clock):
    shop, media, unnamed = (a_job(clock, app=app) for app in ("shop", "media", ""))
    broker.enqueue([shop, media, unnamed])

    for app, job in (("media", media), ("", unnamed), ("shop", shop), ("other", None)):
        claimed = claim_for(broker, a_worker(id=f"w-{app}", app=app), None, 10)

        assert [(each.id, each.app) for each in claimed] == ([(job.id, app)] if job else [])


def test_parcels_of_two_apps_are_kept_apart(broker: Broker, clock: Clock):
    bodies = [b'{"args":{}}'] * 5
    for app in ("shop", "media"):
        lane = Lane("default", "mail:send", app=app)
        broker.enqueue([Parcel(an_id(clock, app), lane, bodies)])

    claimed = claim_for(broker, a_worker(app="media"), None, 100)

    assert {job.app for job in claimed} == {"media"}
    assert len(claimed) == 5
    assert claim_for(broker, a_worker(id="second", app="media"), None, 100) == []


def test_an_app_is_kept_through_every_state(broker: Broker, clock: Clock):
    kept, gone = (a_job(clock, app="shop", key=key) for key in ("kept", "gone"))
    broker.enqueue([kept, gone])
    assert broker.get(kept.id).app == "shop"
    worker = a_worker(app="shop")

    claimed = claim_for(broker, worker, None, 10)
    assert broker.get(kept.id).app == "shop"
    broker.settle([(job, succeeded(b"1")) for job in claimed if job.id == kept.id])
    broker.act("cancel", [gone.id])
    broker.recover(dead=worker.id)
    broker.act("retry", [gone.id])

    assert broker.get(kept.id).app == broker.get(gone.id).app == "shop"
    assert [job.id for job in claim_for(broker, worker, None, 10)] == [gone.id]


def test_history_says_whose_job_it_was(broker: Broker, clock: Clock):
    jobs = [a_job(clock, app=app) for app in ("shop", "")]
    broker.enqueue(jobs)
    for app in ("shop", ""):
        worker = a_worker(id=f"w-{app}", app=app)
        broker.settle([(job, succeeded()) for job in claim_for(broker, worker, None, 10)])
    broker.audit("operation", "ada", "because", {"verb": "cancel"})

    events = broker.history()

    assert {event.job: event.app for event in events if event.job} == {
        jobs[0].id: "shop",
        jobs[1].id: "",
    }
    assert [event.app for event in events if event.kind == "operation"] == [None]


def test_counts_are_of_one_app_each(broker: Broker, clock: Clock):
    broker.enqueue([a_job(clock, app="shop"), a_job(clock, app="shop"), a_job(clock)])
    broker.enqueue([a_job(clock, app="media", run_at=clock.now() + 60)])

    counts = {count.app: (count.task, count.ready, count.scheduled) for count in broker.count()}

    assert counts == {
        "": ("mail:send", 1, 0),
        "media": ("mail:send", 0, 1),
        "shop": ("mail:send", 2, 0),
    }


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["app:shop"], {"shop"}),
        (["app:shop", "app:media"], {"shop", "media"}),
        (["-app:shop"], {"media", ""}),
        (["app:shop", "task:mail:send"], {"shop"}),
        (["app:other"], set()),
    ],
)
def test_jobs_are_found_by_their_app(
    broker: Broker, clock: Clock, words: list[str], found: set[str]
):
    broker.enqueue([a_job(clock, app=app) for app in ("shop", "media", "")])
    broker.enqueue([a_job(clock, app="shop", key="row"), *some_jobs(clock, 3, app="shop")])

    page = broker.find(parse_filter(words, clock.now()))

    assert {job.app for job in page.jobs} == found
    assert len(page.jobs) == sum(5 if app == "shop" else 1 for app in found)


def test_workers_say_of_which_app_they_are(broker: Broker):
    broker.renew([a_worker(id="one", app="shop"), a_worker(id="two")])

    assert {worker.id: worker.app for worker in broker.workers()} == {"one": "shop", "two": ""}


@pytest.mark.parametrize(
    ("app", "other", "says"),
    [
        ("shop", "media", "a job of the app 'shop', and no live worker belongs to that; .*'media'"),
        ("shop", "", "the app 'shop'.* live workers belong to a program without a name"),
        ("", "media", "a job of a program without a name, .* belong to the app 'media'"),
    ],
)
def test_why_names_an_app_that_has_no_live_worker(
    broker: Broker, clock: Clock, app: str, other: str, says: str
):
    job = a_job(clock, app=app)
    broker.enqueue([job])
    broker.renew([a_worker(app=other)])

    why = broker.why(job.id)
    assert why.cause == "no_app"
    with pytest.raises(Refused, match=says):
        raise Refused(why.sentence)

    broker.renew([a_worker(id="own", app=app)])
    assert broker.why(job.id).cause == "next"


@pytest.mark.parametrize("app", ["a\nb", "x" * 201])
def test_an_app_is_named_as_a_queue_is(broker: Broker, clock: Clock, app: str):
    with pytest.raises(Refused, match=r"app .*: a name has 1 to 200 characters"):
        broker.enqueue([a_job(clock, app=app)])

    assert broker.find(Filter()).jobs == []


@pytest.mark.needs("bulk")
def test_staged_jobs_keep_their_app(broker: Broker, clock: Clock):
    broker.stage("write", "part", [a_job(clock, app="shop"), a_job(clock, app="shop", key="k")])
    broker.commit_write("write", {"part": 2})

    assert claim_for(broker, a_worker(), None, 10) == []
    assert {job.app for job in claim_for(broker, a_worker(id="own", app="shop"), None, 10)} == {
        "shop"
    }


# Programs


@pytest.fixture
def ran() -> list[tuple[str, int]]:
    return []


def a_program(broker: Broker, name: str, ran: list[tuple[str, int]]) -> App:
    app = App(broker=broker, name=name)

    @app.task(name="shop:count")
    def count(number: int) -> int:
        ran.append((name, number))
        return number

    return app


@pytest.fixture
def programs(broker: Broker, ran: list[tuple[str, int]]) -> list[App]:
    return [a_program(broker, name, ran) for name in ("shop", "media", "")]


def test_each_program_runs_its_own_jobs_of_a_task_that_all_have(
    broker: Broker, programs: list[App], ran: list[tuple[str, int]]
):
    for number, app in enumerate(programs):
        count = app.tasks["shop:count"]
        count.enqueue(number)
        count.options(key="k").enqueue(number)
        count.enqueue_many([(number,), (number,)])

    for app in programs:
        before = len(ran)
        Worker(app, drain=True).work()
        assert {name for name, _ in ran[before:]} == {app.name}

    assert sorted(ran) == sorted((app.name, n) for n, app in enumerate(programs) for _ in range(4))


def test_a_declared_task_goes_to_the_program_that_it_names(
    broker: Broker, programs: list[App], ran: list[tuple[str, int]]
):
    shop, media, _ = programs
    front = App(broker=broker, name="front")

    @front.declare("shop:count", app="media")
    def count(number: int) -> int: ...  # pyright: ignore[reportReturnType]

    handle = count.enqueue(7)

    assert broker.get(handle.id).app == "media"
    Worker(shop, drain=True).work()
    assert ran == []
    Worker(media, drain=True).work()
    assert (ran, handle.result()) == ([("media", 7)], 7)


def test_a_flow_may_go_through_two_programs(
    broker: Broker, programs: list[App], ran: list[tuple[str, int]]
):
    shop, media, _ = programs

    @media.task(name="media:count")
    def here(number: int) -> int:
        ran.append(("media", number))
        return number

    @shop.declare(here.name, app="media")
    def there(number: int) -> int: ...  # pyright: ignore[reportReturnType]

    @shop.task(name="shop:last")
    def last(number: int) -> int:
        return number + 1

    handle = last.job(there.job(1).output).enqueue()
    Worker(media, drain=True).work()
    Worker(shop, drain=True).work()

    assert (ran, handle.result()) == ([("media", 1)], 2)


def test_a_schedule_makes_jobs_of_the_program_that_put_it(
    broker: Broker, clock: Clock, programs: list[App]
):
    shop = programs[0]
    shop.schedules.put("hourly", shop.tasks["shop:count"], every=3600, args=(1,))

    made: Any = broker.get(shop.schedules.run_now("hourly").id)

    assert (made.app, made.state) == ("shop", State.READY)


def test_a_job_made_by_hand_is_of_the_unnamed_program():
    assert Job(task="mail:send").lane == Lane("default", "mail:send", app="")
    assert Lane("q", "t", app="a").hash != Lane("q", "t").hash


def test_two_programs_fill_the_same_partitions_each_for_itself(broker: Broker):
    for name in ("shop", "media", ""):
        app = App(broker=broker, name=name)

        @app.task(name="lake:day")
        def day(day: date) -> None: ...

        day.backfill(date(2026, 1, 1), date(2026, 1, 2))
        day.backfill(date(2026, 1, 1), date(2026, 1, 2))

    jobs = broker.find(Filter()).jobs
    assert sorted(job.app for job in jobs) == ["", "", "media", "media", "shop", "shop"]
