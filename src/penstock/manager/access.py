"""Who may ask a manager for what: tokens with a role and queues.

    ada:operate:*:4f2c...           one token per line, name:role:queues:token
    mailer:work:mail,reports:9b1d...

A client without a token, or with a wrong one, is answered nothing. Wrong tokens are counted, logged
and answered late; a right one never waits for them.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from penstock.app.token_text import hash_in, hash_token, read_token_file
from penstock.errors import Refused

LATE_SECONDS = 1.0  # until a wrong token is answered
_LOG_SECONDS = 60.0  # between two lines about wrong tokens
_MOST_LATE = 100  # answered late at once; more are answered at once, and no less wrong
_ENTRY = re.compile(r"(?P<name>[^:\s][^:]*):(?P<role>\w+):(?P<queues>[^:\s]+):(?P<secret>\S+)")

log = logging.getLogger("penstock.manager")


class ManagerRole(StrEnum):
    """What a client of a manager may do; each role may do what those before it may."""

    PRODUCE = "produce"  # enqueue, and read jobs
    WORK = "work"  # and run them
    OPERATE = "operate"  # and all that people do


_PRODUCE = (
    *("enqueue", "stage", "commit_write", "discard", "get", "get_many", "why", "notes", "find"),
    *("history", "flow", "flows", "outputs", "sealed_apps", "mark_sealed", "rules_version"),
)
_WORK = (
    *("claim", "settle", "renew", "note", "recover", "prune", "gauge", "count", "records"),
    *("workers", "decide_schedule", "digest_key", "reach", "slices", "scan"),
)
_OPERATE = ("act", "signal", "put", "clear", "audit")
ROLE_OF: Mapping[str, ManagerRole] = {
    **dict.fromkeys(_PRODUCE, ManagerRole.PRODUCE),
    **dict.fromkeys(_WORK, ManagerRole.WORK),
    **dict.fromkeys(_OPERATE, ManagerRole.OPERATE),
}
_ORDER = tuple(ManagerRole)


class Client(msgspec.Struct, frozen=True):
    """Whoever has a token."""

    name: str
    role: ManagerRole
    queues: frozenset[str] | None = None  # None: all

    def check(self, verb: str, needed: ManagerRole | None = None) -> None:
        """Refuse a verb that this role does not have; `needed`: for what this call asks of it."""
        needed = needed or ROLE_OF.get(verb, ManagerRole.OPERATE)
        if _ORDER.index(self.role) < _ORDER.index(needed):
            raise Refused(
                f"the token of {self.name} has the role {self.role}, and {verb} needs {needed}"
            )


EVERYBODY = Client("everybody on this machine", ManagerRole.OPERATE)


class ManagerToken(msgspec.Struct, frozen=True):
    """A token's hash, and whose it is."""

    client: Client
    hashed: bytes


def parse_manager_tokens(text: str, where: str) -> list[ManagerToken]:
    """The tokens of a file; no message quotes an entry, which has a secret."""
    tokens: list[ManagerToken] = []
    for line in (line.strip() for line in text.splitlines()):
        if not line or line.startswith("#"):
            continue
        match = _ENTRY.fullmatch(line)
        if match is None:
            raise Refused(
                f"{where}: a token is written name:role:queues:token, as mailer:work:mail:4f2c... "
                "(* for all queues)"
            )
        name, role = match["name"], match["role"]
        if role not in set(ManagerRole):
            raise Refused(
                f"{where}: {name} has the role {role!r}; there are {', '.join(ManagerRole)}"
            )
        queues = None if match["queues"] == "*" else frozenset(match["queues"].split(","))
        client = Client(name, ManagerRole(role), queues)
        tokens.append(ManagerToken(client, hash_in(match["secret"], name, where)))
    if not tokens:
        raise Refused(f"{where} has no token: write name:role:queues:token")
    return tokens


def read_manager_tokens(file: Path) -> list[ManagerToken]:
    """The tokens of a file; refused if others can read it or own it."""
    return parse_manager_tokens(read_token_file(file), str(file))


class ManagerAccess:
    """Finds out who calls, by the token in the metadata of a call."""

    def __init__(self, tokens: Iterable[ManagerToken] = ()) -> None:
        self._tokens = tuple(tokens)
        self._late = asyncio.Semaphore(_MOST_LATE)
        self._logged_at = -_LOG_SECONDS
        self._unlogged = 0
        self.wrong = 0  # tokens so far

    async def client(self, context: Any) -> Client:
        """Who calls; ends the call if nobody is known by that token."""
        if not self._tokens:
            return EVERYBODY
        metadata: dict[str, Any] = dict(context.invocation_metadata() or ())
        given = str(metadata.get("authorization", ""))
        kind, _, text = given.partition(" ")
        if kind.lower() == "bearer" and (found := self._client_of(text.strip())):
            return found
        import grpc

        codes: Any = grpc.StatusCode
        if not given:
            sentence = "it needs a token: penstock://:TOKEN@host, or ?token_file=PATH"
        else:
            sentence = "the token is not one of this manager's"
            self._count(str(context.peer()))
            if not self._late.locked():
                async with self._late:
                    await asyncio.sleep(LATE_SECONDS)
        await context.abort(codes.UNAUTHENTICATED, sentence)
        raise AssertionError  # abort raises

    def _client_of(self, text: str) -> Client | None:
        """In constant time, whether or not there is one."""
        hashed, found = hash_token(text), None
        for token in self._tokens:
            if hmac.compare_digest(token.hashed, hashed):
                found = token.client
        return found

    def _count(self, peer: str) -> None:
        self.wrong += 1
        self._unlogged += 1
        now = time.monotonic()
        if now - self._logged_at >= _LOG_SECONDS:
            log.warning(
                "wrong tokens: %d since the last such line, the last one from %s",
                self._unlogged,
                peer,
            )
            self._logged_at, self._unlogged = now, 0
