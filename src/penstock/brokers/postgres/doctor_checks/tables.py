"""Our tables: dead rows, partitions of the coming days, and counts that nobody has added up."""

from __future__ import annotations

from penstock.brokers.condition import Fact, Trouble
from penstock.brokers.postgres.doctor_checks import CheckContext, Findings
from penstock.brokers.postgres.statements import sql
from penstock.operate.time_text import duration_text

MANY_DEAD = 100_000
MANY_UNFOLDED = 20_000
COMING_DAYS = 3
_MOST_COUNTED = 10_000


def dead_rows(look: CheckContext) -> Findings:
    """Rows that are gone and still take room, against those that are there."""
    rows = look.rows(sql.look_dead)
    for row in rows:
        if row["dead"] > max(MANY_DEAD, row["live"]):
            yield Trouble(
                f"penstock.{row['name']} has {row['dead']:,} dead rows and {row['live']:,} live "
                f"ones; {_vacuumed(row['seconds'])}",
                f"vacuum penstock.{row['name']}; if they stay, look at the horizon and at "
                "autovacuum's settings",
                grave=False,
                name="vacuum",
            )
    dead, live = sum(row["dead"] for row in rows), sum(row["live"] for row in rows)
    times = [row["seconds"] for row in rows if row["seconds"] is not None]
    last = _vacuumed(min(times, default=None))
    yield Fact("vacuum", f"{dead:,} dead rows, {live:,} live ones; {last}")


def _vacuumed(seconds: float | None) -> str:
    return "never vacuumed" if seconds is None else f"last vacuumed {duration_text(seconds)} ago"


def partitions(look: CheckContext) -> Findings:
    """Whether the coming days have partitions, and whether rows lie beside them."""
    missing = [row["day"] for row in look.rows(sql.look_days, {"days": COMING_DAYS})]
    if missing:
        yield Trouble(
            f"there are no partitions for {', '.join(missing)}: their rows go where they are "
            "pruned one by one",
            "penstock migrate up, or start a worker: either makes them",
            grave=False,
            name="partitions",
        )
    else:
        yield Fact("partitions", f"made for today and the next {COMING_DAYS} days")
    for row in look.rows(sql.look_other, {"most": _MOST_COUNTED}):
        if row["rows"]:
            many = f"over {_MOST_COUNTED:,}" if row["rows"] > _MOST_COUNTED else f"{row['rows']:,}"
            yield Trouble(
                f"{many} rows lie in penstock.{row['name']}, beside the partitions by day",
                "they are pruned one by one when their time comes; penstock migrate up makes "
                "partitions for what comes next",
                grave=False,
                name="partitions",
            )


def counts(look: CheckContext) -> Findings:
    """Whether somebody adds up what each transaction adds to the counts."""
    left = look.row(sql.look_tally)["unfolded"]
    if left > MANY_UNFOLDED:
        yield Trouble(
            f"{left:,} counts are not added up: `penstock count` gets slower",
            "start a worker: it adds them up every few seconds",
            grave=False,
            name="counts",
        )
    else:
        yield Fact("counts", f"{left:,} to be added up")


def positions(look: CheckContext) -> Findings:
    """Whether the history counts by the transactions of this server."""
    row = look.row(sql.look_positions)
    if row["newest"] >= row["next"]:
        yield Trouble(
            f"the history goes up to transaction {row['newest']:,} and this server is at "
            f"{row['next']:,}: it is a dump of another one, and whoever reads the history by "
            "position misses what happens from now on",
            "stop the workers, then run examples/renumber_history.sql; readers begin anew at 0",
            name="history",
        )
