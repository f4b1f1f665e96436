"""Serving the dashboard: its socket, its tokens, and a shutdown that open streams do not delay.

Binding to an address that other machines reach needs tokens that somebody configured, and TLS.
"""

from __future__ import annotations

import errno
import hashlib
import ipaddress
import os
import socket
import ssl
import tempfile
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import uvicorn

from penstock.app.private_files import private_folder
from penstock.app.settings import mask
from penstock.errors import Refused
from penstock.web.access import Token, new_token, parse_tokens, read_tokens
from penstock.web.connection import (
    READ_SECONDS,
    REQUEST_SECONDS,
    Connections,
    TimedConnection,
    most_connections,
)
from penstock.web.site import Dashboard

TOKENS = "PENSTOCK_DASHBOARD_TOKENS"
MOST_PORTS = 20
_GRACE_SECONDS = 3
_ENDING = 50  # connections


class DashboardTokens(NamedTuple):
    """The tokens of a dashboard; `text` is that of a token made just now."""

    tokens: list[Token]
    text: str | None
    kept: Path | None  # the file with its hash, if Penstock made the token


def load_or_make_tokens(
    store: str, author: str, *, file: Path | None, anew: bool
) -> DashboardTokens:
    """The configured tokens, or else the one that the first start made."""
    configured = os.environ.get(TOKENS)
    if file is not None:
        return DashboardTokens(read_tokens(file), None, None)
    if configured:
        return DashboardTokens(parse_tokens(configured, TOKENS), None, None)
    kept = _state_folder() / f"dashboard-{hashlib.sha256(store.encode()).hexdigest()[:16]}.tokens"
    _make_folder(kept)
    if (kept.is_symlink() or kept.exists()) and not anew:
        try:
            return DashboardTokens(read_tokens(kept, follow=False), None, kept)
        except Refused as error:
            raise Refused(f"{error}; --new-token makes another") from error
    token, text = new_token(author)
    _write_tokens(kept, f"# The dashboard of {mask(store)}\n{token.line}\n")
    return DashboardTokens([token], text, kept)


def _state_folder() -> Path:
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "penstock"


def _write_tokens(file: Path, text: str) -> None:
    """Replace the file atomically; only its owner can read it."""
    try:
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=file.stem)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
        Path(name).replace(file)
    except OSError as error:
        raise _cannot_keep(file, error) from error


def _make_folder(file: Path) -> None:
    """Make the private folder: in a shared one others could put back a void token."""
    try:
        with private_folder(file.parent, f"name a file of tokens with --token-file or {TOKENS}"):
            pass
    except OSError as error:
        raise _cannot_keep(file, error) from error


def _cannot_keep(file: Path, error: OSError) -> Refused:
    return Refused(
        f"the token cannot be kept in {file} ({error.strerror}): name a file of tokens with "
        f"--token-file, or set {TOKENS}"
    )


class Tls(NamedTuple):
    """The files of a certificate chain and of its key, in PEM."""

    certificate: Path
    key: Path


def check_bind(
    bind: str,
    keys: DashboardTokens,
    *,
    tls: Tls | None = None,
    plain_http: bool = False,
    oidc: bool = False,
) -> None:
    """Refuse to listen for other machines without configured tokens, or without TLS."""
    if is_loopback(bind):
        return
    if keys.kept is not None and not oidc:
        raise Refused(
            f"--bind {bind} lets other machines connect: set tokens with --token-file or {TOKENS}"
            ' ("ada:operate:TOKEN,bob:view:TOKEN")'
        )
    if tls is None and not plain_http:
        raise Refused(
            f"--bind {bind} lets other machines connect, and plain HTTP shows tokens and jobs to "
            "the network: give --tls-certificate and --tls-key, or bind to loopback behind a proxy "
            "with TLS; --plain-http allows it if only such a proxy can connect"
        )


def load_tls(certificate: Path | None, key: Path | None) -> Tls | None:
    """The files for TLS; refused if one is missing, or they do not fit together."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise Refused("--tls-certificate and --tls-key go together: give both files")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            certificate, key, password=_no_password
        )
    except (OSError, ValueError) as error:
        raise Refused(f"--tls-certificate {certificate} --tls-key {key}: {error}") from error
    return Tls(certificate, key)


def _no_password() -> str:
    raise Refused("--tls-key: the key has a password; give one without")


def is_loopback(bind: str) -> bool:
    if bind == "localhost":
        return True
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return False


def listen(bind: str, port: int) -> socket.socket:
    """A listening socket on this port, or on the next free one."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    for wanted in range(port, port + MOST_PORTS if port else 1):
        # With IPPROTO_TCP asyncio sets TCP_NODELAY; else each part of an answer waits 40 ms.
        made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((bind, wanted))
            made.listen(128)  # two sockets may bind at once: the second fails here
        except OSError as error:
            made.close()
            if error.errno != errno.EADDRINUSE:
                raise Refused(f"--bind {bind} --port {wanted}: {error.strerror}") from error
        except OverflowError:
            made.close()
            raise Refused(f"--port {wanted}: a port is a number up to 65535") from None
        else:
            return made
    raise Refused(
        f"ports {port} to {port + MOST_PORTS - 1} of {bind} are in use: --port 0 takes any free one"
    )


class DashboardServer(uvicorn.Server):
    """Serves until Ctrl-C or SIGTERM; ends the endless streams first."""

    def __init__(
        self,
        site: Dashboard,
        *,
        request_seconds: float = REQUEST_SECONDS,
        read_seconds: float = READ_SECONDS,
        connections: int | None = None,
        tls: Tls | None = None,
    ) -> None:
        most = connections or most_connections()

        class Connection(TimedConnection):
            others = Connections(most)

        Connection.request_seconds = request_seconds
        Connection.read_seconds = read_seconds
        super().__init__(
            uvicorn.Config(
                site,
                http=Connection,
                log_config=None,  # its lines go to our log
                log_level="warning",
                access_log=False,  # an address may contain a token
                server_header=False,
                lifespan="off",
                ws="none",
                timeout_graceful_shutdown=_GRACE_SECONDS,
                # More than `Connections` lets in, with those that it has cut and that still end.
                limit_concurrency=most + _ENDING,
                ssl_certfile=None if tls is None else tls.certificate,
                ssl_keyfile=None if tls is None else str(tls.key),
            )
        )
        self._site = site

    def stop(self) -> None:
        """End it from another thread."""
        self._site.end_streams()
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._site.end_streams()
        super().handle_exit(sig, frame)
