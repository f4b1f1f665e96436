"""Why an operation is refused; each class has its own HTTP status."""

from __future__ import annotations

from penstock.errors import PenstockError


class Forbidden(PenstockError):
    """The person's role does not allow it."""


class NotFound(PenstockError):
    """What was named is not stored here."""


class Conflict(PenstockError):
    """Its present state does not allow the operation."""
