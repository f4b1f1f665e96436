"""Serving the dashboard: a socket, its tokens, and an end that open streams do not hold up.

Whoever binds to more than this machine must have said who may come in.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import ipaddress
import os
import socket
import tempfile
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.app.private_files import private_folder
from penstock.app.settings import mask
from penstock.errors import Refused
from penstock.web.access import Token, new_token, parse_tokens, read_tokens
from penstock.web.site import Dashboard

TOKENS = "PENSTOCK_DASHBOARD_TOKENS"
MOST_PORTS = 20
_GRACE_SECONDS = 3
_MOST_CONNECTIONS = 500
PATIENCE_SECONDS = 15.0  # for a request to be said to its end


class DashboardTokens(NamedTuple):
    """The tokens of a dashboard; `text` is that of one that was made just now."""

    tokens: list[Token]
    text: str | None
    kept: Path | None  # where its hash is kept, if it is one of ours


def keys_for(store: str, author: str, *, file: Path | None, anew: bool) -> DashboardTokens:
    """The tokens that somebody said, or else the one that was made at the first start."""
    said = os.environ.get(TOKENS)
    if file is not None:
        return DashboardTokens(read_tokens(file), None, None)
    if said:
        return DashboardTokens(parse_tokens(said, TOKENS), None, None)
    kept = _state_folder() / f"dashboard-{hashlib.sha256(store.encode()).hexdigest()[:16]}.tokens"
    _make_folder(kept)
    if (kept.is_symlink() or kept.exists()) and not anew:
        try:
            return DashboardTokens(read_tokens(kept, follow=False), None, kept)
        except Refused as error:
            raise Refused(f"{error}; --new-token makes another") from error
    token, text = new_token(author)
    _keep(kept, f"# The dashboard of {mask(store)}\n{token.line}\n")
    return DashboardTokens([token], text, kept)


def _state_folder() -> Path:
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "penstock"


def _keep(file: Path, text: str) -> None:
    """Written whole or not at all, and read by nobody else, whatever lies there already."""
    try:
        passing, name = tempfile.mkstemp(dir=file.parent, prefix=file.stem)
        with os.fdopen(passing, "w", encoding="utf-8") as out:
            out.write(text)
        Path(name).replace(file)
    except OSError as error:
        raise _unkept(file, error) from error


def _make_folder(file: Path) -> None:
    """A folder that is ours alone: else somebody could put back a token that is void."""
    try:
        with private_folder(file.parent, f"name a file of tokens with --token-file or {TOKENS}"):
            pass
    except OSError as error:
        raise _unkept(file, error) from error


def _unkept(file: Path, error: OSError) -> Refused:
    return Refused(
        f"the token cannot be kept in {file} ({error.strerror}): name a file of tokens with "
        f"--token-file, or say them in {TOKENS}"
    )


def check_bind(bind: str, keys: DashboardTokens) -> None:
    """Refuse to be heard by other machines before somebody said who may come in."""
    if not is_loopback(bind) and keys.kept is not None:
        raise Refused(
            f"--bind {bind} lets other machines in: say who may, with --token-file FILE or {TOKENS}"
            ' ("ada:operate:TOKEN,bob:view:TOKEN")'
        )


def is_loopback(bind: str) -> bool:
    if bind == "localhost":
        return True
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return False


def listening(bind: str, port: int) -> socket.socket:
    """A socket on this port, or on the next one that is free."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    for wanted in range(port, port + MOST_PORTS if port else 1):
        # Said to be TCP: only then does asyncio send the parts of an answer at once, where each
        # would else wait 40 ms for a word of the browser.
        made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((bind, wanted))
            made.listen(128)  # of two that have bound it at once, one is told here
        except OSError as error:
            made.close()
            if error.errno != errno.EADDRINUSE:
                raise Refused(f"--bind {bind} --port {wanted}: {error.strerror}") from error
        except OverflowError:
            made.close()
            raise Refused(f"--port {wanted}: a port is a number up to 65535") from None
        else:
            return made
    raise Refused(f"ports {port} to {port + MOST_PORTS - 1} of {bind} are all taken: --port 0")


class _Line(H11Protocol):
    """One connection: hung up if what is asked on it is not said to its end in time.

    Else a few hundred that ask for nothing would keep everybody out, without a token.
    """

    patience = PATIENCE_SECONDS
    _hanging_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._listen_on()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._listen_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _listen_on(self) -> None:
        """Time runs from the first byte of a request to its last, whatever comes in between."""
        if self.conn.their_state not in {h11.IDLE, h11.SEND_BODY}:
            self._stop()
        elif self._hanging_up is None:
            self._hanging_up = self.loop.call_later(self.patience, self.transport.close)

    def _stop(self) -> None:
        if self._hanging_up is not None:
            self._hanging_up.cancel()
            self._hanging_up = None


class DashboardServer(uvicorn.Server):
    """Serves until Ctrl-C or SIGTERM; streams are ended first, for they would go on for ever."""

    def __init__(self, site: Dashboard, *, patience: float = PATIENCE_SECONDS) -> None:
        class Line(_Line):
            pass

        Line.patience = patience
        super().__init__(
            uvicorn.Config(
                site,
                http=Line,
                log_config=None,  # its lines go where ours go
                log_level="warning",
                access_log=False,  # an address may have a token in it
                server_header=False,
                lifespan="off",
                ws="none",
                timeout_graceful_shutdown=_GRACE_SECONDS,
                limit_concurrency=_MOST_CONNECTIONS,
            )
        )
        self._site = site

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._site.end_streams()
        super().handle_exit(sig, frame)
