"""Clean attempts: one row per attempt, with what every report asks of it worked out once.

Added columns: `wait` (seconds from due to started), `run` (seconds from started to ended),
`finished` (the job ended with it), `retried`, `lapsed`, `bad`, and `signature` (of what is bad).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.functions import (
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

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ENDED = ("succeeded", "failed", "cancelled")
MINUTE, HOUR, DAY = 60, 3600, 86400
_CRASHES = ("crashed", "lost")
_LONGEST = 160
_BLANK = " \t\n\x0b\f\r"


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
    """What failures of one kind have in common: the last line of the error, without its numbers."""
    # An error may be a megabyte, of spaces even: only its end is looked at.
    whole = expr(f"trim(trailing '{_BLANK}' from error)")
    line = left(substring_index(whole, "\n", -1), lit(4 * _LONGEST))
    alike = regexp_replace(line, "'[^']*'|\"[^\"]*\"", "'…'")
    alike = regexp_replace(alike, "0x[0-9a-fA-F]+|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9]+", "#")
    # Asked of the line itself: whatever a condition names, Spark works out once more.
    return coalesce(when(line != "", left(alike, lit(_LONGEST))), col("reason"), lit("failed"))


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
