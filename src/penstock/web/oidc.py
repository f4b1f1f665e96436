"""Login at an OpenID Connect provider: the authorization code flow with PKCE.

What must be remembered between leaving for the provider and coming back is in a signed cookie of
the browser, so strangers who begin logins fill no memory here. Only the id token counts, and only
one signed with a key of the provider, for this client and this login.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, cast
from urllib.parse import quote, urlencode, urlsplit

import jwt
import msgspec

from penstock.broker.checks import legible
from penstock.operate.roles import Person, Role
from penstock.web.oidc_settings import OidcSettings, is_safe

LOGIN_SECONDS = 600.0  # at the provider
CALL_SECONDS = 10.0
_MOST_BYTES = 1024 * 1024
_LEEWAY_SECONDS = 30
# Signatures that only the provider can make: none with a secret that two sides know.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")


class NotLoggedIn(Exception):
    """The login is not valid; the sentence is for the person."""


class ProviderAway(Exception):
    """The provider does not answer, or not as one does."""


class ProviderAddresses(msgspec.Struct, frozen=True):
    """What a provider says about itself at /.well-known/openid-configuration."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str


class LoginUnderWay(msgspec.Struct, frozen=True):
    """A login that is under way, as the cookie of the browser has it."""

    state: str
    nonce: str
    verifier: str
    to: str
    until: float


class WayToProvider(NamedTuple):
    """Where the browser goes, and the cookie that it takes along."""

    address: str
    cookie: str


class OidcLogin:
    """Logins of one dashboard at one provider."""

    def __init__(self, settings: OidcSettings, *, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self.calls = 0  # of the provider that are under way; counted on the event loop
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._provider: ProviderAddresses | None = None
        self._keys: jwt.PyJWKClient | None = None

    @property
    def host(self) -> str:
        """The provider's name, for the login page."""
        return urlsplit(self.settings.issuer).hostname or self.settings.issuer

    def leave(self, back: str, to: str) -> WayToProvider:
        """Begin a login; `back` is the address to which the provider sends the browser."""
        provider, _ = self._known()
        left = LoginUnderWay(
            secrets.token_urlsafe(32),
            secrets.token_urlsafe(32),
            secrets.token_urlsafe(48),
            to,
            self._clock() + LOGIN_SECONDS,
        )
        challenge = _plain_base64(hashlib.sha256(left.verifier.encode()).digest())
        question = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": back,
            "scope": " ".join(self.settings.scopes),
            "state": left.state,
            "nonce": left.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        mark = "&" if "?" in provider.authorization_endpoint else "?"
        address = provider.authorization_endpoint + mark + urlencode(question)
        return WayToProvider(address, self._signed(left))

    def left_in(self, cookie: str, state: str) -> LoginUnderWay:
        """The login that the browser left for; refused if it is another one, or too old."""
        text, _, signature = cookie.rpartition(".")
        if not text or not hmac.compare_digest(self._signature(text), signature):
            raise NotLoggedIn("This login was not begun here: begin it again.")
        left = msgspec.json.decode(base64.urlsafe_b64decode(text), type=LoginUnderWay)
        if not hmac.compare_digest(left.state.encode(), state.encode()):
            raise NotLoggedIn("This answer belongs to another login: begin it again.")
        if left.until <= self._clock():
            raise NotLoggedIn("This login took too long: begin it again.")
        return left

    def come_back(self, left: LoginUnderWay, code: str, back: str) -> Person:
        """Exchange the code at the provider, and read who it is; blocks for the two calls."""
        provider, keys = self._known()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": back,
            "code_verifier": left.verifier,
            "client_id": self.settings.client_id,
        }
        headers = {"content-type": "application/x-www-form-urlencoded"}
        if self.settings.client_secret:
            pair = f"{quote(self.settings.client_id)}:{quote(self.settings.client_secret)}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        answer = _asked(provider.token_endpoint, urlencode(form).encode(), headers)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise NotLoggedIn("The provider gave no id token: is this client one of OpenID?")
        return self._person(self._claims(token, left, keys))

    def _claims(self, token: str, left: LoginUnderWay, keys: jwt.PyJWKClient) -> dict[str, Any]:
        try:
            claims = jwt.decode(
                token,
                keys.get_signing_key_from_jwt(token).key,
                algorithms=list(ALGORITHMS),
                audience=self.settings.client_id,
                issuer=self.settings.issuer,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except jwt.PyJWKClientConnectionError as error:
            raise ProviderAway(f"{self.host} does not give its keys: {error}") from error
        except jwt.PyJWTError as error:
            raise NotLoggedIn(f"The id token of {self.host} is not valid: {error}.") from error
        party = claims.get("azp", self.settings.client_id)
        nonce = str(claims.get("nonce", ""))
        if party != self.settings.client_id or not hmac.compare_digest(
            nonce.encode(), left.nonce.encode()
        ):
            raise NotLoggedIn(f"The id token of {self.host} is of another login.")
        return claims

    def _person(self, claims: dict[str, Any]) -> Person:
        name = self._name(claims)
        values = values_at(claims, self.settings.claim)
        role = self.settings.role_for(values)
        if role is Role.ANYBODY:
            has = ", ".join(sorted(values)) or "nothing"
            raise NotLoggedIn(
                legible(
                    f"{name} has no role here: the claim {self.settings.claim} says {has[:200]}."
                )
            )
        return Person(name, role, self.settings.only_for(values))

    def _name(self, claims: dict[str, Any]) -> str:
        """The author in the history; the subject if the claim is missing, or not verified."""
        given = claims.get(self.settings.name)
        unverified = self.settings.name == "email" and claims.get("email_verified") is False
        name = claims["sub"] if unverified or not isinstance(given, str) or not given else given
        return legible(str(name))[:100]

    def _known(self) -> tuple[ProviderAddresses, jwt.PyJWKClient]:
        with self._lock:
            if self._provider is None or self._keys is None:
                issuer = self.settings.issuer
                address = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
                try:
                    provider = msgspec.convert(_asked(address), ProviderAddresses)
                except msgspec.ValidationError as error:
                    raise ProviderAway(f"{address}: {error}") from error
                if provider.issuer != issuer:
                    raise ProviderAway(f"{address} is that of {provider.issuer!r}, not {issuer!r}")
                for endpoint in (
                    provider.authorization_endpoint,
                    provider.token_endpoint,
                    provider.jwks_uri,
                ):
                    if not is_safe(endpoint):
                        raise ProviderAway(f"{address} names {endpoint!r}, which is not https")
                self._provider = provider
                self._keys = jwt.PyJWKClient(provider.jwks_uri, timeout=int(CALL_SECONDS))
            return self._provider, self._keys

    def _signed(self, left: LoginUnderWay) -> str:
        text = base64.urlsafe_b64encode(msgspec.json.encode(left)).decode()
        return f"{text}.{self._signature(text)}"

    def _signature(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


def values_at(claims: dict[str, Any], path: str) -> Collection[str]:
    """The texts of a claim; `realm_access.roles` goes into objects, unless it is a name itself."""
    value: Any = claims.get(path)
    if value is None:
        value = claims
        for name in path.split("."):
            value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    if isinstance(value, str):
        return {value}
    if isinstance(value, list):
        return {each for each in cast("list[Any]", value) if isinstance(each, str)}
    return set()


def _asked(
    address: str, form: bytes | None = None, headers: dict[str, str] | None = None
) -> dict[str, Any]:
    """The JSON object that the provider answers with."""
    request = urllib.request.Request(  # noqa: S310  is_safe has looked at the address
        address, form, {"accept": "application/json", **(headers or {})}
    )
    where = urlsplit(address).netloc
    try:
        with _OPENER.open(request, timeout=CALL_SECONDS) as answer:
            found: Any = json.loads(answer.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        error.close()
        if form is not None and error.code in {400, 401}:
            raise NotLoggedIn(
                f"{where} refuses this login ({error.code}): begin it again."
            ) from None
        raise ProviderAway(f"{where} answers with {error.code}") from None
    except (OSError, ValueError) as error:
        raise ProviderAway(f"{where} does not answer: {error}") from error
    if not isinstance(found, dict):
        raise ProviderAway(f"{where} does not answer with a JSON object")
    return cast("dict[str, Any]", found)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect could lead a secret elsewhere: it is an error."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        del args, kwargs


_OPENER = urllib.request.build_opener(_NoRedirects)


def _plain_base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
