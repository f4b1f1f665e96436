"""Tasks, their options, and the jobs they make."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from penstock import App, Batch, Job, Refused, Repeat, Retry, UnknownOutcome, use
from penstock.broker import Enqueued
from penstock.brokers.memory import MemoryBroker
from penstock.codec import RetryWire, read_body
from penstock.ids import offset_of, prefix_of
from penstock.job import Lane, Parcel, State, Unique
from penstock.prepare import Prepared
from penstock.task import Task
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


def test_a_task_is_still_the_function(app: App) -> None:
    @app.task
    def double(n: int) -> int:
        """Twice as much."""
        return 2 * n

    assert double(4) == 8
    assert double.__doc__ == "Twice as much."
    assert double.__name__ == "double"
    assert double.signature_text == "double(n: int) -> int"


def test_its_name_is_the_module_and_the_function(app: App) -> None:
    @app.task
    def double(n: int) -> int:
        return 2 * n

    assert double.name == f"{__name__}:test_its_name_is_the_module_and_the_function.double"
    assert app.task_named(double.name) is double


@pytest.mark.parametrize("how", ["script", "module", "package"])
def test_the_script_being_run_goes_by_its_module_name(tmp_path: Path, how: str) -> None:
    code = (
        "from penstock import App\n"
        "app = App('memory:')\n"
        "@app.task\n"
        "def send(): ...\n"
        "print(send.name)\n"
    )
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "__main__.py").write_text(code)
    (tmp_path / "shop" / "tasks.py").write_text(code)
    arguments, expected = {
        "script": (["shop/tasks.py"], "tasks:send"),
        "module": (["-m", "shop.tasks"], "shop.tasks:send"),
        "package": (["-m", "shop"], "shop:send"),
    }[how]

    printed = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout

    assert printed.strip() == expected


@pytest.mark.parametrize("name", ["", "a b", "é", "x" * 201, "a\n"])
def test_a_name_that_cannot_be_typed_is_refused(app: App, name: str) -> None:
    with pytest.raises(Refused, match="1 to 200 characters out of letters, digits"):
        app.task(name=name or " ")(lambda: None)


def test_two_tasks_of_one_name_are_refused_and_a_reload_is_not(app: App) -> None:
    def make(module: str) -> Any:
        def send() -> None: ...

        send.__module__ = module
        return send

    app.task(name="mail:send", aliases=("mail:post",))(make("shop.mail"))
    again = app.task(name="mail:send")(make("shop.mail"))

    assert app.task_named("mail:send") is again
    for options in (
        {"name": "mail:send"},
        {"name": "x", "aliases": ("mail:send",)},
        {"name": "mail:post"},
    ):
        with pytest.raises(
            Refused, match=r"two tasks are called mail:.* give one of them another name"
        ):
            app.task(**options)(make("shop.other"))


def test_known_tasks_are_names_and_aliases_with_their_version(app: App) -> None:
    app.task(name="mail:send", version=3, aliases=("mail:post",))(lambda: None)
    app.declare("media:resize")(lambda: None)

    assert app.known_tasks() == {"mail:send": 3, "mail:post": 3}
    assert app.task_named("mail:post") is app.task_named("mail:send")
    assert app.task_named("nobody") is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queue": "a b"}, "queue 'a b'"),
        ({"priority": 101}, "priority=101: a whole number from -100 to 100"),
        ({"priority": True}, "priority=True"),
        ({"retry": 3}, r"retry=3: write Retry\(limit=3"),
        ({"timeout": -1}, "timeout=-1: seconds, 0 or more"),
        ({"timeout": 0}, "timeout=0: more than 0 seconds"),
        ({"tags": ["a"]}, r"tags=\['a'\]: a dict of texts"),
        ({"tags": {"a b": "c"}}, "tag 'a b': 1 to 200 characters"),
        ({"timeout": float("nan")}, "timeout=nan"),
        ({"timeout": "1m"}, "timeout='1m': seconds as a number, or a timedelta"),
        ({"mode": "fork"}, 'mode=\'fork\': "thread" or "process"'),
        ({"version": 0}, "version=0: a whole number from 1 up"),
        ({"aliases": "mail:post"}, r'aliases=\("mail:post",\)'),
        ({"search": ("cc",)}, r"search='cc' names no argument of .*to: str"),
        ({"secret": ("client",)}, "secret='client' names no argument"),
        ({"search": ("to.name",), "secret": ("to",)}, "search='to.name' is of a secret argument"),
        ({"on_error": "forget"}, r'on_error=\'forget\': "keep", "delete" or Repeat'),
        ({"tags": {"a": 1}}, "tags: 'a': 1: both must be texts"),
    ],
)
def test_a_wrong_option_of_a_task_is_refused(app: App, options: Any, message: str) -> None:
    def send(to: str, client: object = use(object)) -> None: ...

    with pytest.raises(Refused, match=message):
        app.task(**options)(send)


def test_an_async_function_is_async_by_itself(app: App) -> None:
    async def send() -> None: ...

    assert app.task(send).mode == "async"
    with pytest.raises(Refused, match="an `async def` runs on the event loop"):
        app.task(mode="process")(send)


def test_something_else_than_a_function_is_refused(app: App) -> None:
    with pytest.raises(Refused, match="a task is made of a function"):
        app.task(Order)


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
    headers = {read_body(job.body).headers["tenant"] for job in app.broker.find(_all()).jobs}
    assert headers == {"a", "none"}


def _all() -> Any:
    from penstock.filter import Filter

    return Filter()


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


def test_a_task_inside_a_function_sees_local_classes(app: App) -> None:
    @dataclass
    class Local:
        n: int

    @app.task
    def send(local: Local) -> Local:
        return local

    @app.task(queue="other")
    def resend(local: Local) -> Local:
        return local

    for task in (send, resend):
        body = task.job(Local(3)).body
        assert task.codec.read(body)[1] == (Local(3),)
        assert task.results.decode(b'{"n":4}') == Local(4)


def test_queues_are_registered_once(app: App) -> None:
    assert app.queue("mail") == "mail"
    assert app.queue("mail", relaxed=False) == "mail"
    with pytest.raises(Refused, match="registered with"):
        app.queue("mail", relaxed=True)
    app.queue("media", fair=True)
    with pytest.raises(Refused, match='fair=True, relaxed=False, and now with ordered="skip"'):
        app.queue("media", ordered="skip")
    with pytest.raises(Refused, match="ordered='fifo' is not known: write \"wait\""):
        app.queue("films", ordered="fifo")  # pyright: ignore[reportArgumentType]


def test_the_broker_hears_which_queues_are_relaxed(app: App) -> None:
    app.queue("clicks", relaxed=True)

    assert app.broker.relaxed == {"clicks"}

    app.queue("views", relaxed=True)

    assert app.broker.relaxed == {"clicks", "views"}


def test_a_url_and_a_broker_are_one_too_many(memory_broker: MemoryBroker) -> None:
    with pytest.raises(Refused, match="give one of them"):
        App("memory:", broker=memory_broker)


class Recorder(MemoryBroker):
    """A memory broker that remembers what it was handed, and loses an answer when told to."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.calls: list[Any] = []
        self.lose: int | None = None

    def enqueue(self, jobs: Any, *, batch: Any = None, connection: Any = None) -> Enqueued:
        answer = super().enqueue(jobs, batch=batch, connection=connection)
        self.calls.append(list(jobs))
        if self.lose == len(self.calls):
            raise UnknownOutcome("the answer was lost", jobs)
        return answer


@pytest.fixture
def recorder(clock: Clock) -> Recorder:
    return Recorder(clock)


def test_many_rows_go_in_parcels_with_one_commit_per_ten_thousand(recorder: Recorder) -> None:
    app = App(broker=recorder)

    @app.task(name="mail:send", queue="mail")
    def send(n: int, note: str = "") -> None: ...

    batch = send.enqueue_many((n,) for n in range(10_300))

    assert batch == Batch("", 10_300)
    assert len(recorder.calls) == 2
    parcels = [parcel for call in recorder.calls for parcel in call]
    assert {type(parcel) for parcel in parcels} == {Parcel}
    assert max(len(parcel.bodies) for parcel in parcels) == 128
    assert {parcel.lane for parcel in parcels} == {Lane("mail", "mail:send")}
    bodies = [body for parcel in parcels for body in parcel.bodies]
    assert bodies == [b'{"args":{"n":%d}}' % n for n in range(10_300)]
    assert len({id for parcel in parcels for id in parcel.ids()}) == 10_300


def test_a_parcel_holds_no_more_than_64_kib(recorder: Recorder) -> None:
    app = App(broker=recorder)

    @app.task
    def send(text: str) -> None: ...

    send.enqueue_many([{"text": "x" * 30_000}] * 5 + [{"text": "y" * 100_000}, {"text": "z"}])

    assert [len(parcel.bodies) for parcel in recorder.calls[0]] == [2, 2, 1, 1, 1]


def test_rows_may_have_options_that_keep_them_out_of_parcels(recorder: Recorder) -> None:
    app = App(broker=recorder)

    @app.task
    def send(n: int) -> None: ...

    send.options(tags={"a": "b"}, delay=60, timeout=3).enqueue_many([(1,), (2,)])

    jobs = recorder.calls[0]
    assert [job.tags for job in jobs] == [{"a": "b"}] * 2
    assert [read_body(job.body).timeout for job in jobs] == [3.0, 3.0]
    with pytest.raises(Refused, match="only the first row"):
        send.options(unique="a").enqueue_many([(1,)])


def test_the_same_id_goes_on_where_it_stopped(recorder: Recorder) -> None:
    app = App(broker=recorder)

    @app.task
    def send(n: int) -> None: ...

    recorder.lose = 3
    rows = [(n,) for n in range(25_000)]

    with pytest.raises(UnknownOutcome):
        send.enqueue_many(rows, id="import-7")
    assert send.enqueue_many(rows, id="import-7") == Batch("import-7", 25_000)
    assert send.enqueue_many(rows, id="import-7") == Batch("import-7", 25_000)

    [count] = recorder.count()
    assert count.ready == 25_000
    with pytest.raises(Refused, match="25000 rows are stored, but only 3 were given now"):
        send.enqueue_many(rows[:3], id="import-7")


def test_a_lost_answer_is_sent_again_by_its_jobs(recorder: Recorder) -> None:
    app = App(broker=recorder)

    @app.task
    def send(n: int) -> None: ...

    recorder.lose = 1
    with pytest.raises(UnknownOutcome) as caught:
        send.enqueue_many([(1,), (2,)])

    assert len(app.enqueue(caught.value.jobs)) == 2
    [count] = recorder.count()
    assert count.ready == 2


def test_a_bad_row_is_named_and_what_was_committed_stays(recorder: Recorder) -> None:
    app = App(broker=recorder)

    @app.task
    def send(n: int) -> None: ...

    rows: list[Any] = [(n,) for n in range(10_000)] + [(0,), ("x",)]

    with pytest.raises(Refused, match=r"row 10001: .*n: Expected `int`, got `str`"):
        send.enqueue_many(rows, id="a")
    rows[10_001] = (1,)
    assert send.enqueue_many(rows, id="a").count == 10_002


def test_options_are_a_prepared_task(app: App) -> None:
    @app.task
    def send(n: int) -> None: ...

    later = send.options(delay=60)

    assert isinstance(later, Prepared)
    assert later.job(1).id != later.job(1).id
    with pytest.raises(Refused, match="a job carries no connection"):
        send.options(connection=object()).job(1)


class Shop:
    def order(self) -> None: ...

    @staticmethod
    def stock() -> None: ...


def rows() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (Shop.order, "Shop.order: a method needs its object"),
        (Shop.__dict__["stock"], "Shop.stock: write @staticmethod above @app.task"),
        (rows, "rows: it yields, and a job has one result"),
        (lambda: None, "a lambda has no name"),
        (print, "print: a task is made of a function"),
    ],
)
def test_what_no_worker_could_call_is_refused(app: App, function: Any, message: str) -> None:
    with pytest.raises(Refused, match=message):
        app.task(function)


def test_a_static_method_is_a_task(app: App) -> None:
    assert app.task(Shop.stock).enqueue().state() is State.READY


def test_a_handle_of_what_is_no_id_is_refused(app: App) -> None:
    with pytest.raises(Refused, match="5 is not a job id"):
        app.handle(cast("str", 5))
