"""Tokens, and the sessions that browsers get for one.

Only the hash of a token is kept, in memory and in files. A session is a random text in a cookie,
known to this process alone: it ends with the process.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import msgspec
from starlette.requests import Request

from penstock.app.private_files import open_regular
from penstock.errors import Refused
from penstock.operate.roles import Person, Role

SESSION_SECONDS = 12 * 3600.0
MOST_SESSIONS = 20  # of one person: more end that person's oldest, and nobody else's
TICKET_SECONDS = 60.0
SHORTEST_TOKEN = 32
_LEAST_BITS = 90.0
_HASHED = "sha256="
_ENTRY = re.compile(r"(?P<name>[^:,\s][^:,]*):(?P<role>\w+):(?P<secret>\S+)")


Access = Callable[[Request], Person | Awaitable[Person | None] | None]


class Token(msgspec.Struct, frozen=True):
    """A person's token; `hashed` is the SHA-256 of its text."""

    name: str
    role: Role
    hashed: bytes

    @property
    def line(self) -> str:
        """The token as a line of a token file."""
        return f"{self.name}:{self.role}:{_HASHED}{self.hashed.hex()}"


def new_token(name: str, role: Role = Role.ADMIN) -> tuple[Token, str]:
    """A new token and its text, which is not kept anywhere."""
    text = secrets.token_urlsafe(32)
    return Token(name, role, _hash(text)), text


def parse_tokens(text: str, where: str) -> list[Token]:
    """Tokens of a file or of PENSTOCK_DASHBOARD_TOKENS: `name:role:token`, one per line or comma.

    In place of the token's text there may be `sha256=` and its hash.
    """
    tokens: list[Token] = []
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for entry in (part.strip() for line in lines for part in line.split(",")):
        if not entry:
            continue
        match = _ENTRY.fullmatch(entry)
        # A part of the entry may be a secret: the message does not quote it.
        if match is None:
            raise Refused(f"{where}: a token is written name:role:token, as ada:operate:4f2c...")
        role = Role.__members__.get(match["role"].upper(), Role.ANYBODY)
        if role is Role.ANYBODY:
            raise Refused(
                f"{where}: {match['name']} has the role {match['role']!r}; there are view, operate "
                "and admin"
            )
        tokens.append(Token(match["name"], role, _hash_in(match["secret"], match["name"], where)))
    if not tokens:
        raise Refused(f"{where} has no token: write name:role:token")
    return tokens


def read_tokens(file: Path, *, follow: bool = True) -> list[Token]:
    """The tokens of a file; refused if others can read it or own it.

    `follow`: allow a symbolic link, for a file that the operator named.
    """
    try:
        named: int | Path = file if follow else open_regular(file, os.O_RDONLY, single=True)
        with open(named, encoding="utf-8") as opened:  # noqa: PTH123  it may be a descriptor
            # Of the open file: the name may lead to another one by now.
            check_private(file, os.fstat(opened.fileno()), os.geteuid())
            text = opened.read()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{file} cannot be read: {error}") from error
    return parse_tokens(text, str(file))


def check_private(file: Path, status: os.stat_result, user: int) -> None:
    """Refuse a file that others can read, or that another user owns."""
    if status.st_mode & 0o077:
        raise Refused(f"{file} can be read by others: chmod 600 {file}")
    if status.st_uid not in {user, 0}:
        raise Refused(
            f"{file} belongs to the user {status.st_uid}, who could let anybody in: remove it, or "
            "name a file of your own with --token-file"
        )


def _hash_in(secret: str, name: str, where: str) -> bytes:
    if secret.startswith(_HASHED):
        try:
            hashed = bytes.fromhex(secret.removeprefix(_HASHED))
        except ValueError:
            hashed = b""
        if len(hashed) != 32:
            raise Refused(f"{where}: {name}: sha256= is followed by 64 hexadecimal digits")
        return hashed
    check_strength(secret, f"{where}: the token of {name}")
    return _hash(secret)


def check_strength(token: str, what: str) -> None:
    """Refuse a token that could be guessed: one that is short, or in which little changes.

    A sentence of words passes, and so does the hash of a weak token: nobody can tell those from
    strong ones. `new_token` has 256 random bits.
    """
    counts = Counter(token)
    each = -sum(n / len(token) * math.log2(n / len(token)) for n in counts.values())
    # A text that was written several times is as strong as once.
    period = (token + token).find(token, 1)
    if len(token) < SHORTEST_TOKEN or each * period < _LEAST_BITS:
        raise Refused(
            f"{what} is weak: take {SHORTEST_TOKEN} random characters or more, as `openssl rand "
            "-hex 32` prints"
        )


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class Tokens:
    """Access by token, or by the session cookie that a browser got for one."""

    def __init__(
        self, tokens: Iterable[Token], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tokens = tuple(tokens)
        self._clock = clock
        self._sessions: dict[bytes, tuple[Person, float]] = {}
        self._tickets: dict[bytes, tuple[Person, float]] = {}

    def __call__(self, request: Request) -> Person | None:
        given = request.headers.get("authorization")
        if given is not None:
            kind, _, text = given.partition(" ")
            return self.person_with(text.strip()) if kind.lower() == "bearer" else None
        session = request.cookies.get(cookie_name(request))
        return None if session is None else self._in_session(session)

    def person_with(self, text: str) -> Person | None:
        """The person with this token; in constant time, whether or not there is one."""
        hashed, found = _hash(text), None
        for token in self._tokens:
            if hmac.compare_digest(token.hashed, hashed):
                found = Person(token.name, token.role)
        return found

    def ticket(self, token: Token) -> str:
        """A one-time text, valid for a minute, to put into an address in place of the token."""
        text = secrets.token_urlsafe(32)
        until = self._clock() + TICKET_SECONDS
        self._tickets[_hash(text)] = (Person(token.name, token.role), until)
        return text

    def person_with_ticket_or_token(self, text: str, *, use: bool = True) -> Person | None:
        """The person with this token, or with this ticket, which is void once it is used."""
        person, until = self._tickets.get(_hash(text), (None, 0.0))
        if use:
            self._tickets.pop(_hash(text), None)
        return person if until > self._clock() else self.person_with(text)

    def start_session(self, person: Person) -> str:
        """Start a session; the text is for the cookie."""
        text, now = secrets.token_urlsafe(32), self._clock()
        for session, (_, until) in list(self._sessions.items()):
            if until <= now:
                del self._sessions[session]
        own = [session for session, (who, _) in self._sessions.items() if who.name == person.name]
        for session in own[: max(0, len(own) - MOST_SESSIONS + 1)]:
            del self._sessions[session]
        self._sessions[_hash(text)] = (person, now + SESSION_SECONDS)
        return text

    def end_session(self, request: Request) -> None:
        """End the session of this request."""
        self._sessions.pop(_hash(request.cookies.get(cookie_name(request), "")), None)

    def _in_session(self, text: str) -> Person | None:
        # Looked up by its hash: how long that takes says nothing about the text.
        person, until = self._sessions.get(_hash(text), (None, 0.0))
        return person if until > self._clock() else None


def cookie_name(request: Request) -> str:
    """The cookie's name; with the port, since the ports of a host share their cookies."""
    host = request.headers.get("host", "")
    port = re.search(r":(\d{1,5})$", host)
    return f"penstock-{port[1]}" if port else "penstock"
