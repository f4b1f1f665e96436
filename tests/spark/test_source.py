"""The source in batch: every table, in slices."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import msgspec
import psycopg
import pytest
from pyspark.sql.functions import length
from pyspark.sql.types import StringType, StructField, StructType

from penstock.broker.filter import Filter
from penstock.broker.gauge import Gauge
from penstock.broker.protocol import Broker
from penstock.broker.slice import Selection
from penstock.broker.span_stats import SPANS
from penstock.brokers import open_broker
from penstock.enqueue.secrets import redact
from penstock.errors import Refused
from penstock.flows.flow import member_of
from penstock.job import ENDED, succeeded
from penstock.spark.source.readers import TableReader
from penstock.spark.source.tables import TABLES, columns_of
from penstock.testing.conformance.factories import a_flow, a_job, begun, claim, part, some_jobs
from tests.spark.conftest import whatever_the_store
from tests.spark.stored import BODY, LATE, end, fill


@pytest.fixture
def broker(store_url: str, clock: Any) -> Iterator[Broker]:
    broker = open_broker(store_url, clock)
    yield broker
    broker.close()


def table(spark: Any, name: str, **options: Any) -> Any:
    reader = spark.read.format("penstock").option("table", name)
    for option, value in options.items():
        reader = reader.option(option, str(value))
    return reader.load()


def rows(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def moment(seconds: float | None) -> datetime | None:
    """A time as Spark hands it to Python: in the zone of the machine, without saying so."""
    if seconds is None:
        return None
    whole = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=round(seconds * 1e6))
    return whole.astimezone().replace(tzinfo=None)


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def said(body: bytes | None) -> dict[str, Any]:
    """What a body says, as columns."""
    if body is None:
        return dict.fromkeys(("arguments", "headers", "flow", "node"))
    whole = msgspec.json.decode(redact(body), type=dict[str, msgspec.Raw])
    member = member_of(body)
    return {
        "arguments": text(bytes(whole["args"])),
        "headers": text(bytes(whole["headers"])) if "headers" in whole else None,
        "flow": member and member.id,
        "node": member and member.node,
    }


def expected(broker: Broker, name: str) -> list[dict[str, Any]]:
    """The rows of a table, put together from what `history` and `find` say."""
    both = {"shard": broker.reach(Selection(table="attempts")).store, "schema_version": 2}
    made: list[dict[str, Any]] = []
    if name in {"jobs", "results"}:
        for job in broker.find(Filter(), limit=1000).jobs:
            if name == "results" and job.state not in ENDED:
                continue
            made.append(
                {name: getattr(job, name, None) for name in columns_of("jobs")}
                | {"job": job.id, "tags": dict(job.tags), "result": text(job.result)}
                | {"run_at": moment(job.enqueued_at if job.run_at is None else job.run_at)}
                | {
                    name: moment(getattr(job, name))
                    for name in ("enqueued_at", "claimed_at", "ended_at")
                }
                | said(job.body)
                | both
            )
    for event in broker.history(limit=1000):
        kind = {"attempt": "attempts", "gauge": "gauges"}.get(event.kind, "events")
        if kind != name or event.kind in SPANS.values():  # statistics for charts are no events
            continue
        row = {name: getattr(event, name) for name in event.__struct_fields__} | said(event.body)
        if kind == "gauges":
            row |= msgspec.structs.asdict(msgspec.json.decode(event.data or b"", type=Gauge))
        waited = event.enqueued_at if event.run_at is None else event.run_at
        times = {"at": event.at, "ended_at": event.at, "run_at": waited}
        times |= {"enqueued_at": event.enqueued_at, "started_at": event.started_at}
        row |= {name: moment(at) for name, at in times.items()}
        made.append(row | {"tags": dict(event.tags), "result": text(event.result)} | both)
        made[-1]["data"] = text(event.data)
    return [{column: row[column] for column in columns_of(name)} for row in made]


def by_key(made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(made, key=lambda row: str(row.get("position") or row.get("id") or row["job"]))


# REQUIREMENTS S6
@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_column_of_every_table_is_as_the_store_says(spark, broker, clock, name):
    """SPARK 2, source: attempts, events, gauges, jobs and results."""
    fill(broker, clock)

    frame = table(spark, name)

    assert [f"{field} {kind}" for field, kind in frame.dtypes] == TABLES[name].split(", ")
    found = by_key(rows(frame))
    assert found
    assert found == by_key(expected(broker, name))


@pytest.mark.parametrize("count", [0, 1, 300])
@pytest.mark.parametrize("name", ["attempts", "jobs"])
def test_slices_add_up_to_the_whole(broker, store_url, clock, count, name):
    """An empty history, one row, many: each row in one of the slices. By hand, it is quicker."""
    broker.enqueue(some_jobs(clock, count))
    broker.settle([(job, begun(succeeded(), clock.now())) for job in claim(broker, limit=1000)])
    jobs = sorted(row.job or "" for row in broker.history(limit=1000))
    column = "job" if name == "attempts" else "id"
    schema = StructType([StructField(column, StringType())])

    reader = TableReader({"table": name, "url": store_url, "slices": "4"}, schema)
    parts = [
        [row[column] for batch in reader.read(part) for row in batch.to_pylist()]
        for part in reader.partitions()
    ]

    assert sorted(chain.from_iterable(parts)) == jobs
    assert len(parts) <= 4


# REQUIREMENTS S25
def test_results_of_a_node_or_a_flow(spark, broker, clock):
    """SPARK 2, map here and reduce there."""
    sent = a_flow(clock, each=part(jobs=5), last=part("each"))
    other = a_flow(clock, each=part(jobs=2))
    for made in (other, sent):
        broker.enqueue(made.jobs, flow=made.flow)
    broker.enqueue(some_jobs(clock, 3))
    end(broker, clock, claim(broker, limit=100), b'"one"')
    end(broker, clock, claim(broker, limit=100), b'"two"')

    of_node = rows(table(spark, "results", node=sent.nodes["each"]))
    of_flow = rows(table(spark, "results", flow=sent.flow.id))

    assert [row["result"] for row in of_node] == ['"one"'] * 5
    assert sorted(row["result"] for row in of_flow) == ['"one"'] * 5 + ['"two"']
    assert {row["flow"] for row in of_flow} == {sent.flow.id}
    assert rows(table(spark, "results", node=other.nodes["each"]))[0]["node"] != of_node[0]["node"]


@whatever_the_store
def test_a_wide_row(spark, broker, clock):
    broker.enqueue(some_jobs(clock, 1))
    wide = msgspec.json.encode("x" * 5_000_000)
    end(broker, clock, claim(broker), wide)

    [row] = table(spark, "attempts").select(length("result")).collect()

    assert row[0] == len(wide)


# REQUIREMENTS S6
@whatever_the_store
def test_a_declared_secret_is_in_no_row_of_any_table(spark, broker, clock):
    """S17: neither while its job is open nor after it has ended."""
    broker.enqueue([a_job(clock, queue="secret", body=BODY) for _ in range(3)])
    [ended, _] = claim(broker, limit=2)
    end(broker, clock, [ended])

    found = {name: str(table(spark, name).collect()) for name in TABLES}

    assert [name for name, text in found.items() if "1234" in text] == []
    assert found["jobs"].count('"pin":"***"') == 3
    assert found["attempts"].count('"pin":"***"') == 1


@whatever_the_store
def test_fewer_columns_are_what_is_asked_for(spark, broker, clock):
    fill(broker, clock)
    reader = spark.read.format("penstock").option("table", "attempts")

    narrow = reader.schema("queue string, position string, arguments string").load()

    assert narrow.columns == ["queue", "position", "arguments"]
    attempts = [row.position for row in broker.history() if row.kind == "attempt"]
    assert sorted(row.position for row in narrow.collect()) == attempts


@pytest.mark.parametrize(
    ("column", "says"), [("nothing", "has no such column"), ("version", "has it as int")]
)
def test_a_column_that_the_table_has_not_is_refused(column, says):
    with pytest.raises(Refused, match=f"{column} string: the table attempts {says}"):
        TableReader({"table": "attempts"}, StructType([StructField(column, StringType())]))


def test_a_span_of_positions(spark, broker, clock):
    broker.enqueue(some_jobs(clock, 9))
    end(broker, clock, claim(broker, limit=9))
    positions = [row.position for row in broker.history()]

    frame = table(spark, "attempts", after=positions[2], until_position=positions[5])

    assert sorted(row.position for row in frame.collect()) == positions[3:6]


# REQUIREMENTS S8
def test_a_batch_read_ends_before_a_writer_that_is_still_open(
    shared_spark, postgres_store_url, clock
):
    """S9: whoever copies the history from position to position loses no late committer."""
    broker = open_broker(postgres_store_url, clock)
    broker.enqueue(some_jobs(clock, 9))
    copied: list[str] = []

    def copy(**options: str) -> None:
        after = max(copied, default="0")
        frame = table(shared_spark, "attempts", url=postgres_store_url, after=after, **options)
        copied.extend(sorted(row.position for row in frame.collect()))

    end(broker, clock, claim(broker, limit=3))
    with psycopg.connect(postgres_store_url) as late:
        late.execute(LATE, (clock.now(),))  # its position is taken, and nobody sees it
        end(broker, clock, claim(broker, limit=3))
        newest = broker.history()[-1].position
        copy()
        copy(until_position=newest)
        assert len(copied) == 3
    end(broker, clock, claim(broker, limit=3))
    copy()

    assert len(copied) == 10
    assert copied == [row.position for row in broker.history() if row.kind == "attempt"]
    broker.close()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"slices": "many"}, "a whole number"),
        ({"flow": "x"}, "for the tables jobs and results"),
        ({"app": "shop:app", "url": "sqlite:///x.db"}, "already names the store"),
        ({"slcies": "4"}, "'slcies' is not an option of the source; there is slices"),
        ({"table": "jobs", "after": "7"}, "only attempts, events and gauges"),
    ],
    ids=str,
)
def test_options_that_say_nothing_sensible_are_refused(options, says):
    with pytest.raises(Refused, match=says):
        TableReader({"table": "attempts", **options}, StructType([]))


@whatever_the_store
def test_the_store_of_an_app(spark, broker, clock, tmp_path):
    """Named as `penstock worker` names it."""
    broker.enqueue(some_jobs(clock, 1))
    module = tmp_path / "shop_of_source.py"
    module.write_text("from penstock import App\napp = App()\n")

    frame = table(spark, "jobs", app=f"{module}:app")

    assert frame.count() == 1
