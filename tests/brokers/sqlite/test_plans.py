"""The statements of the hot path find what they need by an index, however much is stored."""

import re
import sqlite3

import pytest

from penstock.brokers.sqlite import SqliteBroker
from penstock.brokers.sqlite.statements import sql
from penstock.enqueue.ids import Ids
from penstock.job import Job, Lane, Parcel

HOT = [
    "busy_lanes",
    "claim",
    "claim_due",
    "claim_parcels",
    "count_flow",
    "count_needs",
    "count_node",
    "expire",
    "expire_waiting",
    "free",
    "outputs",
    "outputs_withheld",
    "held_by",
    "held_row",
    "lease_marks",
    "leases",
    "locked_leases",
    "locked_parcel",
    "locked_row",
    "meet_need",
    "member_rows",
    "parcel_before",
    "sent_before",
    "sent_between",
    "signal",
    "succeeded",
    "unique_holder",
    "unmeet_bad",
    "unmeet_need",
    "waits_for",
    "worker",
]


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    """50,000 jobs of each kind, and the statistics that a planner may use."""
    path = tmp_path_factory.mktemp("plans") / "penstock.db"
    broker, ids = SqliteBroker(path), Ids()
    lane = Lane("default", "task")
    broker.enqueue([Parcel(ids.first(), lane, [b"{}"] * 100) for _ in range(500)])
    later = broker.clock.now() + 3600
    broker.enqueue([Job(task="task", id=ids.next(), run_at=later + n) for n in range(50_000)])
    broker.close()
    connection = sqlite3.connect(path)
    connection.execute("analyze")
    yield connection
    connection.close()


@pytest.mark.parametrize("name", HOT)
def test_a_hot_statement_scans_no_table(crowded, name):
    """G8, G12: enqueue, take, read and end cost the same, however many wait or run."""
    statement = getattr(sql, name)
    marks = re.sub(r"--[^\n]*", "", statement).count("?")
    named = dict.fromkeys(re.findall(r":(\w+)", statement), 0)

    plan = crowded.execute(f"explain query plan {statement}", named or (0,) * marks).fetchall()

    steps = [row[3] for row in plan]
    # A lease row stands for one claim in flight: there are only so many of them.
    scans = [step for step in steps if re.match(r"SCAN penstock_(?!lease)", step)]
    assert not [step for step in scans if "INDEX" not in step], steps
