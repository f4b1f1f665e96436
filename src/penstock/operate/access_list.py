"""Access lists: the queues and the apps that a person may see and change, and no others.

queue=mail&queue=letters        written as in the query of an address
app=shop&queue=mail             both: the queue mail of the app shop
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import parse_qsl, urlencode

import msgspec

from penstock.errors import Refused


class AccessList(msgspec.Struct, frozen=True):
    """What a person may see; None: that is not limited. Empty: nothing at all."""

    queues: frozenset[str] | None = None
    apps: frozenset[str] | None = None

    def sees(self, app: str | None, queue: str | None) -> bool:
        """Whether something of this app and queue is shown; None: of none, or of several."""
        return (self.queues is None or queue in self.queues) and (
            self.apps is None or app in self.apps
        )

    @property
    def words(self) -> str:
        """The list as it is written."""
        named = (("app", self.apps), ("queue", self.queues))
        return urlencode([(name, each) for name, given in named for each in sorted(given or ())])


def parse_access_list(text: str, where: str) -> AccessList:
    """A list as it is written; refused if it names nothing, or something else."""
    pairs = parse_qsl(text, keep_blank_values=True)
    if not pairs or any(name not in {"queue", "app"} for name, _ in pairs):
        raise Refused(f"{where}: an access list is written queue=mail&queue=letters&app=shop")
    given: dict[str, frozenset[str]] = {}
    for name, value in pairs:
        given[name] = given.get(name, frozenset()) | {value}
    return AccessList(given.get("queue"), given.get("app"))


def joined(lists: Sequence[AccessList]) -> AccessList:
    """What any of these lists shows, which all name queues alone, or all name apps alone."""
    queues = [each.queues for each in lists if each.queues is not None]
    apps = [each.apps for each in lists if each.apps is not None]
    return AccessList(
        frozenset[str]().union(*queues) if queues else None,
        frozenset[str]().union(*apps) if apps else None,
    )
