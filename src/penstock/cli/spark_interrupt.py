"""Ctrl-C while Spark works, without py4j's tracebacks.

PySpark then asks Java to cancel, on the connection that already waits for Java's answer. That
fails, and py4j logs both failures as tracebacks of fifty lines. They are raised, too.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def quietly_interrupted() -> Generator[None]:
    """Hide py4j's tracebacks of interrupted calls."""
    root = logging.getLogger()  # the logger that py4j uses
    root.addFilter(_is_not_py4j)
    try:
        yield
    finally:
        root.removeFilter(_is_not_py4j)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return not record.getMessage().endswith("while sending command.")
