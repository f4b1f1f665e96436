"""pipeline lakes and forget: the lakes for which a store keeps history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.broker.lake_mark import Mark, gap_text, place_of
from penstock.errors import Refused
from penstock.operate.time_text import duration_text

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker


def print_lakes(broker: Broker, *, json: bool) -> None:
    """A table of the lakes."""
    from penstock.cli import output

    marks, now = broker.records(Mark), broker.clock.now()
    if json:
        import msgspec

        output.print_json([msgspec.to_builtins(mark) for mark in marks])
        return
    if not marks:
        output.print_text("no lake has taken history from this store")
        return
    table = output.table(
        "lake", "folder", "position", "updated", "hold", "missing", right=["position"]
    )
    for mark in marks:
        table.add_row(
            mark.lake,
            mark.place,
            mark.position,
            f"{duration_text(now - mark.told_at)} ago",
            duration_text(mark.hold),
            "" if mark.gap is None else gap_text(mark.gap),
        )
    output.console().print(table)


def forget_lake(
    broker: Broker, location: str, options: Mapping[str, str], reason: str, *, json: bool
) -> None:
    """Stop keeping history for a lake, named by where it is (even if it is gone) or its id."""
    from penstock.cli import output
    from penstock.cli.options import person
    from penstock.operate.actions import Actions

    mark = _find_mark(broker.records(Mark), location, options)
    Actions(broker, person()).forget_lake(mark.lake, reason)
    if json:
        output.print_json({"lake": mark.lake, "place": mark.place})
    else:
        output.print_text(
            f"the store keeps no more history for the lake {place_of(mark)}; its files stay"
        )


def _find_mark(marks: Sequence[Mark], location: str, options: Mapping[str, str]) -> Mark:
    from penstock.spark.pipelines.lake.lake import Lake

    named = {mark.lake: mark for mark in marks}
    if location in named:
        return named[location]
    lake = Lake(location, options)
    id = lake.id if lake.exists() else None
    if id in named:
        return named[id]
    # By where it was only if no other lake is there now.
    there = [mark for mark in marks if mark.place == str(lake)]
    if id is None and len(there) == 1:
        return there[0]
    known = ", ".join(f"{place_of(mark)} ({mark.lake})" for mark in marks) or "none"
    raise Refused(f"this store keeps no history for a lake {location}; its lakes are: {known}")
