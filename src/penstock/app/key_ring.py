"""Key ring: the keys that payloads are encrypted with, the newest first.

AES-256-GCM of the package `cryptography` (extra `encryption`). A sealed value is a JSON object with
one field, `{"$sealed": "KEY.SCOPE.TEXT"}`: which key, what it is bound to, and nonce and ciphertext
in base64. It is bound to its job and its place there, so that who can write to the store cannot put
one job's value into another.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec

from penstock.errors import Refused

SEALED = b'{"$sealed":"'
_KEY_BYTES, _NONCE_BYTES = 32, 12
Scope = Literal["j", "a"]  # bound to one job; or to no job, for what the store itself copies


class KeyUnknown(Refused):
    """A value was sealed with a key that is not in the ring."""


class _Sealed(msgspec.Struct, forbid_unknown_fields=True):
    token: str = msgspec.field(name="$sealed")


class KeyRing:
    """The keys of an app: the first one encrypts, all of them decrypt.

    A key is a text made by `KeyRing.new_key()`, or 32 bytes. To rotate: put the new key behind the
    present one in every program, then in front, and take the old one out when nothing that it
    encrypted is kept any more.
    """

    def __init__(self, *keys: str | bytes) -> None:
        if not keys:
            raise Refused("KeyRing(): give at least one key; KeyRing.new_key() makes one")
        raw = [_key_bytes(key) for key in keys]
        self._ciphers = {hashlib.sha256(key).hexdigest()[:8]: _cipher(key) for key in raw}
        self._current = next(iter(self._ciphers))

    def __repr__(self) -> str:
        return f"<key ring {', '.join(self._ciphers)}>"  # short hashes, not keys

    @staticmethod
    def new_key() -> str:
        """A new random key, as text."""
        return base64.urlsafe_b64encode(os.urandom(_KEY_BYTES)).decode()

    @property
    def names(self) -> Sequence[str]:
        """Short hashes that name the keys, the one that encrypts first."""
        return [*self._ciphers]

    def seal(self, value: bytes, place: str, job: str | None) -> bytes:
        """The JSON value, encrypted, as JSON; `job` None: bound to no job."""
        if value.startswith(SEALED):
            return value  # sent again: it was sealed by the first call
        scope: Scope = "a" if job is None else "j"
        nonce = os.urandom(_NONCE_BYTES)
        box = self._ciphers[self._current].encrypt(nonce, value, _bound_to(place, job))
        text = base64.b64encode(nonce + box).decode()
        return msgspec.json.encode(_Sealed(f"{self._current}.{scope}.{text}"))

    def open(self, value: bytes, place: str, job: str | None) -> bytes:
        """The JSON value that `seal` was given; what is not sealed is returned as it is.

        `KeyUnknown` if the ring does not have its key; `Refused` if it was changed or moved.
        """
        if not value.startswith(SEALED):
            return value
        try:
            name, scope, text = msgspec.json.decode(value, type=_Sealed).token.split(".")
            box = base64.b64decode(text, validate=True)
        except (ValueError, msgspec.DecodeError):
            return value  # a value of the user's own that looks alike
        if name not in self._ciphers:
            raise KeyUnknown(f"{place} is encrypted with the key {name}, which is not in the ring")
        from cryptography.exceptions import InvalidTag

        bound = _bound_to(place, None if scope == "a" else job)
        try:
            return self._ciphers[name].decrypt(box[:_NONCE_BYTES], box[_NONCE_BYTES:], bound)
        except (InvalidTag, ValueError):
            raise Refused(
                f"{place}: its encrypted value was changed, or is another job's"
            ) from None


def _bound_to(place: str, job: str | None) -> bytes:
    return f"penstock {place} {job or ''}".encode()


def _key_bytes(key: str | bytes) -> bytes:
    try:
        raw = base64.urlsafe_b64decode(key) if isinstance(key, str) else key
    except ValueError:
        raw = b""
    if len(raw) != _KEY_BYTES:
        raise Refused("KeyRing: a key is 32 bytes, or a text made by KeyRing.new_key()")
    return raw


def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise Refused(
            "a key ring needs the package cryptography: pip install 'penstock-queue[encryption]'"
        ) from None
    return cast("Any", AESGCM(key))
