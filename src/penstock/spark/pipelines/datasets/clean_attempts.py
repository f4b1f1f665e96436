"""Clean attempts: one row per attempt, with what every report asks of it worked out once.

Added columns: `wait` (seconds from due to started), `run` (seconds from started to ended),
`finished` (the job ended with it), `retried`, `lapsed`, `bad`, and `signature` (of what is bad).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.functions import (
    btrim,
    coalesce,
    col,
    expr,
    greatest,
    left,
    lit,
    regexp_replace,
    substring_index,
    timestamp_seconds,
    unix_micros,
    unix_seconds,
    when,
)

from penstock.run.error_text import BLANK, TRACEBACKS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ENDED = ("succeeded", "failed", "cancelled")
MINUTE, HOUR, DAY = 60, 3600, 86400
_CRASHES = ("crashed", "lost")
_LONGEST = 160


def clean(attempts: DataFrame) -> DataFrame:
    """Attempts, with the columns that reports are made of."""
    finished = col("state").isin(*ENDED)
    lapsed = coalesce(col("reason").isin(*_CRASHES), lit(False))
    error = coalesce(col("reason").isin("error", "timeout"), lit(False))
    bad = (col("state") == "failed") | lapsed | error
    return (
        attempts.withColumn("wait", _wait())
        .withColumn("run", _seconds(col("started_at"), col("ended_at")))
        .withColumn("finished", finished)
        .withColumn("lapsed", lapsed)
        .withColumn("retried", ~finished & error)
        .withColumn("bad", bad)
        .withColumn("signature", when(bad, _signature()))
    )


def _signature() -> Column:
    """What failures of one kind have in common: the headline of the error, without its numbers."""
    # An error may be a megabyte, on one line even: only so much of it is looked at.
    line = left(headline(), lit(4 * _LONGEST))
    alike = regexp_replace(line, "'[^']*'|\"[^\"]*\"", "'…'")
    alike = regexp_replace(alike, "0x[0-9a-fA-F]+|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9]+", "#")
    # Asked of the line itself: whatever a condition names, Spark works out once more.
    return coalesce(when(line != "", left(alike, lit(_LONGEST))), col("reason"), lit("failed"))


def headline() -> Column:
    """The headline of the column `error`, uncut, as `penstock.run.error_text.headline` has it."""
    whole = expr(f"trim(both '{BLANK}' from error)")
    first = substring_index(whole, "\n", 1)
    without = _trimmed(first).isin(*TRACEBACKS)
    return _trimmed(when(without, substring_index(whole, "\n", -1)).otherwise(first))


def _trimmed(line: Column) -> Column:
    return btrim(line, lit(BLANK))


def bucket(moment: Column, seconds: int) -> Column:
    """The start of the stretch of so many seconds that a moment is in, counted in UTC."""
    start = unix_seconds(moment) - unix_seconds(moment) % seconds
    return timestamp_seconds(start)


def _wait() -> Column:
    # An attempt that led to another one says when that is due, not when itself was.
    due = greatest(col("enqueued_at"), col("run_at"))
    return when(
        coalesce(due <= col("started_at"), lit(False)) | col("state").isin(*ENDED),
        _seconds(due, col("started_at")),
    )


def _seconds(start: Column, end: Column) -> Column:
    spent = (unix_micros(end) - unix_micros(start)) / 1_000_000
    return when(spent.isNotNull(), greatest(spent, lit(0.0)))
