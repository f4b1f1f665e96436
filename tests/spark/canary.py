"""A password that is looked for wherever it has no business, also inside of what is packed."""

from __future__ import annotations

import gzip
import io
import threading
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet


def leaks(folder: Path, canary: str) -> list[str]:
    """The files of a folder that hold it."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path.relative_to(folder)) for path in paths if holds(path, canary)]


def holds(path: Path, canary: str) -> bool:
    try:
        content = path.read_bytes()
    except OSError:  # Spark removes files of its own as it goes
        return False
    return any(canary.encode() in each for each in _unpacked(content))


def _unpacked(content: bytes) -> Iterator[bytes]:
    """The content, and what is in it."""
    yield content
    if content.startswith(b"\x1f\x8b"):
        with suppress(OSError, EOFError, zlib.error):
            yield from _unpacked(gzip.decompress(content))
    elif content.startswith(b"PK"):
        with suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                yield from _unpacked(archive.read(name))
    elif content.startswith(b"PAR1"):
        with suppress(pa.ArrowInvalid):  # not closed yet
            table = parquet.read_table(io.BytesIO(content))
            yield str(table.schema.metadata).encode()
            yield str(table.to_pylist()).encode()


@contextmanager
def watched_arguments(canary: str) -> Iterator[set[str]]:
    """The command lines that held it at any time of the block, of every process there is."""
    found: set[str] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            for place in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    words = place.read_bytes()
                    if canary.encode() in words:
                        found.add(words.replace(b"\0", b" ").decode(errors="replace"))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
