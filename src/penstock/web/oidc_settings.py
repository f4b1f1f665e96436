"""The table [dashboard.oidc] of penstock.toml: which provider, and which claim gives which role.

[dashboard.oidc]
issuer = "https://login.example.org/realms/shop"
client_id = "penstock"
client_secret_file = "/run/secrets/oidc"   # none: a public client
claim = "groups"
roles = { view = ["staff"], operate = ["support"], admin = ["sre"] }
only = { support = "queue=mail&queue=letters" }   # who has this value sees nothing else
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from penstock.app.token_text import read_token_file
from penstock.errors import Refused
from penstock.operate.access_list import AccessList, joined, parse_access_list
from penstock.operate.roles import Role

_ROLES = {str(role): role for role in Role if role is not Role.ANYBODY}
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    issuer: str
    client_id: str
    roles: dict[str, list[str]]
    client_secret_file: str | None = None
    claim: str = "groups"
    name: str = "email"
    scopes: list[str] = msgspec.field(default_factory=lambda: ["openid", "profile", "email"])
    address: str = ""
    only: dict[str, str] = {}


class OidcSettings(msgspec.Struct, frozen=True):
    """A provider, this client there, and who has which role."""

    issuer: str
    client_id: str
    client_secret: str
    claim: str
    name: str  # the claim that is the author in the history
    scopes: tuple[str, ...]
    address: str  # of the dashboard, if a proxy is before it; empty: as the browser asks for it
    roles: Mapping[Role, frozenset[str]]
    only: Mapping[str, AccessList] = {}  # by the value of the claim

    def role_for(self, values: Collection[str]) -> Role:
        """The highest role that one of these values gives; `ANYBODY` if none does."""
        return max(
            (role for role, given in self.roles.items() if given & set(values)),
            default=Role.ANYBODY,
        )

    def only_for(self, values: Collection[str]) -> AccessList | None:
        """What the lists of these values show, all together; None if none has a list."""
        lists = [self.only[value] for value in values if value in self.only]
        return joined(lists) if lists else None


def parse_oidc(table: Mapping[str, Any] | None, file: Path | None) -> OidcSettings | None:
    """The settings; None without a table."""
    if not table:
        return None
    where = f"{file}: [dashboard.oidc]"
    try:
        given = msgspec.convert(table, _Table)
    except msgspec.ValidationError as error:
        raise Refused(f"{where}: {error}") from error
    for what, address in (("issuer", given.issuer), ("address", given.address)):
        if address and not is_safe(address):
            raise Refused(f"{where}: {what} = {address!r} is not an https:// address")
    unknown = sorted(set(given.roles) - set(_ROLES))
    if unknown or not any(given.roles.values()):
        named = f"{unknown[0]!r} is no role" if unknown else "no value of the claim gives a role"
        raise Refused(f'{where}: {named}: write roles = {{ view = ["staff"], admin = ["sre"] }}')
    if "openid" not in given.scopes:
        raise Refused(f'{where}: scopes = {given.scopes!r} lacks "openid"')
    only = {value: parse_access_list(text, where) for value, text in given.only.items()}
    if len({(each.queues is None, each.apps is None) for each in only.values()}) > 1:
        raise Refused(f"{where}: the lists of `only` all name queues, or all name apps")
    if any(None not in {each.queues, each.apps} for each in only.values()):
        raise Refused(f"{where}: a list of `only` names queues, or apps, not both")
    secret = ""
    if given.client_secret_file is not None:
        path = (file.parent if file is not None else Path()) / given.client_secret_file
        secret = read_token_file(path).strip()
    return OidcSettings(
        given.issuer,
        given.client_id,
        secret,
        given.claim,
        given.name,
        tuple(given.scopes),
        given.address.rstrip("/"),
        {_ROLES[role]: frozenset(values) for role, values in given.roles.items()},
        only,
    )


def is_safe(address: str) -> bool:
    """Whether nobody in between can read or change it: https, or this machine."""
    parts = urlsplit(address)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
