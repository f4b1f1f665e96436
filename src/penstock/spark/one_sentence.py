"""Errors of Penstock that come through Spark, as one sentence.

Spark passes on what a Python worker raised as text, between tracebacks of Python and frames of
Java. Workers leave the traceback out (`without_traceback`), calls that Penstock makes of Spark
raise the error itself again (`one_sentence`), and what ends a program is printed as a sentence.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import penstock.errors
from penstock.errors import PenstockError

_OURS = re.compile(r"\bpenstock\.(?:\w+\.)*([A-Z]\w+): (.*)")
_BY_NAME = ("Refused", "StoreFull", "StoreUnreachable", "WrongUrl", "SchemaTooNew", "ResultGone")
_HIDE = "SPARK_HIDE_TRACEBACK"  # Spark's own: it is read when a worker reports its error
_NOT_THE_USERS = re.compile(r"[/\\](?:pyspark|py4j)[/\\]|contextlib\.py$")
_PACKAGE = (
    str(Path(__file__).parents[1]) + os.sep
)  # by its place: a user's folder may have our name


def error_in(text: str) -> PenstockError | None:
    """Penstock's own error in the text of one of Spark's, the last if there are several."""
    found = _OURS.findall(text)
    if not found:
        return None
    name, sentence = found[-1]
    kind: Any = getattr(penstock.errors, name) if name in _BY_NAME else PenstockError
    return kind(sentence.strip())


@contextmanager
def one_sentence() -> Generator[None]:
    """Raise an error of Penstock's, out of what Spark makes of it."""
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:
        ours = error_in(str(error)) if of_spark(error) else None
        if ours is None:
            raise
        raise ours from None


@contextmanager
def without_traceback() -> Generator[None]:
    """In a Python worker: report an error of Penstock's without the stack that led to it.

    The worker ends with the error, so that no other code is affected.
    """
    try:
        yield
    except PenstockError:
        main: Any = getattr(sys.modules.get("__main__"), "__spec__", None)
        if main is not None and main.name.startswith("pyspark."):
            os.environ[_HIDE] = "1"
        raise


def print_sentences() -> None:
    """Have a program that ends with an error of Penstock's print the sentence.

    With the line of the program that it comes from. Other errors are printed as before.
    """
    before = sys.excepthook
    if getattr(before, "of_penstock", False):
        return

    def print_sentence(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        ours = error_in(str(error)) if of_spark(error) else error
        if not isinstance(ours, PenstockError):
            before(kind, error, trace)
            return
        sys.stderr.write(f"penstock: {ours}{line_of_user(trace)}\n")

    print_sentence.of_penstock = True  # pyright: ignore[reportFunctionMemberAccess]
    sys.excepthook = print_sentence


def of_spark(error: BaseException) -> bool:
    """Whether Spark raised it, or the bridge to its JVM."""
    return type(error).__module__.partition(".")[0] in {"pyspark", "py4j"}


def line_of_user(trace: TracebackType | None) -> str:
    """Where the program called Spark: the last line before Spark's own."""
    last = None
    for frame in traceback.extract_tb(trace):
        if frame.filename.startswith(_PACKAGE) or _NOT_THE_USERS.search(frame.filename):
            break
        last = frame
    return f"\n  {Path(last.filename).name}, line {last.lineno}: {last.line}" if last else ""
