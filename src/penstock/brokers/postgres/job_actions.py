"""Acts on jobs beside claims that run at the same time."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.brokers.postgres.binary_arrays import uuid_array
from penstock.brokers.postgres.statements import sql
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db
from penstock.brokers.tables.flow_needs import Place, place_of
from penstock.brokers.tables.job_actions import ActOnJobs, JobActions, Touched


class PostgresJobActions(JobActions):
    """Cancel, retry and delete, where others write at the same time."""

    def keep_claims_out(self, change: Change) -> None:
        change.db.execute(sql.keep_claims_out)

    def members_among(self, db: Db, wanted: Sequence[bytes]) -> dict[bytes, Place]:
        found = db.execute(sql.members_among, (uuid_array(wanted),)).fetchall() if wanted else ()
        places = {row["id"]: place_of(row["body"]) for row in found}
        return {raw: place for raw, place in places.items() if place is not None}

    def _cancel_moving(self, change: Change, wanted: Sequence[bytes]) -> dict[bytes, Touched]:
        return self._twice(super()._cancel_moving, change, wanted)

    def _delete(self, change: Change, wanted: Sequence[bytes]) -> dict[bytes, Touched]:
        return self._twice(super()._delete, change, wanted)

    def _twice(
        self, act: ActOnJobs, change: Change, wanted: Sequence[bytes]
    ) -> dict[bytes, Touched]:
        """Look again for what was not found, with claims kept out.

        A parcel that a claim cuts meanwhile is another row by then, and may be cut again.
        """
        touched = act(change, wanted)
        if left := [raw for raw in wanted if raw not in touched]:
            change.write_places()  # nothing is counted yet: locks of flows come last
            self.keep_claims_out(change)
            touched |= act(change, left)
        return touched
