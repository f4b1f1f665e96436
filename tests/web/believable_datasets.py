"""The datasets that a city's traffic office might have: made, stale, failed and late ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock import App, Source
from penstock.spark.datasets.run import fill
from penstock.testing import Clock
from tests.arrow_session import ArrowSession, frame

NOW = datetime(2026, 3, 9, 7, 30, tzinfo=UTC).timestamp()
BROKEN = "2026-02-17"


def below_zero(found: Any) -> int:
    return sum(row["speed"] < 0 for row in found.rows())


@contextmanager
def traffic(folder: Path) -> Iterator[App]:
    """The app, with a store in memory and tables in this folder."""
    app = App(f"sqlite:///{folder}/jobs.db")
    files = dict[str, str]()
    common: dict[str, Any] = {"spark": ArrowSession}

    def probe_files(spark: Any, interval: Any) -> Any:
        if interval.text == BROKEN and not files.get(BROKEN):
            raise ValueError("probes-17.json.gz ends in the middle of a line")
        number = 40 + 7 * (interval.start.day % 5)
        return frame(
            road=[f"E{n}" for n in range(number)], speed=[4 + n % 90 for n in range(number)]
        )

    def incidents(spark: Any, interval: Any) -> Any:
        return frame(road=["E4"])

    source = Source(probe_files, version=lambda interval: files.get(str(interval), ""))

    @app.dataset(
        name="probes",
        partition="day",
        zone="Europe/Paris",
        start="2025-12-15",
        inputs=[source],
        table=folder / "probes",
        freshness=6 * 3600,
        check=[below_zero],
        **common,
    )
    def probes(spark: Any, day: Any, found: Any) -> Any:
        return found

    @app.dataset(
        name="conflated",
        partition="day",
        inputs=[probes, incidents],
        table=folder / "conflated",
        **common,
    )
    def conflated(spark: Any, day: Any, found: Any, known: Any) -> Any:
        return found

    @app.dataset(
        name="congestion",
        partition="month",
        inputs=[conflated],
        table=folder / "congestion",
        **common,
    )
    def congestion(spark: Any, month: Any, days: Any) -> Any:
        return frame(road=["E4", "E7"], minutes=[12, 9])

    @app.dataset(
        name="weekly",
        partition="week",
        inputs=[conflated.past(7)],
        table=folder / "weeks",
        **common,
    )
    def weeks(spark: Any, monday: Any, days: Any) -> Any:
        return frame(road=["E4"], change=[0.1])

    with app.testing(clock=Clock(NOW)) as t:
        fill(app, ["congestion", "weekly"], until=NOW - 2 * 86400)
        t.drain()
        files["2026-01-20"] = "came again"  # late data
        fill(app, ["probes"], since=NOW - 2 * 86400)
        yield app
