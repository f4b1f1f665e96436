"""What a Redis server answers instead of doing it, translated into Penstock's own errors."""

from __future__ import annotations

from penstock.errors import MissingRight, PenstockError, StoreFull, StoreUnreachable, WrongUrl


class Unanswered(StoreUnreachable):
    """The connection broke after the command was sent: it may have been carried out."""


class Demoted(StoreUnreachable):
    """The server is no master any more, or not the one of this slot; nothing was written."""

    def __init__(self, message: str, moved_to: str = "") -> None:
        super().__init__(message)
        self.moved_to = moved_to  # host:port, of a cluster that says so


class CommandFailed(StoreUnreachable):
    """Any other error reply; `code` is its first word."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


_NOTHING = "nothing of this call was written"
# What an error reply contains, what is raised, and its sentence. The first that fits counts: 6.2
# says "-ERR Error running script (...): ... -OOM command not allowed".
_TRANSLATIONS: tuple[tuple[str, type[PenstockError], str], ...] = (
    (
        "OOM ",
        StoreFull,
        (
            f"no memory left in the store {{where}} ({{text}}); {_NOTHING}. Raise maxmemory, or let"
            " workers take what waits"
        ),
    ),
    (
        "MISCONF ",
        StoreFull,
        f"the store {{where}} cannot write to its disk ({{text}}); {_NOTHING}",
    ),
    (
        "NOREPLICAS ",
        StoreUnreachable,
        f"the store {{where}} has fewer replicas than its min-replicas-to-write; {_NOTHING}",
    ),
    ("READONLY ", Demoted, f"the store {{where}} is a replica now ({{text}}); {_NOTHING}"),
    ("MASTERDOWN ", Demoted, f"the store {{where}} is a replica without its master; {_NOTHING}"),
    ("MOVED ", Demoted, "the store {where}: its keys are on another server ({text})"),
    ("CLUSTERDOWN ", StoreUnreachable, "the store {where}: its cluster is down ({text})"),
    ("TRYAGAIN ", StoreUnreachable, "the store {where}: its slot is being moved ({text})"),
    ("LOADING ", StoreUnreachable, "the store {where} is loading its data; try again"),
    (
        "BUSY ",
        StoreUnreachable,
        f"the store {{where}} is busy with a script ({{text}}); {_NOTHING}",
    ),
    (
        "NOAUTH ",
        WrongUrl,
        (
            "the store {where} wants a password: write redis://:PASSWORD@host or give user and"
            " password in the URL"
        ),
    ),
    (
        "WRONGPASS ",
        WrongUrl,
        (
            "the store {where} refuses this login ({text}); correct the user or the password in the"
            " URL"
        ),
    ),
    (
        "NOPERM ",
        MissingRight,
        (
            "this user may not do that in the store {where} ({text}): `penstock doctor` shows the"
            " rules that it needs"
        ),
    ),
    (
        "DB index is out of range",
        WrongUrl,
        "the store {where} has no database of this number: correct the end of the URL",
    ),
)


def error_of(text: str, where: str) -> PenstockError:
    """The error that an error reply stands for."""
    for mark, kind, sentence in _TRANSLATIONS:
        if mark in text:
            message = sentence.format(where=where, text=text)
            if kind is Demoted:
                moved = text.startswith("MOVED ")
                return Demoted(message, text.rsplit(maxsplit=1)[-1] if moved else "")
            return kind(message)
    return CommandFailed(f"the store {where}: {text}", text.partition(" ")[0])
