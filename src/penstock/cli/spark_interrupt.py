"""Ctrl-C while Spark works.

PySpark then asks Java to cancel, on the line that already waits for Java's answer: that fails, and
py4j logs both failures as stacks of fifty lines. They are raised as well, and that is enough.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def quietly_interrupted() -> Generator[None]:
    """Ctrl-C in here leaves no stack behind of whatever it interrupted."""
    root = logging.getLogger()  # by which py4j says it
    root.addFilter(_is_news)
    try:
        yield
    finally:
        root.removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    return not record.getMessage().endswith("while sending command.")
