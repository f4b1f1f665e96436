"""What a URL says of a manager: its addresses, the token, the certificates.

penstock://:token@host:port,other:port?token_file=...&ca=...&cert=...&key=...&tls=yes
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, unquote

import msgspec

from penstock.app.settings import mask
from penstock.app.token_text import read_token_file
from penstock.errors import Refused

SCHEME = "penstock://"
PORT = 7450
_OPTIONS = ("token_file", "ca", "cert", "key", "tls")


class ManagerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where managers of one store are, and how to speak to them."""

    targets: tuple[str, ...]  # host:port, in the order in which they are tried
    token: str = ""
    tls: bool = False
    ca: str | None = None  # paths of PEM files
    cert: str | None = None
    key: str | None = None

    @property
    def where(self) -> str:
        return ",".join(self.targets)


def parse_address(url: str) -> ManagerAddress:
    """Read such a URL; refused without showing a token."""
    rest, _, query = url.removeprefix(SCHEME).partition("?")
    login, _, hosts = rest.rpartition("@")
    user, _, token = login.partition(":")
    if user:
        raise Refused(
            f"{SCHEME}***@{hosts}: a token goes behind a colon, {SCHEME}:TOKEN@{hosts}, or into a "
            "file, ?token_file=PATH: what stands before the colon is shown in logs"
        )
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in options.items():
        if name not in _OPTIONS or not value:
            raise Refused(f"{mask(url)}: no such option {name!r}; there are {', '.join(_OPTIONS)}")
    if "tls" in options and options["tls"] not in {"yes", "no"}:
        raise Refused(f"{mask(url)}: tls=yes or tls=no")
    if ("cert" in options) != ("key" in options):
        raise Refused(f"{mask(url)}: cert and key go together")
    token = unquote(token)
    if "token_file" in options:
        if token:
            raise Refused(f"{mask(url)}: a token and a token_file; give one of them")
        token = read_token(Path(options["token_file"]))
    secured = options.get("tls", "yes" if options.keys() & {"ca", "cert"} else "no")
    return ManagerAddress(
        targets=tuple(_target(url, host) for host in hosts.split(",")),
        token=token,
        tls=secured == "yes",
        ca=options.get("ca"),
        cert=options.get("cert"),
        key=options.get("key"),
    )


def read_token(path: Path) -> str:
    """The token in a file that nobody else may read or write."""
    token = read_token_file(path).strip()
    if not token or len(token.split()) != 1:
        raise Refused(f"the token file {path}: one token, and nothing else")
    return token


def _target(url: str, host: str) -> str:
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host, str(PORT)
    if not name or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise Refused(
            f"{mask(url)}: {host!r} is no address of a manager: write {SCHEME}host:{PORT}"
        )
    return f"{name}:{port}"
