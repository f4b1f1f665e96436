"""Many rows at once: in parcels, with one commit for many of them, and again where it stopped."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import App, Batch, Refused, UnknownOutcome
from penstock.broker.values import Enqueued
from penstock.brokers.memory import MemoryBroker
from penstock.enqueue.codec import read_body
from penstock.job import Lane, Parcel
from penstock.testing.clock import Clock


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
