"""The sink: each row of a frame becomes one job of the task that it is for."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from penstock.brokers import open_broker
from penstock.enqueue.ids import bucket_for, bucket_of
from penstock.job import State, Unique
from penstock.spark import row_id
from penstock.testing.conformance.factories import a_worker, claim_for
from tests.spark.conftest import whatever_the_store
from tests.spark.frames import APP, arguments_in, jobs_in, numbers_in, write
from tests.spark.sink_tasks import Line, app

ALL = (
    "1 as whole, 0.5D as real, 1.50BD as exact, true as flag, 'say \"hé\" \\n' as text,"
    " X'00ff' as raw, DATE'2026-11-15' as day, TIMESTAMP'2026-11-15 12:00:00.000001+01:00' as"
    " moment, TIMESTAMP_NTZ'2026-11-15 12:00:00' as local, INTERVAL '1 02:00:03' DAY TO SECOND"
    " as span, array(1, 2) as items, map('a', 1) as counts, named_struct('name', 'tea', 'price',"
    " 2.25BD) as line, cast(null as int) as maybe, named_struct('at', DATE'2026-01-01', 'x',"
    " map('y', array(0.5D))) as free"
)


def numbers(shared_spark: Any, count: int, partitions: int = 2) -> Any:
    frame = shared_spark.range(0, count, 1, partitions)
    return frame.selectExpr("cast(id as int) as number", "concat('t', id) as text")


def test_each_row_is_one_job_with_the_columns_as_arguments(spark: Any, store_url: str):
    """Issue 5: the multiset of arguments equals the frame's; the store is the session's."""
    write(numbers(spark, 300))

    jobs = jobs_in(store_url)
    assert numbers_in(store_url) == dict.fromkeys(range(300), 1)
    assert {(job.task, job.queue, job.version, job.priority) for job in jobs} == {
        ("mail:send", "default", 1, 0)
    }
    assert {job.state for job in jobs} == {State.READY}


@whatever_the_store
def test_with_the_app_jobs_are_what_the_task_itself_would_make(
    shared_spark: Any, store_url: str, into: Any
):
    frame = numbers(shared_spark, 3).selectExpr("*", "'s3cret' as token")

    into(frame, app=APP)

    made = app.tasks["mail:send"].job(number=1, text="t1", token="s3cret")
    stored = [job for job in jobs_in(store_url) if b'"number":1,' in job.body]
    assert [(job.body, job.lane) for job in stored] == [(made.body, made.lane)]


@whatever_the_store
def test_every_type_becomes_what_the_annotations_say(shared_spark: Any, store_url: str, into: Any):
    """Issue 5: the mapping of types; the body decodes to the values of the row."""
    into(shared_spark.sql(f"select {ALL}"), app=APP, task="mail:typed")

    [job] = jobs_in(store_url)
    _, args, kwargs = app.tasks["mail:typed"].codec.read(job.body)
    assert kwargs == {}
    assert args == (
        *(1, 0.5, Decimal("1.50"), True, 'say "hé" \n', b"\x00\xff", date(2026, 11, 15)),
        datetime(2026, 11, 15, 11, 0, 0, 1, tzinfo=UTC),
        datetime(2026, 11, 15, 12),  # noqa: DTZ001  of a column without a zone
        timedelta(days=1, hours=2, seconds=3),
        *([1, 2], {"a": 1}, Line("tea", Decimal("2.25")), None),
        {"at": "2026-01-01", "x": {"y": [0.5]}},
    )


@whatever_the_store
def test_arguments_may_come_in_a_struct_or_be_named(shared_spark: Any, store_url: str, into: Any):
    frame = numbers(shared_spark, 2)
    frame = frame.selectExpr("struct(number, text) as call", "text as other", "number")

    into(frame, args_column="call")
    into(frame, arguments="number")

    found = sorted(arguments_in(store_url), key=lambda each: (len(each), each["number"]))
    assert found == [
        *({"number": number} for number in range(2)),
        *({"number": number, "text": f"t{number}"} for number in range(2)),
    ]


def test_columns_say_what_each_job_is_beside_its_arguments(
    shared_spark: Any, store_url: str, into: Any
):
    frame = shared_spark.sql(
        "select 7 as number, 'mail:sweep' as what, 'slow' as line, 9 as rank, 'ada' as who,"
        " TIMESTAMP'2030-01-01 00:00:00Z' as due, 'once' as only, map('tenant', 'a') as marks"
    )

    into(
        frame,
        task=None,
        task_column="what",
        queue_column="line",
        priority_column="rank",
        key_column="who",
        at_column="due",
        unique_column="only",
        unique_until="started",
        tags_column="marks",
    )

    [job] = jobs_in(store_url)
    assert (job.task, job.queue, job.priority, job.key) == ("mail:sweep", "slow", 9, "ada")
    assert job.run_at == datetime(2030, 1, 1, tzinfo=UTC).timestamp()
    assert (job.unique, job.tags) == (Unique("once", "started"), {"tenant": "a"})
    assert bucket_of(job.id) == bucket_for("once")
    assert job.body == b'{"args":{"number":7}}'


@whatever_the_store
def test_rows_of_several_tasks_are_packed_by_lane(shared_spark: Any, store_url: str, into: Any):
    frame = numbers(shared_spark, 50, 1).selectExpr("number", "concat('t:', number % 2) as task")

    into(frame, task=None, task_column="task", queue="mail", priority=-5)

    assert {(job.task, job.queue, job.priority) for job in jobs_in(store_url)} == {
        ("t:0", "mail", -5),
        ("t:1", "mail", -5),
    }
    assert numbers_in(store_url) == dict.fromkeys(range(50), 1)


@whatever_the_store
def test_what_the_task_declares_is_kept(shared_spark: Any, store_url: str, into: Any):
    into(numbers(shared_spark, 2).select("number"), app=APP, task="mail:rich")

    jobs = jobs_in(store_url)
    assert sorted(job.search["number"] for job in jobs) == ["0", "1"]
    assert [(job.tags, job.at_most_once) for job in jobs] == [({"kind": "rich"}, True)] * 2


def test_rows_with_an_id_are_the_same_job_however_often_they_are_written(
    shared_spark: Any, store_url: str, into: Any
):
    """Issue 5: with an id column, direct and idempotent."""
    frame = numbers(shared_spark, 20).selectExpr("number", "text", "number as key")

    into(frame, id_column="key")
    into(frame.repartition(3), id_column="key")

    assert {job.id for job in jobs_in(store_url)} == {row_id("mail:send", n) for n in range(20)}
    assert numbers_in(store_url) == dict.fromkeys(range(20), 1)


def test_rows_with_an_id_and_a_key_are_in_the_bucket_of_the_key(
    shared_spark: Any, store_url: str, into: Any
):
    frame = numbers(shared_spark, 3).selectExpr("number", "number as key", "'ada' as who")

    into(frame, id_column="key", key_column="who")

    ids = {job.id for job in jobs_in(store_url)}
    assert ids == {row_id("mail:send", n, key="ada") for n in range(3)}
    assert {bucket_of(id) for id in ids} == {bucket_for("ada")}


def test_rows_become_jobs_of_the_app_that_is_named(shared_spark: Any, store_url: str, into: Any):
    frame = numbers(shared_spark, 3).selectExpr("number", "number as key")

    into(frame, app_name="media")
    into(frame, app_name="media", id_column="key")

    jobs = jobs_in(store_url)
    assert {(job.app, job.task) for job in jobs} == {("media", "mail:send")}
    assert len(jobs) == 6
    named = {row_id("mail:send", n, app="media") for n in range(3)}
    assert named < {job.id for job in jobs}
    assert named.isdisjoint(row_id("mail:send", n) for n in range(3))


@whatever_the_store
def test_several_rows_go_into_one_job(shared_spark: Any, store_url: str, into: Any):
    into(numbers(shared_spark, 25, 1), app=APP, task="mail:batch", rows_per_job=10)

    lists = [each["rows"] for each in arguments_in(store_url)]
    assert sorted(map(len, lists)) == [5, 10, 10]
    found = sorted(row["number"] for rows in lists for row in rows)
    assert found == list(range(25))


def test_a_write_with_a_name_is_made_once(shared_spark: Any, store_url: str, into: Any):
    """Issue 5: a changed partition count when it is made again."""
    into(numbers(shared_spark, 30), write="import-7")
    into(numbers(shared_spark, 30).repartition(5), write="import-7")

    assert numbers_in(store_url) == dict.fromkeys(range(30), 1)


@whatever_the_store
def test_an_empty_frame_is_no_job(shared_spark: Any, store_url: str, into: Any):
    into(numbers(shared_spark, 0))

    assert jobs_in(store_url) == []


@pytest.mark.parametrize("mode", ["overwrite", "error"])
def test_only_appending_is_possible(shared_spark: Any, sqlite_url: str, mode: str):
    writer = numbers(shared_spark, 1).write.format("penstock").option("task", "a:b")

    with pytest.raises(Exception, match=r"append|Append"):
        writer.option("url", sqlite_url).mode(mode).save()


# REQUIREMENTS S5
def test_what_does_not_fit_the_task_is_refused_before_any_row(shared_spark: Any, sqlite_url: str):
    """Issue 5: schema errors before the write."""
    frame = shared_spark.sql("select 'a' as number, 'a' as text")

    with pytest.raises(Exception, match="column number is string, and the task takes int"):
        write(frame, url=sqlite_url, app=APP)

    assert jobs_in(sqlite_url) == []


BAD = (
    "select cast(id as int) as number, if(id = 17, cast('NaN' as double), 1.0D) as amount"
    " from range(40)"
)


def test_a_bad_row_ends_the_write_with_its_name_and_nothing_is_published(
    shared_spark: Any, store_url: str, into: Any
):
    """Issue 5: the row is named, and nothing of the write is stored."""
    with pytest.raises(Exception, match=r"column amount: NaN cannot.*\"number\":17"):
        into(shared_spark.sql(BAD))

    assert jobs_in(store_url) == []


@whatever_the_store
def test_bad_rows_go_to_the_rejects_with_the_reason(
    shared_spark: Any, store_url: str, tmp_path: Any, into: Any
):
    into(shared_spark.sql(BAD), rejects=f"{tmp_path}/rejects")

    [row] = shared_spark.read.parquet(f"{tmp_path}/rejects").collect()
    assert row.number == 17
    assert "NaN" in row.penstock_error
    assert numbers_in(store_url) == {number: 1 for number in range(40) if number != 17}


@whatever_the_store
def test_values_are_checked_as_the_worker_will(
    shared_spark: Any, store_url: str, tmp_path: Any, into: Any
):
    frame = shared_spark.sql(
        "select stack(3, '01890a5d-ac96-774b-bcce-b302099a8057', 1.0D, 'no-uuid', 2.0D,"
        " null, 3.0D) as (id, amount)"
    )

    into(frame, app=APP, task="mail:strict", rejects=f"{tmp_path}/rejects")

    reasons = {
        row.amount: row.penstock_error
        for row in shared_spark.read.parquet(f"{tmp_path}/rejects").collect()
    }
    assert reasons.keys() == {2.0, 3.0}
    assert "UUID" in reasons[2.0]
    assert [each["amount"] for each in arguments_in(store_url)] == [1.0]


@whatever_the_store
def test_the_name_of_a_bad_row_hides_what_the_task_calls_secret(
    shared_spark: Any, store_url: str, into: Any
):
    frame = shared_spark.sql(
        "select 1 as number, cast(null as string) as text, 'hush-hush' as token"
    )

    with pytest.raises(Exception, match="column text is null") as raised:
        into(frame, app=APP)

    assert "hush-hush" not in str(raised.value)
    assert jobs_in(store_url) == []


def test_published_jobs_are_handed_out(shared_spark: Any, store_url: str, into: Any):
    into(numbers(shared_spark, 10), app=APP)
    broker = open_broker(store_url)

    jobs = claim_for(broker, a_worker(tasks={"mail:send": 2}), limit=20)

    calls = [app.tasks["mail:send"].codec.read(job.body) for job in jobs]
    assert sorted(kwargs["number"] for _, _, kwargs in calls) == list(range(10))
    broker.close()
