"""The statements of this broker, and the SQL functions that migrations create."""

from __future__ import annotations

from pathlib import Path

from penstock.brokers.tables.statements import Statements

_FOLDER = Path(__file__).parent


class PostgresStatements(Statements):
    """The statements of sql/, beside those that every store in tables has."""

    # attach.sql
    attach_table: str
    detach_table: str
    attached_tables: str
    # cancel.sql
    keep_claims_out: str
    members_among: str
    # move.sql
    hold_map: str
    change_map: str
    map_epoch: str
    # claim.sql
    claim: str
    look: str
    claimed_rows: str
    lanes_of: str
    # doctor.sql
    doctor_settings: str
    doctor_standby: str
    doctor_connections: str
    doctor_workers: str
    doctor_missing: str
    doctor_days: str
    doctor_other: str
    doctor_dead: str
    doctor_tally: str
    doctor_positions: str
    doctor_horizon: str
    doctor_hidden: str
    doctor_prepared: str
    doctor_slots: str
    doctor_listen: str
    doctor_notify: str
    doctor_wal: str
    doctor_ended: str
    # enqueue.sql
    send_one: str
    send_jobs: str
    send_parcel: str
    send_parcels: str
    send_flow: str
    spawn_flow: str
    sent_between: str
    batch: str
    put_batch: str
    put_lane: str
    joinable: str
    lock_unique: str
    # get.sql
    get_many: str
    succeeded_many: str
    lane: str
    # history.sql
    written: str
    flush: str
    flushed: str
    # migrate.sql
    has_meta: str
    meta: str
    place: str
    put_meta: str
    put_store: str
    migrate_lock: str
    migrate_from: str
    make_days: str
    note_parts: str
    parts_to_build: str
    parts_built: str
    lock_parts: str
    unlock_parts: str
    # prune.sql
    prune: str
    prune_past: str
    share_marks: str
    may_prune_evidence: str
    prune_evidence: str
    old_days: str
    drop_day: str
    make_day: str
    prune_bodies: str
    prune_sealed: str
    prune_jobs: str
    prune_sent: str
    prune_derived: str
    put_pruned: str
    prune_unique: str
    prune_batches: str
    prune_staged: str
    prune_published: str
    prune_starts: str
    prune_workers: str
    prune_notes: str
    prune_tags: str
    fold: str
    prune_flows: str
    prune_states: str
    # renew.sql
    renew: str
    # roles.sql
    roles: str
    # rules.sql
    may_block: str
    listeners: str
    listen_acknowledged: str
    acknowledge: str
    unlisten_acknowledged: str
    # scan.sql
    reach: str
    writers: str
    pages: str
    bounds: str
    bounds_sampled: str
    scan_events: str
    scan_jobs: str
    scan_succeeded: str
    # schema.sql
    schema: str
    # settle.sql
    succeed_rows: str
    settle_and_claim: str
    # stage.sql
    stage: str
    stage_again: str
    stage_apart: str
    stage_call: str
    stage_jobs: str
    stage_parcels: str
    staged: str
    staged_among: str
    publish: str
    publish_jobs: str
    publish_parts: str
    published: str
    discard: str
    # wait.sql
    listen: str
    notify: str
    ping: str
    clock: str


sql = PostgresStatements(_FOLDER / "sql")


def functions() -> str:
    """The text of all functions; packed.sql first, which others call while they are created."""
    paths = sorted((_FOLDER / "functions").glob("*.sql"))
    paths.sort(key=lambda path: path.stem != "packed")
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)
