"""Cancel, retry and delete, while other processes claim from the same parcels."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.brokers.postgres.binary_arrays import uuid_array
from penstock.brokers.postgres.statements import sql
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db
from penstock.brokers.tables.flow_needs import Place, place_of
from penstock.brokers.tables.job_actions import ActOnJobs, JobActions, Touched


class PostgresJobActions(JobActions):
    """As in every store in tables, with a second look for jobs that a claim moved meanwhile."""

    def keep_claims_out(self, change: Change) -> None:
        change.db.execute(sql.keep_claims_out)

    def members_among(self, db: Db, wanted: Sequence[bytes]) -> dict[bytes, Place]:
        rows = db.execute(sql.members_among, (uuid_array(wanted),)).fetchall() if wanted else ()
        nodes = {row["id"]: place_of(row["body"]) for row in rows}
        return {raw: node for raw, node in nodes.items() if node is not None}

    def _cancel_moving(self, change: Change, wanted: Sequence[bytes]) -> dict[bytes, Touched]:
        return self._then_without_claims(super()._cancel_moving, change, wanted)

    def _delete(self, change: Change, wanted: Sequence[bytes]) -> dict[bytes, Touched]:
        return self._then_without_claims(super()._delete, change, wanted)

    def _then_without_claims(
        self, act: ActOnJobs, change: Change, wanted: Sequence[bytes]
    ) -> dict[bytes, Touched]:
        """Act; then again, with claims locked out, on jobs that were not found.

        A claim may have cut their parcel meanwhile: the rest of it is another row.
        """
        touched = act(change, wanted)
        if left := [raw for raw in wanted if raw not in touched]:
            change.write_places()  # counts nothing in flows yet: their locks come last
            self.keep_claims_out(change)
            touched |= act(change, left)
        return touched
