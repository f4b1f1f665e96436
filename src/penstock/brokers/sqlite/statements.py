"""The statements of this broker."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from penstock.brokers.tables import statements
from penstock.brokers.tables.statements import Statements

_FOLDER = Path(__file__).parent


class SqliteStatements(Statements):
    """What this store has besides."""

    # claim.sql
    claim: str
    claim_due: str
    claim_one: str
    claim_parcels: str
    claim_picked: str
    busy_lanes: str
    put_lease: str
    trim_parcel: str
    next_turn: str
    oldest_turn: str
    turn_first: str
    turn_rows: str
    put_start: str
    move_start: str
    end_start: str
    # enqueue.sql
    send: str
    sent_before: str
    sent_between: str
    batch: str
    put_batch: str
    put_lane: str
    lane_search: str
    put_tag: str
    put_flow: str
    put_found: str
    put_node: str
    put_need: str
    put_member: str
    next_node: str
    # get.sql
    lane: str
    # migrate.sql
    has_meta: str
    meta: str
    put_meta: str
    meta_value: str
    # move.sql
    map_epoch: str
    # prune.sql
    prune: str
    prune_page: str
    prune_bodies: str
    prune_sealed: str
    prune_jobs: str
    prune_sent: str
    prune_derived: str
    prune_unique: str
    prune_batches: str
    prune_staged: str
    prune_published: str
    prune_starts: str
    prune_workers: str
    prune_notes: str
    prune_tags: str
    prune_tallies: str
    prune_flows: str
    prune_states: str
    prune_found: str
    prune_members: str
    prune_needs: str
    prune_nodes: str
    # renew.sql
    renew: str
    cancelled_rows: str
    # scan.sql
    reach: str
    ends: str
    scan_events: str
    scan_jobs: str
    scan_succeeded: str
    # schema.sql
    schema: str
    # stage.sql
    stage: str
    staged: str
    staged_rows: str
    publish: str
    published: str
    discard: str


sql = SqliteStatements(_FOLDER / "sql")


@cache
def many(statement: str, rows: int) -> str:
    """An insert of one row as one of so many."""
    into, values, row = statement.rstrip().removesuffix(";").rpartition("values")
    return into + values + ", ".join([row] * rows)


def migrations() -> list[tuple[int, str]]:
    """The numbered steps that lead to schema.sql; until the first release it is the only one."""
    return statements.migrations(_FOLDER / "migrations") or [(1, sql.schema)]
