"""An app with a key ring: the sink stores rows encrypted, or refuses; no key goes through Spark."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import types

import penstock.spark
from penstock import App, KeyRing, Refused
from penstock.app.locate import load_app
from penstock.brokers import open_broker
from penstock.spark.sink import BatchSink
from penstock.spark.sink.rows_to_jobs import template_text
from tests.spark.canary import leaks
from tests.spark.conftest import whatever_the_store
from tests.spark.frames import jobs_in, schema_of

KEY = b"canary-key-canary-key-canary-key"
TEXT = schema_of(text=types.StringType())
SECRET = "hunter2-canary"
TASKS = """
from penstock import App, KeyRing

app = App({url!r}, name="shop", keys=KeyRing({key!r}))


@app.task(name="echo")
def echo(text: str) -> str:
    return text
"""


@pytest.fixture
def key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "shop.key"
    path.write_text(base64.urlsafe_b64encode(KEY).decode())
    path.chmod(0o600)
    monkeypatch.setenv("PENSTOCK_KEY_FILE", str(path))
    return path


@pytest.fixture
def keyed_spark(
    shared_spark: Any, key_file: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """The shared session with the key file, which the tests after this one do not have."""
    yield penstock.spark.attach(shared_spark, url=store_url)
    monkeypatch.delenv("PENSTOCK_KEY_FILE")
    penstock.spark.attach(shared_spark, url=store_url)  # its data source keeps the environment


@pytest.fixture
def tasks(store_url: str, tmp_path: Path) -> str:
    (tmp_path / "sealed_tasks.py").write_text(TASKS.format(url=store_url, key=KEY))
    return f"{tmp_path / 'sealed_tasks.py'}:app"


@pytest.fixture
def app(tasks: str) -> Iterator[App]:
    app = load_app(tasks)
    yield app
    app.close()


def a_sink(url: str, **options: str) -> BatchSink:
    return BatchSink(TEXT, {"task": "echo", "url": url, **options}, False)


def write(sink: BatchSink, *texts: str) -> None:
    """As Spark does it: on the driver, on an executor, on the driver."""
    sink.create_store()
    part = sink.write(iter([pa.record_batch({"text": pa.array(texts, pa.string())})]))
    sink.commit([part])


def texts_in(url: str, keys: KeyRing) -> list[Any]:
    app = App(broker=open_broker(url), keys=keys)
    bodies = [app.broker.get(job.id).body for job in jobs_in(url)]
    app.broker.close()
    return bodies


@pytest.mark.parametrize("columns", [{}, {"id_column": "text", "arguments": "text"}])
def test_rows_are_sealed_with_the_key_file_of_the_executor(key_file, store_url, columns):
    write(a_sink(store_url, **columns), SECRET, "b")

    assert [b"$sealed" in job.body for job in jobs_in(store_url)] == [True, True]
    assert not [job for job in jobs_in(store_url) if SECRET.encode() in job.body]
    opened = b"".join(texts_in(store_url, KeyRing(KEY)))
    assert SECRET.encode() in opened


def test_the_hash_of_arguments_is_sealed_too_and_still_tells_what_has_changed(key_file, store_url):
    """Whoever reads the store could compare guesses with it."""
    schema = schema_of(id=types.IntegerType(), text=types.StringType())

    def write_row(text: str) -> None:
        options = {"task": "echo", "url": store_url, "id_column": "id", "arguments": "id,text"}
        sink = BatchSink(schema, options, False)
        sink.create_store()
        rows = {"id": pa.array([1], pa.int32()), "text": [text]}
        sink.commit([sink.write(iter([pa.record_batch(rows)]))])

    write_row(SECRET)
    write_row(SECRET)
    with pytest.raises(Refused, match="id=1 was enqueued with other arguments"):
        write_row("b")

    [stored] = [msgspec.json.decode(job.body)["headers"] for job in jobs_in(store_url)]
    assert stored["penstock-arguments"].startswith('{"$sealed":')
    [opened] = [msgspec.json.decode(body)["headers"] for body in texts_in(store_url, KeyRing(KEY))]
    assert re.fullmatch("[0-9a-f]{16}", opened["penstock-arguments"])


def test_rows_for_an_app_are_sealed_with_its_keys(store_url, tasks):
    write(a_sink(store_url, app=tasks), SECRET)

    [job] = jobs_in(store_url)
    assert SECRET.encode() not in job.body
    assert SECRET.encode() in texts_in(store_url, KeyRing(KEY))[0]


def test_an_executor_without_the_key_of_the_driver_writes_nothing(key_file, store_url, monkeypatch):
    sink = a_sink(store_url)
    sink.create_store()
    batch = pa.record_batch({"text": pa.array([SECRET], pa.string())})
    monkeypatch.delenv("PENSTOCK_KEY_FILE")
    with pytest.raises(Refused, match=r"with the key \w{8}, which this Python process"):
        sink.write(iter([batch]))
    other = key_file.with_name("other.key")
    other.write_text(base64.urlsafe_b64encode(b"o" * 32).decode())
    other.chmod(0o600)
    monkeypatch.setenv("PENSTOCK_KEY_FILE", str(other))
    with pytest.raises(Refused, match="which this Python process of Spark does not have"):
        sink.write(iter([batch]))

    assert jobs_in(store_url) == []


def test_without_any_key_an_app_that_encrypts_is_refused_on_the_driver(store_url, app):
    app.tasks["echo"].enqueue(SECRET)

    with pytest.raises(Refused, match="the app 'shop' encrypts its jobs in this store"):
        a_sink(store_url, app_name="shop").create_store()
    a_sink(store_url, app_name="other").create_store()
    assert len(jobs_in(store_url)) == 1


def test_the_recipe_of_apply_names_the_key_and_does_not_hold_it(store_url, app):
    text = template_text(app.tasks["echo"])

    assert KeyRing(KEY).names[0] in text
    assert KEY.decode() not in text
    with pytest.raises(Refused, match="which this Python process of Spark does not have"):
        a_sink(store_url, recipe=text).create_store()


@whatever_the_store
def test_apply_without_a_key_file_is_refused_before_anything_is_stored(
    spark: Any, store_url: str, app: App
):
    rows = spark.createDataFrame([(1, "a")], "id int, text string")

    with pytest.raises(Refused, match=r"Spark's Python processes have no key\. Put the keys into"):
        penstock.spark.apply(rows, app.tasks["echo"], name="echo", id="id", rate="5/s")

    assert jobs_in(store_url) == []


@whatever_the_store
def test_the_sink_and_apply_seal_and_the_key_is_written_nowhere(  # noqa: PLR0917  fixtures
    keyed_spark: Any,
    event_log: Path,
    key_file: Path,
    store_url: str,
    app: App,
    tasks: str,
    tmp_path: Path,
):
    spark = keyed_spark
    rows = spark.createDataFrame([(n, f"{SECRET}-{n}") for n in range(4)], "id int, text string")
    writer = rows.select("text").write.format("penstock").option("task", "echo")
    writer.option("app_name", "shop").mode("append").save()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"text": "streamed"}\n')
    stream = spark.readStream.schema("text string").json(str(tmp_path / "in"))
    sunk = stream.writeStream.format("penstock").option("task", "echo").option("app_name", "shop")
    sunk = sunk.option("checkpointLocation", str(tmp_path / "sunk")).trigger(availableNow=True)
    sunk.start().awaitTermination()
    assert len(jobs_in(store_url)) == 5
    assert all(b"$sealed" in job.body for job in jobs_in(store_url))

    command = [sys.executable, "-m", "penstock", "worker", tasks, "--processes", "1"]
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env={**os.environ, **path}) as worker:
        try:
            results = penstock.spark.apply(rows, app.tasks["echo"], name="echo", id="id").collect()
        finally:
            worker.terminate()

    assert sorted(row.result for row in results) == [f"{SECRET}-{n}" for n in range(4)]
    encoded = key_file.read_text()
    penstock.spark.attach(spark, url=store_url)
    for folder in (event_log, tmp_path / "sunk"):
        assert list(folder.rglob("*"))
        assert leaks(folder, encoded) + leaks(folder, KEY.decode()) == []
    for job in jobs_in(store_url):
        assert SECRET.encode() not in job.body
