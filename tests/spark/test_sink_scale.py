"""The sink at full size: rows with a key or an id, by COPY, and nothing left behind."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from penstock.brokers import open_broker

ROWS = [20_000, pytest.param(20_000_000, marks=[pytest.mark.soak, pytest.mark.timeout(7200)])]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("column", ["key_column", "id_column"])
def test_a_frame_of_many_rows_is_as_many_jobs(
    shared_spark: Any, postgres_url: str, rows: int, column: str
):
    """S1: each row is one job, in `job` and in `sent`, and no staged row is left."""
    frame = shared_spark.range(0, rows, 1, 4).selectExpr("cast(id as string) as row", "id as n")
    writer = frame.write.format("penstock").options(task="scale:call", url=postgres_url)

    for _ in range(2 if column == "id_column" else 1):
        writer.option(column, "row").mode("append").save()

    with psycopg.connect(postgres_url) as connection:
        stored = connection.execute(
            "select count(*), count(distinct convert_from(body, 'UTF8')::jsonb #>> '{args,n}')"
            " from penstock.job"
        ).fetchone()
        staged = connection.execute(
            "select (select count(*) from penstock.staged_job)"
            " + (select count(*) from penstock.staged_call)"
            " + (select count(*) from penstock.staged)"
        ).fetchone()
        sent = connection.execute("select sum(jobs)::bigint from penstock.sent").fetchone()
    assert (stored, staged, sent) == ((rows, rows), (0,), (rows,))
    broker = open_broker(postgres_url)
    assert [count.ready for count in broker.count()] == [rows]
    broker.close()
