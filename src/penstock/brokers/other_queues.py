"""What waits in the queues of another system, as `penstock import` reads it.

Reading changes nothing there. Nothing is unpickled: a body that is not JSON is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec


class OtherJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of another system; `refused` says why it cannot be one here."""

    id: str
    name: str
    queue: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    run_at: float | None = None  # None: at once
    expires_at: float | None = None
    refused: str | None = None
    place: tuple[bytes, bytes] = (b"", b"")  # its key there, and what stands for it in it


class OtherQueues(Protocol):
    """The queues of another system."""

    def parts(self) -> Iterator[list[OtherJob]]:
        """What waits, the oldest of each queue first.

        Before the next part is asked for, jobs of this one may be removed.
        """
        ...

    def remove(self, jobs: Sequence[OtherJob]) -> list[OtherJob]:
        """Take these away; returns those that somebody else had taken meanwhile."""
        ...

    def notes(self) -> list[str]:
        """What is there and is not read, in sentences."""
        ...

    def close(self) -> None: ...
