"""Why an operation is not done; each is a sentence, and over HTTP a status of its own."""

from __future__ import annotations

from penstock.errors import PenstockError


class Forbidden(PenstockError):
    """The person's role does not go so far."""


class NotFound(PenstockError):
    """There is no such thing here."""


class Conflict(PenstockError):
    """It is there, but not so that this could be done to it."""
