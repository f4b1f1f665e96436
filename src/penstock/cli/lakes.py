"""pipeline lakes and forget: the lakes for which a store keeps history."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def forget_lake(broker: Broker, folder: Path, reason: str, *, json: bool) -> None:
    """Stop keeping history for a lake, named by its folder (even if it is gone) or its id."""
    from penstock.cli import output
    from penstock.cli.options import person
    from penstock.operate.actions import Actions

    mark = _find_mark(broker.records(Mark), folder)
    Actions(broker, person()).forget_lake(mark.lake, reason)
    if json:
        output.print_json({"lake": mark.lake, "place": mark.place})
    else:
        output.print_text(
            f"the store keeps no more history for the lake {place_of(mark)}; its files stay"
        )


def _find_mark(marks: Sequence[Mark], folder: Path) -> Mark:
    from penstock.spark.pipelines.lake.manifest import read_manifest

    named = {mark.lake: mark for mark in marks}
    if str(folder) in named:
        return named[str(folder)]
    manifest: Any = read_manifest(folder) if folder.is_dir() else None
    if manifest is not None and manifest.id in named:
        return named[manifest.id]
    # By folder only if no other lake is in it now.
    in_folder = [mark for mark in marks if mark.place == str(folder.absolute())]
    if manifest is None and len(in_folder) == 1:
        return in_folder[0]
    known = ", ".join(f"{place_of(mark)} ({mark.lake})" for mark in marks) or "none"
    raise Refused(f"this store keeps no history for a lake {folder}; its lakes are: {known}")
