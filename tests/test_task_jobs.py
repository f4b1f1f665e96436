"""The jobs that a task makes: their options, what they carry, and how they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from penstock import App, Job, Refused, Repeat, Retry
from penstock.broker.filter import Filter
from penstock.brokers.memory import MemoryBroker
from penstock.enqueue.codec import RetryWire, read_body
from penstock.enqueue.ids import offset_of, prefix_of
from penstock.job import Lane, Unique
from penstock.task.options import Prepared
from penstock.task.task import Task
from penstock.testing.clock import Clock


@dataclass
class Order:
    number: int
    customer: dict[str, str]


@pytest.fixture
def app(memory_broker: MemoryBroker) -> App:
    return App(broker=memory_broker)


def stored(app: App, id: str) -> Job[Any]:
    job = app.broker.get(id)
    assert job is not None
    return job


def test_a_job_is_a_value_until_it_is_enqueued(app: App, clock: Clock) -> None:
    @app.task(name="mail:send", queue="mail", priority=3, version=2, runs_on=("gpu", "big"))
    def send(to: str, order: Order) -> None: ...

    job = send.job("ada", Order(7, {}))

    assert app.broker.get(job.id) is None
    assert job.lane == Lane("mail", "mail:send", 2, 3, ("big", "gpu"))
    assert job.body == b'{"args":{"to":"ada","order":{"number":7,"customer":{}}}}'
    assert job.plain
    handle = job.enqueue()
    assert (handle.id, handle.stored) == (job.id, True)
    assert stored(app, job.id).enqueued_at == pytest.approx(clock.now(), abs=0.001)
    assert job.enqueue().id == job.id


def test_options_reach_the_job(app: App, clock: Clock) -> None:
    @app.task(name="mail:send", tags={"team": "shop", "tenant": "?"}, secret=("to",))
    def send(to: str) -> None: ...

    job = send.options(
        delay=timedelta(minutes=1),
        priority=5,
        key="ada",
        unique="welcome-ada",
        unique_for=60,
        unique_until="started",
        queue="mail",
        headers={"trace": "1"},
        on_success="delete",
        on_error=Repeat(limit=2),
        on_timeout="keep",
        tags={"tenant": "a"},
        expires=90,
        timeout=30,
        retry=Retry(limit=1, delay=2),
    ).job("ada")

    assert (job.queue, job.priority, job.key) == ("mail", 5, "ada")
    assert (job.run_at, job.expires_at) == (clock.now() + 60, clock.now() + 90)
    assert job.unique == Unique("welcome-ada", "started", 60.0)
    assert job.tags == {"team": "shop", "tenant": "a"}
    assert send.timeout_of(job) == 30
    body = read_body(job.body)
    assert bytes(body.args) == b'{"to":"ada"}'
    assert body.headers == {"trace": "1"}
    assert (body.timeout, body.retry) == (30, RetryWire(limit=1, delay=2))
    assert (body.on_success, body.on_error, body.on_timeout) == ("delete", Repeat(limit=2), "keep")
    assert body.secret == ("to",)


def test_at_is_a_moment_with_a_zone(app: App) -> None:
    @app.task
    def send() -> None: ...

    moment = datetime(2030, 1, 1, tzinfo=UTC)

    assert send.options(at=moment).job().run_at == moment.timestamp()
    with pytest.raises(Refused, match="has no time zone"):
        send.options(at=datetime(2030, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)}, "delay and at both say when"),
        ({"at": 5}, "at=5: a datetime"),
        ({"delay": -1}, "delay=-1: seconds, 0 or more"),
        ({"delay": 1e300}, "delay=1e\\+300: .* at most a thousand years"),
        ({"tags": {"a": "x" * 501}}, "tag a=.*: a text of 1 to 500 characters"),
        ({"expires": timedelta(seconds=-1)}, "expires="),
        ({"priority": 1.5}, "priority=1.5"),
        ({"key": ""}, "key='': a text of 1 to 500 characters"),
        ({"key": 7}, "key=7"),
        ({"unique_for": 3}, r"give that, too"),
        ({"unique_until": "started"}, r"give that, too"),
        ({"unique": "a", "unique_until": "never"}, "unique_until='never'"),
        ({"unique": "a", "unique_until": "time"}, "needs unique_for"),
        ({"queue": ""}, "queue ''"),
        ({"headers": {"a": None}}, "headers: 'a': None: both must be texts"),
        ({"tags": {1: "a"}}, "tags: 1: 'a': both must be texts"),
        ({"on_success": "forget"}, "on_success='forget'"),
        ({"retry": 3}, "retry=3"),
        ({"retry": Retry(on=(OSError,))}, r"Retry\(on=\.\.\.\)\): exception classes are code"),
    ],
)
def test_a_wrong_option_of_a_job_is_refused(app: App, options: Any, message: str) -> None:
    @app.task
    def send() -> None: ...

    with pytest.raises(Refused, match=message):
        send.options(**options)


def test_a_retry_for_one_job_may_repeat_the_exceptions_of_its_task(app: App) -> None:
    @app.task(retry=Retry(on=(OSError,)))
    def send() -> None: ...

    body = send.options(retry=Retry(limit=7, on=(OSError,))).job().body

    wire = read_body(body).retry
    assert wire is not None
    assert wire.limit == 7


def test_the_timeout_of_a_job_is_its_own_or_its_tasks(app: App) -> None:
    @app.task(timeout=timedelta(seconds=60))
    def send(timeout: str = "") -> None: ...

    assert send.timeout == 60
    assert send.timeout_of(send.job()) == 60
    assert send.timeout_of(send.job(timeout="late")) == 60
    assert send.timeout_of(send.options(timeout=3).job()) == 3
    assert send.timeout_of(Job(task=send.name, body=b'{"timeout":')) == 60


def test_search_fields_are_kept_as_text_and_dots_go_into_objects(app: App) -> None:
    @app.task(search=("user", "order.customer.name", "order.number", "order.customer.none"))
    def send(user: int, order: Order) -> None: ...

    job = send.job(62, Order(7, {"name": "ada"}))

    assert job.search == {"user": "62", "order.customer.name": "ada", "order.number": "7"}


def test_at_most_once_travels_with_the_job(app: App) -> None:
    @app.task(at_most_once=True)
    def charge() -> None: ...

    assert charge.job().at_most_once


def test_a_wrong_call_is_refused_and_stores_nothing(app: App) -> None:
    @app.task
    def send(to: str, order: Order) -> str:
        return to

    for call in (send.job, send.enqueue, send.options(delay=1).enqueue):
        with pytest.raises(Refused, match=r"send\(to: str, order: Order\) -> str: missing"):
            call("ada")
    assert app.broker.count() == []


def test_ids_of_jobs_with_a_key_increase_as_they_are_made(app: App) -> None:
    """An ordered queue goes by them, over all tasks of the program."""

    @app.task(name="first", queue="orders")
    def first(n: int) -> None: ...

    @app.task(name="second", queue="orders", priority=5)
    def second(n: int) -> None: ...

    ids: list[str] = []
    for n in range(300):
        ids.append(first.options(key="ada").job(n).id)
        ids.append(second.options(key="ada").enqueue(n).id)
        ids += [handle.id for handle in app.enqueue([first.options(key="bob").job(n)])]
        first.enqueue(n)  # without a key; it may be in a run of ids that began before

    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_neighbours_travel_in_one_parcel(app: App) -> None:
    @app.task
    def send(n: int) -> None: ...

    jobs = [send.job(n) for n in range(3)]
    other = send.options(key="k").job(9)
    following = send.job(3)

    assert len({prefix_of(job.id) for job in (*jobs, following)}) == 1
    assert [offset_of(job.id) for job in (*jobs, following)] == [0, 1, 2, 3]
    assert prefix_of(other.id) != prefix_of(jobs[0].id)


def test_hooks_may_add_headers(app: App) -> None:
    @app.task(name="mail:send")
    def send(n: int) -> None: ...

    @app.on_enqueue
    def add_trace(headers: dict[str, str], task: Task[..., Any]) -> None:
        headers.setdefault("tenant", "none")
        headers["task"] = task.name

    handle = send.options(headers={"tenant": "a"}).enqueue(1)
    send.enqueue_many([(2,)])

    assert read_body(stored(app, handle.id).body).headers == {"tenant": "a", "task": "mail:send"}
    headers = {read_body(job.body).headers["tenant"] for job in app.broker.find(Filter()).jobs}
    assert headers == {"a", "none"}


def test_app_enqueue_stores_all_or_none(app: App) -> None:
    @app.task
    def send(n: int) -> None: ...

    @app.task(queue="other")
    def other(n: int) -> None: ...

    handles = app.enqueue([send.job(1), other.job(2)])
    bad = msgspec.structs.replace(send.job(3), queue="")

    assert [stored(app, handle.id).queue for handle in handles] == ["default", "other"]
    good = send.job(4)
    with pytest.raises(Refused):
        app.enqueue([good, bad])
    assert app.broker.get(good.id) is None
    with pytest.raises(Refused, match=r"enqueue takes jobs, made by task\.job"):
        app.enqueue([handles[0]])
    with pytest.raises(Refused, match="enqueue takes a list of jobs"):
        app.enqueue(good)


def test_a_unique_job_that_stands_is_named_instead(app: App) -> None:
    @app.task
    def send(n: int) -> None: ...

    first = send.options(unique="a").enqueue(1)
    second = send.options(unique="a").enqueue(2)

    assert first.stored
    assert not second.stored
    assert second.id == first.id


def test_a_declared_task_is_enqueued_here_and_run_elsewhere(app: App) -> None:
    @app.declare("media:resize", queue="media", version=2)
    def resize(path: str, width: int = 100) -> str: ...

    handle = resize.enqueue("a.png", width=50)

    job = stored(app, handle.id)
    assert (job.task, job.queue, job.version) == ("media:resize", "media", 2)
    assert job.body == b'{"args":{"path":"a.png","width":50}}'
    with pytest.raises(Refused, match="media:resize is only declared here"):
        resize("a.png")
    with pytest.raises(
        Refused, match=r"resize\(path: str, width: int = 100\) -> str: width: Expected"
    ):
        resize.job("a.png", width="x")


def test_options_are_a_prepared_task(app: App) -> None:
    @app.task
    def send(n: int) -> None: ...

    later = send.options(delay=60)

    assert isinstance(later, Prepared)
    assert later.job(1).id != later.job(1).id
    with pytest.raises(Refused, match="a job carries no connection"):
        send.options(connection=object()).job(1)


def test_the_crash_budget_of_options_goes_before_task_queue_and_app():
    app = App(broker=MemoryBroker(), crash_budget=7)
    app.queue("fragile", crash_budget=5)

    @app.task
    def plain() -> None: ...

    @app.task(queue="fragile")
    def queued() -> None: ...

    @app.task(queue="fragile", crash_budget=1)
    def own() -> None: ...

    @app.task(crash_budget=3)
    def usual() -> None: ...

    def budget(job: Job[Any]) -> Any:
        return msgspec.json.decode(job.body).get("crash_budget")

    assert budget(plain.job()) == 7
    assert budget(plain.options(queue="fragile").job()) == 5
    assert budget(queued.job()) == 5
    assert budget(own.job()) == budget(own.options(priority=1).job()) == 1
    assert budget(own.options(crash_budget=9).job()) == 9
    assert budget(usual.job()) is None
    for wrong in (0, -1, 1001, True, "3"):
        with pytest.raises(Refused, match="a number of crashes from 1 to 1000"):
            app.task(name="wrong", crash_budget=wrong)(lambda: None)
