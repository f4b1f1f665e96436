"""The lakes that a store knows: how far each has come, what it misses, and giving one up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.broker.lake_mark import Mark, gap_text, place_of
from penstock.errors import Refused
from penstock.operate.why import span

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker


def put_lakes(broker: Broker, *, json: bool) -> None:
    """Every lake that the store keeps history for."""
    from penstock.cli import output

    marks, now = broker.records(Mark), broker.clock.now()
    if json:
        import msgspec

        output.put_json([msgspec.to_builtins(mark) for mark in marks])
        return
    if not marks:
        output.say("no lake has taken history of this store")
        return
    table = output.table("lake", "place", "up to", "told", "keeps for", "misses", right=["up to"])
    for mark in marks:
        table.add_row(
            mark.lake,
            mark.place,
            mark.position,
            f"{span(now - mark.told_at)} ago",
            span(mark.hold),
            "" if mark.gap is None else gap_text(mark.gap),
        )
    output.console().print(table)


def forget_lake(broker: Broker, folder: Path, reason: str, *, json: bool) -> None:
    """Give up a lake, named by its folder (also one that is gone) or by its id."""
    from penstock.cli import output
    from penstock.cli.options import person
    from penstock.operate.actions import Actions

    mark = _meant(broker.records(Mark), folder)
    Actions(broker, person()).forget_lake(mark.lake, reason)
    if json:
        output.put_json({"lake": mark.lake, "place": mark.place})
    else:
        output.say(f"nothing is kept for the lake {place_of(mark)} any more; its files stay")


def _meant(marks: Sequence[Mark], folder: Path) -> Mark:
    from penstock.spark.pipelines.lake.manifest import read_manifest

    named = {mark.lake: mark for mark in marks}
    if str(folder) in named:
        return named[str(folder)]
    manifest: Any = read_manifest(folder) if folder.is_dir() else None
    if manifest is not None and manifest.id in named:
        return named[manifest.id]
    # By the place alone only where no other lake is in it by now.
    there = [mark for mark in marks if mark.place == str(folder.absolute())]
    if manifest is None and len(there) == 1:
        return there[0]
    known = ", ".join(f"{place_of(mark)} ({mark.lake})" for mark in marks) or "none"
    raise Refused(f"this store keeps nothing for a lake {folder}; it knows: {known}")
