"""What an App reads of many jobs at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, cast

from penstock.enqueue.ids import parse_id

if TYPE_CHECKING:
    from penstock.app.app import App

_AT_ONCE = 1000


class AppReads:
    """Reads of an App."""

    def get_many(
        self, ids: Sequence[str], fields: Collection[str] | None = None
    ) -> dict[str, dict[str, Any]]:
        """Fields of many jobs, by id, with one question per 1,000; those not known are left out.

        The fields are those of `penstock find --json`, None is all of them:
        `app.get_many(ids, ("state", "result"))`.
        """
        from penstock.operate.to_json import chosen_fields

        app, parsed = cast("App", self), [parse_id(id) for id in ids]
        found: dict[str, dict[str, Any]] = {}
        for start in range(0, len(parsed), _AT_ONCE):
            some = parsed[start : start + _AT_ONCE]
            jobs = app.ask(lambda some=some: app.broker.get_many(some))
            found |= {id: chosen_fields(job, fields) for id, job in jobs.items()}
        return found
