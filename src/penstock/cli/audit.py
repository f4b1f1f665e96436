"""penstock history --audit: who did what, as the dashboard's Audit page shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.operate.audit import Deed, audit_query, deed_json, read_audit
from penstock.operate.audit_text import told_of
from penstock.operate.why import moment

if TYPE_CHECKING:
    import rich.text

    from penstock.broker.position import Position
    from penstock.broker.protocol import Broker

Asked = tuple[list[str], str, str | None, str | None]  # kinds, author, since, until


def put_audit(
    broker: Broker, asked: Asked, before: Position | None, limit: int, *, json: bool
) -> None:
    """Deeds, newest first; and how to go on, if there is more."""
    from penstock.cli import output

    wanted = audit_query(*asked, broker.clock.now())
    left, count = limit, 0
    while left:
        found = read_audit(broker, wanted, before, left)
        for deed in found.deeds:
            if json:
                output.put_json(deed_json(deed))
            else:
                output.console().print(_line(deed), soft_wrap=True)
        left, count = left - len(found.deeds), count + len(found.deeds)
        if (before := found.before) is None:
            break
    if not json and before is not None:
        output.aside(f"there is more: --before {before}")
    elif not json and not count:
        output.aside("nobody did anything of that kind")


def _line(deed: Deed) -> rich.text.Text:
    import rich.text

    line = rich.text.Text(f"{moment(deed.at)}  ", "dim")
    line.append(deed.author or "a program", "bold")
    line.append(f"  {told_of(deed)}")
    if deed.reason:
        line.append(f"  {deed.reason}", "italic")
    return line
