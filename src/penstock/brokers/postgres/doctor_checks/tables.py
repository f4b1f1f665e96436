"""Penstock's tables: dead rows, partitions of the coming days, unfolded counts, positions."""

from __future__ import annotations

from penstock.brokers.condition import Fact, Trouble
from penstock.brokers.postgres.doctor_checks import CheckContext, Findings
from penstock.brokers.postgres.statements import sql
from penstock.operate.time_text import duration_text

MANY_DEAD = 100_000
MANY_UNFOLDED = 20_000
COMING_DAYS = 3
_MOST_COUNTED = 10_000


def dead_rows(context: CheckContext) -> Findings:
    """Whether vacuum keeps up with dead rows."""
    rows = context.rows(sql.doctor_dead)
    for row in rows:
        if row["dead"] > max(MANY_DEAD, row["live"]):
            yield Trouble(
                f"penstock.{row['name']} has {row['dead']:,} dead rows and {row['live']:,} live "
                f"ones; {_vacuumed(row['seconds'])}: queries get slower",
                f"vacuum penstock.{row['name']}; if the dead rows stay, see `horizon` and the "
                "settings of autovacuum",
                grave=False,
                name="vacuum",
            )
    dead, live = sum(row["dead"] for row in rows), sum(row["live"] for row in rows)
    times = [row["seconds"] for row in rows if row["seconds"] is not None]
    last = _vacuumed(min(times, default=None))
    yield Fact("vacuum", f"{dead:,} dead rows, {live:,} live ones; {last}")


def _vacuumed(seconds: float | None) -> str:
    return "never vacuumed" if seconds is None else f"last vacuumed {duration_text(seconds)} ago"


def partitions(context: CheckContext) -> Findings:
    """Whether the coming days have partitions, and whether the default ones are empty."""
    missing = [row["day"] for row in context.rows(sql.doctor_days, {"days": COMING_DAYS})]
    if missing:
        yield Trouble(
            f"there are no partitions for {', '.join(missing)}: rows of these days go to the "
            "default partition, where prune deletes them one by one",
            "penstock migrate up, or start a worker: both create them",
            grave=False,
            name="partitions",
        )
    else:
        yield Fact("partitions", f"created for today and the next {COMING_DAYS} days")
    for row in context.rows(sql.doctor_other, {"most": _MOST_COUNTED}):
        if row["rows"]:
            many = f"over {_MOST_COUNTED:,}" if row["rows"] > _MOST_COUNTED else f"{row['rows']:,}"
            yield Trouble(
                f"{many} rows are in penstock.{row['name']}, the default partition, where prune "
                "deletes them one by one",
                "nothing to do for these; penstock migrate up creates the partitions of the coming "
                "days",
                grave=False,
                name="partitions",
            )


def counts(context: CheckContext) -> Findings:
    """Whether some worker folds the counts."""
    left = context.row(sql.doctor_tally)["unfolded"]
    if left > MANY_UNFOLDED:
        yield Trouble(
            f"{left:,} rows of penstock.tally are not folded: `penstock count` gets slower",
            "start a worker: it folds them every few seconds",
            grave=False,
            name="counts",
        )
    else:
        yield Fact("counts", f"{left:,} rows to be folded")


def positions(context: CheckContext) -> Findings:
    """Whether the positions of the history are transaction numbers of this server."""
    row = context.row(sql.doctor_positions)
    if row["newest"] >= row["next"]:
        yield Trouble(
            f"the history has rows of transaction {row['newest']:,} and this server is only at "
            f"{row['next']:,}: it was restored from a dump of another server, and readers of the "
            "history by position miss what happens from now on",
            "stop the workers and run examples/renumber_history.sql; readers start again from the "
            "beginning",
            name="history",
        )
