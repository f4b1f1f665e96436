"""Clean attempts: one row per attempt, with the columns that a condition of a replay may name.

Added columns: `wait` (seconds from due to started), `run` (seconds from started to ended),
`finished` (it was the job's last attempt), `retried`, `lapsed`, `bad` (failed, lapsed or with an
error), and `signature` (what failures of one kind have in common).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.run.error_text import BLANK, TRACEBACKS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ENDED = ("succeeded", "failed", "cancelled")
_CRASHES = ("crashed", "lost")
_LONGEST = 160


def clean(attempts: DataFrame) -> DataFrame:
    """Raw attempts with the added columns."""
    finished = F.col("state").isin(*ENDED)
    lapsed = F.coalesce(F.col("reason").isin(*_CRASHES), F.lit(False))
    error = F.coalesce(F.col("reason").isin("error", "timeout"), F.lit(False))
    bad = (F.col("state") == "failed") | lapsed | error
    return (
        attempts.withColumn("wait", _wait())
        .withColumn("run", _seconds(F.col("started_at"), F.col("ended_at")))
        .withColumn("finished", finished)
        .withColumn("lapsed", lapsed)
        .withColumn("retried", ~finished & error)
        .withColumn("bad", bad)
        .withColumn("signature", F.when(bad, _signature()))
    )


def _signature() -> Column:
    """The headline of the error with numbers and quoted words replaced, so that failures group."""
    # An error may be a megabyte on one line: only its beginning is used.
    line = F.left(headline(), F.lit(4 * _LONGEST))
    alike = F.regexp_replace(line, "'[^']*'|\"[^\"]*\"", "'…'")
    alike = F.regexp_replace(alike, "0x[0-9a-fA-F]+|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9]+", "#")
    # The condition tests `line`, not `alike`: Spark would evaluate the regular expressions twice.
    return F.coalesce(
        F.when(line != "", F.left(alike, F.lit(_LONGEST))), F.col("reason"), F.lit("failed")
    )


def headline() -> Column:
    """The headline of the column `error`, as `penstock.run.error_text.headline` defines it."""
    text = F.expr(f"trim(both '{BLANK}' from error)")
    first = F.substring_index(text, "\n", 1)
    is_traceback = _trimmed(first).isin(*TRACEBACKS)
    return _trimmed(F.when(is_traceback, F.substring_index(text, "\n", -1)).otherwise(first))


def _trimmed(line: Column) -> Column:
    return F.btrim(line, F.lit(BLANK))


def _wait() -> Column:
    # After a retry `run_at` is when the next attempt is due: such rows have no known wait.
    due = F.greatest(F.col("enqueued_at"), F.col("run_at"))
    return F.when(
        F.coalesce(due <= F.col("started_at"), F.lit(False)) | F.col("state").isin(*ENDED),
        _seconds(due, F.col("started_at")),
    )


def _seconds(start: Column, end: Column) -> Column:
    spent = (F.unix_micros(end) - F.unix_micros(start)) / 1_000_000
    return F.when(spent.isNotNull(), F.greatest(spent, F.lit(0.0)))
