"""Who asks: tokens, and the sessions that browsers get for one.

Of a token only its hash is kept, here and in files. A session is a random text in a cookie, known
to this process alone: it ends with it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import msgspec
from starlette.requests import Request

from penstock.app.private_files import open_regular
from penstock.errors import Refused
from penstock.operate.roles import Person, Role

SESSION_SECONDS = 12 * 3600.0
MOST_SESSIONS = 1000
TICKET_SECONDS = 60.0
SHORTEST_TOKEN = 20
_HASHED = "sha256="
_ENTRY = re.compile(r"(?P<name>[^:,\s][^:,]*):(?P<role>\w+):(?P<secret>\S+)")


Access = Callable[[Request], Person | Awaitable[Person | None] | None]


class Token(msgspec.Struct, frozen=True):
    """Lets one person in; `hashed` is the SHA-256 of its text."""

    name: str
    role: Role
    hashed: bytes

    @property
    def line(self) -> str:
        """As a token file has it."""
        return f"{self.name}:{self.role}:{_HASHED}{self.hashed.hex()}"


def new_token(name: str, role: Role = Role.ADMIN) -> tuple[Token, str]:
    """A token, and its text, which nobody can find out again."""
    text = secrets.token_urlsafe(32)
    return Token(name, role, _hash(text)), text


def parse_tokens(text: str, where: str) -> list[Token]:
    """Tokens as files and PENSTOCK_DASHBOARD_TOKENS have them: `name:role:token`, and so on.

    One per line, or between commas; instead of a token, `sha256=` and its hash.
    """
    tokens: list[Token] = []
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for entry in (part.strip() for line in lines for part in line.split(",")):
        if not entry:
            continue
        match = _ENTRY.fullmatch(entry)
        # A part of it may be a secret: what is wrong is said without showing it.
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
        raise Refused(f"{where}: there is no token in it; write name:role:token")
    return tokens


def read_tokens(file: Path, *, follow: bool = True) -> list[Token]:
    """The tokens of a file, which nobody else may read, and nobody else has written.

    `follow`: also through a link, of a file that the operator has named.
    """
    try:
        named: int | Path = file if follow else open_regular(file, os.O_RDONLY, single=True)
        with open(named, encoding="utf-8") as opened:  # noqa: PTH123  it may be a descriptor
            # Of what is open, not of what the name leads to by now.
            check_private(file, os.fstat(opened.fileno()), os.geteuid())
            text = opened.read()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{file} cannot be read: {error}") from error
    return parse_tokens(text, str(file))


def check_private(file: Path, status: os.stat_result, user: int) -> None:
    """Refuse a file that others may read, or that somebody else could have laid there."""
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
    if len(secret) < SHORTEST_TOKEN:
        raise Refused(f"{where}: the token of {name} is short: {SHORTEST_TOKEN} characters or more")
    return _hash(secret)


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class Tokens:
    """Lets in whoever has a token, or the cookie that a browser got for one."""

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
        """Whose token this is. Takes the same time whichever it is, and for none."""
        hashed, found = _hash(text), None
        for token in self._tokens:
            if hmac.compare_digest(token.hashed, hashed):
                found = Person(token.name, token.role)
        return found

    def ticket(self, token: Token) -> str:
        """A text that lets in once, and soon, in place of a token that others could see."""
        text = secrets.token_urlsafe(32)
        until = self._clock() + TICKET_SECONDS
        self._tickets[_hash(text)] = (Person(token.name, token.role), until)
        return text

    def admitted(self, text: str) -> Person | None:
        """Whom a token in an address lets in; or a ticket, which is void then."""
        person, until = self._tickets.pop(_hash(text), (None, 0.0))
        return person if until > self._clock() else self.person_with(text)

    def enter(self, person: Person) -> str:
        """A session for somebody with a token; the text is for the cookie."""
        text, now = secrets.token_urlsafe(32), self._clock()
        for session, (_, until) in list(self._sessions.items()):
            if until <= now or len(self._sessions) >= MOST_SESSIONS:
                del self._sessions[session]
        self._sessions[_hash(text)] = (person, now + SESSION_SECONDS)
        return text

    def leave(self, request: Request) -> None:
        """End the session that the request came in."""
        self._sessions.pop(_hash(request.cookies.get(cookie_name(request), "")), None)

    def _in_session(self, text: str) -> Person | None:
        # Looked up by its hash: how long that takes says nothing about the text.
        person, until = self._sessions.get(_hash(text), (None, 0.0))
        return person if until > self._clock() else None


def cookie_name(request: Request) -> str:
    """Cookies are shared between the ports of a host: two dashboards need two names."""
    host = request.headers.get("host", "")
    port = re.search(r":(\d{1,5})$", host)
    return f"penstock-{port[1]}" if port else "penstock"
