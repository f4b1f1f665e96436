"""The statements that any store in tables has, each in its own dialect."""

from __future__ import annotations

from pathlib import Path

from penstock.brokers.sql_files import SqlFiles


class Statements(SqlFiles):
    """Those that the verbs of this package use; a store declares its own in a subclass."""

    # cancel.sql
    ask_cancel: str
    locked_row: str
    locked_leases: str
    locked_parcel: str
    members_of: str
    rows_between: str
    parcels_between: str
    # claim.sql
    take_parcel: str
    running_leases: str
    running_rows: str
    starts: str
    expire: str
    expire_waiting: str
    # count.sql
    count: str
    count_later: str
    count_held: str
    count_by_key: str
    # delete.sql
    delete: str
    forget_bodies: str
    forget_notes: str
    succeeded_between: str
    forget_flow: str
    forget_found: str
    forget_members: str
    forget_needs: str
    forget_nodes: str
    # enqueue.sql
    enqueue: str
    enqueue_parcel: str
    take_unique: str
    unique_holder: str
    free_unique: str
    # find.sql
    find: str
    find_ended: str
    find_succeeded: str
    find_derived: str
    find_derived_ended: str
    find_derived_succeeded: str
    find_parcels: str
    find_leases: str
    lease: str
    find_tagged: str
    tagged_derived: str
    find_tagged_derived: str
    lanes: str
    # flows.sql
    flows: str
    flows_named: str
    flows_found: str
    count_found: str
    flow: str
    nodes: str
    needs: str
    members: str
    outputs: str
    outputs_withheld: str
    # gauge.sql
    gauge: str
    gauged: str
    oldest: str
    # get.sql
    get: str
    lease_of: str
    parcel_before: str
    succeeded: str
    # history.sql
    history: str
    history_of: str
    last: str
    last_of: str
    last_told: str
    # marks.sql
    marks: str
    mark: str
    set_mark: str
    clear_mark: str
    lock_marks: str
    newest: str
    oldest_row: str
    # note.sql
    note: str
    notes: str
    locked_state: str
    put_state: str
    # prune.sql
    past_hold: str
    # recover.sql
    recover: str
    give_up_worker: str
    # renew.sql
    worker: str
    held_by: str
    leases: str
    # retry.sql
    retry: str
    retry_later: str
    lock_flow: str
    node: str
    kept_bad: str
    unmeet_need: str
    unmeet_bad: str
    waits_for: str
    # rules.sql
    rules: str
    set_rule: str
    clear_rule: str
    # scan.sql
    bounds_of_jobs: str
    flow_spans: str
    scan_parcels: str
    # schedules.sql
    schedules: str
    put_schedule: str
    locked_schedule: str
    change_schedule: str
    clear_schedule: str
    # settle.sql
    settle: str
    succeed: str
    held_row: str
    lease_marks: str
    mark_lease: str
    lease_bodies: str
    blank_lease: str
    end_lease: str
    event: str
    tally: str
    count_flow: str
    count_node: str
    count_needs: str
    meet_need: str
    free: str
    member_rows: str
    flow_end: str
    # signal.sql
    signal: str
    # why.sql
    ahead: str
    behind: str
    queue_lanes: str
    unmet: str
    # workers.sql
    workers: str


def migrations(folder: Path) -> list[tuple[int, str]]:
    """The numbered steps of a folder, in order; none if it is not there."""
    return [
        (int(path.name[:4]), path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("[0-9]*.sql"))
    ]
