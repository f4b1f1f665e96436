"""A small OpenID Connect provider on loopback, which can also lie."""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.web.conftest import serving

CLIENT, SECRET = "penstock", "between-the-two"
KEY_ID = "k1"


class Provider:
    """Whoever comes is let in as `claims`, at once; `lie` changes the claims that are signed."""

    def __init__(self) -> None:
        self.issuer = ""
        self.claims: dict[str, Any] = {"sub": "0042", "email": "otto@example.org", "groups": []}
        self.lie: dict[str, Any] = {}
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.signs_with: Any = self.key
        self.algorithm = "ES256"
        self.refusal = ""
        self.document: dict[str, Any] = {}
        self.questions: list[dict[str, str]] = []
        self._codes: dict[str, dict[str, str]] = {}

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._describe),
                Route("/keys", self._keys),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
            ]
        )

    def _describe(self, _: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                **self.document,
            }
        )

    def _keys(self, _: Request) -> Response:
        public = jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return JSONResponse({"keys": [{**public, "kid": KEY_ID, "use": "sig", "alg": "ES256"}]})

    def _authorize(self, request: Request) -> Response:
        question = dict(request.query_params)
        self.questions.append(question)
        answer = {"state": question["state"]}
        if self.refusal:
            answer["error"] = self.refusal
        else:
            answer["code"] = secrets.token_urlsafe(16)
            self._codes[answer["code"]] = question
        return RedirectResponse(f"{question['redirect_uri']}?{urlencode(answer)}", 303)

    async def _token(self, request: Request) -> Response:
        form = {
            name: values[0] for name, values in parse_qs((await request.body()).decode()).items()
        }
        pair = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        question = self._codes.pop(form["code"], None)  # a code is good for one time
        challenge = hashlib.sha256(form["code_verifier"].encode()).digest()
        if (
            question is None
            or request.headers.get("authorization") != f"Basic {pair}"
            or question["redirect_uri"] != form["redirect_uri"]
            or question["code_challenge"]
            != base64.urlsafe_b64encode(challenge).rstrip(b"=").decode()
        ):
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": question["nonce"],
            **self.claims,
            **self.lie,
        }
        claims = {name: value for name, value in claims.items() if value is not None}
        if self.algorithm == "HS256":
            # The public key as the secret: the old mistake, which PyJWT does not sign.
            token = _hmac_signed(claims, msgspec.json.encode(self._public()))
        else:
            token = jwt.encode(
                claims, self.signs_with, algorithm=self.algorithm, headers={"kid": KEY_ID}
            )
        return JSONResponse({"id_token": token, "access_token": "x", "token_type": "Bearer"})

    def _public(self) -> dict[str, Any]:
        return jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True)


def _hmac_signed(claims: dict[str, Any], secret: bytes) -> str:
    import hmac

    def plain(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    head = plain(msgspec.json.encode({"alg": "HS256", "typ": "JWT", "kid": KEY_ID}))
    text = f"{head}.{plain(msgspec.json.encode(claims))}"
    return f"{text}.{plain(hmac.new(secret, text.encode(), hashlib.sha256).digest())}"


@contextmanager
def provider() -> Iterator[Provider]:
    made = Provider()
    with serving(made.app()) as address:
        made.issuer = address
        yield made
