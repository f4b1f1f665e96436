"""Tokens, and the sessions that browsers get for one.

Only the hash of a token is kept, in memory and in files. A session is a random text in a cookie,
known to this process alone: it ends with the process.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request

from penstock.app.token_text import HASHED, hash_in, hash_token, read_token_file
from penstock.errors import Refused
from penstock.operate.access_list import AccessList, parse_access_list
from penstock.operate.roles import Person, Role

if TYPE_CHECKING:
    from penstock.web.oidc import OidcLogin

SESSION_SECONDS = 12 * 3600.0
MOST_SESSIONS = 20  # of one person: more end that person's oldest, and nobody else's
TICKET_SECONDS = 60.0
_ENTRY = re.compile(
    r"(?P<name>[^:,\s][^:,]*):(?P<role>\w+):(?:(?P<only>\w+=[^:\s]*):)?(?P<secret>\S+)"
)


Access = Callable[[Request], Person | Awaitable[Person | None] | None]


class Token(msgspec.Struct, frozen=True):
    """A person's token; `hashed` is the SHA-256 of its text."""

    name: str
    role: Role
    hashed: bytes
    only: AccessList | None = None

    @property
    def line(self) -> str:
        """The token as a line of a token file."""
        only = "" if self.only is None else f"{self.only.words}:"
        return f"{self.name}:{self.role}:{only}{HASHED}{self.hashed.hex()}"

    @property
    def person(self) -> Person:
        return Person(self.name, self.role, self.only)


def new_token(name: str, role: Role = Role.ADMIN) -> tuple[Token, str]:
    """A new token and its text, which is not kept anywhere."""
    text = secrets.token_urlsafe(32)
    return Token(name, role, hash_token(text)), text


def parse_tokens(text: str, where: str) -> list[Token]:
    """Tokens of a file or of PENSTOCK_DASHBOARD_TOKENS: `name:role:token`, one per line or comma.

    In place of the token's text there may be `sha256=` and its hash. Before it there may be an
    access list: `ada:operate:queue=mail&queue=letters:4f2c...`.
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
        name, only = match["name"], match["only"]
        if only is None and match["secret"].startswith(("queue=", "app=")):
            raise Refused(f"{where}: {name} has an access list and no token after it")
        listed = None if only is None else parse_access_list(only, f"{where}: {name}")
        tokens.append(Token(name, role, hash_in(match["secret"], name, where), listed))
    if not tokens:
        raise Refused(f"{where} has no token: write name:role:token")
    return tokens


def read_tokens(file: Path, *, follow: bool = True) -> list[Token]:
    """The tokens of a file; refused if others can read it or own it.

    `follow`: allow a symbolic link, for a file that the operator named.
    """
    text = read_token_file(file, follow=follow)
    return parse_tokens(text, str(file))


class Tokens:
    """Access by token, or by the session cookie that a browser got for one or at a provider."""

    def __init__(
        self,
        tokens: Iterable[Token],
        *,
        oidc: OidcLogin | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.oidc = oidc  # beside tokens
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
        hashed, found = hash_token(text), None
        for token in self._tokens:
            if hmac.compare_digest(token.hashed, hashed):
                found = token.person
        return found

    def ticket(self, token: Token) -> str:
        """A one-time text, valid for a minute, to put into an address in place of the token."""
        text = secrets.token_urlsafe(32)
        until = self._clock() + TICKET_SECONDS
        self._tickets[hash_token(text)] = (token.person, until)
        return text

    def person_with_ticket_or_token(self, text: str, *, use: bool = True) -> Person | None:
        """The person with this token, or with this ticket, which is void once it is used."""
        person, until = self._tickets.get(hash_token(text), (None, 0.0))
        if use:
            self._tickets.pop(hash_token(text), None)
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
        self._sessions[hash_token(text)] = (person, now + SESSION_SECONDS)
        return text

    def end_session(self, request: Request) -> None:
        """End the session of this request."""
        self._sessions.pop(hash_token(request.cookies.get(cookie_name(request), "")), None)

    def _in_session(self, text: str) -> Person | None:
        # Looked up by its hash: how long that takes says nothing about the text.
        person, until = self._sessions.get(hash_token(text), (None, 0.0))
        return person if until > self._clock() else None


def cookie_name(request: Request) -> str:
    """The cookie's name; with the port, since the ports of a host share their cookies."""
    host = request.headers.get("host", "")
    port = re.search(r":(\d{1,5})$", host)
    return f"penstock-{port[1]}" if port else "penstock"
