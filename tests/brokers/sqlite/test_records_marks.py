"""Marks in a file that somebody damaged."""

from __future__ import annotations

import sqlite3

from penstock.broker.lake_mark import Mark
from penstock.brokers.sqlite import SqliteBroker


def test_a_row_that_is_damaged_is_gone_by_and_said(tmp_path, clock, caplog):
    """By hand, or by a disk: pruning goes on, and holds what it held."""
    broker = SqliteBroker(tmp_path / "jobs.db", clock=clock)
    broker.put(Mark(lake="a", hold=60.0))
    raw = sqlite3.connect(tmp_path / "jobs.db")
    raw.execute("update penstock_mark set declared = '{'")
    raw.commit()
    raw.close()

    assert broker.records(Mark) == [Mark(lake="a", hold=60.0)]
    broker.prune(clock.now() + 30)
    assert [row.kind for row in broker.history()] == ["lake"]
    assert "mark of lake a cannot be read" in caplog.text
    broker.close()
