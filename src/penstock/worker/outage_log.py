"""Logs that the store does not answer: once a minute, however often it is tried."""

from __future__ import annotations

import logging
import time

from penstock.errors import Refused

_LOG_EVERY = 60.0


class OutageLog:
    """One line a minute, which ends with what this process does meanwhile."""

    def __init__(self, meanwhile: str, logger: str = "penstock.worker") -> None:
        self._meanwhile = meanwhile
        self._log = logging.getLogger(logger)
        self._logged_at = -_LOG_EVERY

    def log(self, error: BaseException) -> bool:
        """Whether this call wrote a line."""
        now = time.monotonic()
        if now - self._logged_at < _LOG_EVERY:
            return False
        self._logged_at = now
        kind = type(error).__name__
        what = "refuses this process" if isinstance(error, Refused) else "does not answer"
        self._log.error("the store %s: %s: %s; %s", what, kind, error, self._meanwhile)
        return True
