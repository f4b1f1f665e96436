"""What the tests of the sink ask a store for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import types

from penstock.broker.filter import Filter
from penstock.brokers import open_broker
from penstock.job import Job

APP = f"{Path(__file__).with_name('sink_tasks.py')}:app"


def schema_of(**kinds: types.DataType) -> types.StructType:
    return types.StructType([types.StructField(name, kind) for name, kind in kinds.items()])


def jobs_in(url: str) -> list[Job[Any]]:
    """Every job of a store, by id."""
    broker = open_broker(url)
    found: list[Job[Any]] = []
    after: str | None = None
    while True:
        page = broker.find(Filter(), after, 1000)
        found += page.jobs
        after = page.after
        if after is None:
            broker.close()
            return sorted(found, key=lambda job: job.id)


def arguments_in(url: str) -> list[dict[str, Any]]:
    return [msgspec.json.decode(job.body)["args"] for job in jobs_in(url)]


def numbers_in(url: str) -> Counter[int]:
    """How often each number was enqueued."""
    return Counter(each["number"] for each in arguments_in(url))


def write(frame: Any, **options: Any) -> None:
    writer = frame.write.format("penstock").mode("append")
    for name, value in {"task": "mail:send", **options}.items():
        writer = writer if value is None else writer.option(name, value)
    writer.save()
