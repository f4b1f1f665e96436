"""A process that does something to a SQLite store and dies before its n-th statement.

Of dozens of deaths in one verb most leave the same behind, to the byte: nothing is written before
a commit. So it is done once by a process that lives, which looks at the files before each
statement, and then a process dies wherever they had changed since the statement before.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from penstock.app.clock import AnyClock
from penstock.brokers.sqlite import SqliteBroker

Verb = Callable[[SqliteBroker], object]


def left_behind(original: Path, clock: AnyClock, verb: Verb) -> Iterator[Path]:
    """Copies of a store after each death that leaves something else; the last is after none."""
    looks = original.with_suffix(".looks")
    path = _copy(original, "nobody dies")

    def look(_: int) -> None:
        with looks.open("a", encoding="ascii") as file:
            file.write(f"{_files(path)}\n")

    assert _do(path, clock, verb, look) == 0
    seen = looks.read_text(encoding="ascii").splitlines()
    assert len(seen) >= 3
    for number in range(1, len(seen) + 1):
        if number == 1 or seen[number - 1] != seen[number - 2]:
            died = _copy(original, f"{number}")
            assert os.WTERMSIG(_do(died, clock, verb, _death_at(number))) == signal.SIGKILL
            yield died
    yield path


def _copy(original: Path, name: str) -> Path:
    return Path(shutil.copy(original, original.with_name(f"{name}.db")))


def _death_at(number: int) -> Callable[[int], None]:
    def die(at: int) -> None:
        if at == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return die


def _do(path: Path, clock: AnyClock, verb: Verb, before: Callable[[int], None]) -> int:
    """Do it in a process of its own that calls `before` each statement; how it ended."""
    child = os.fork()
    if not child:
        try:
            broker = SqliteBroker(path, clock=clock)
            seen = 0

            def count(_: str) -> None:
                nonlocal seen
                seen += 1
                before(seen)

            broker.store._writer.set_trace_callback(count)
            verb(broker)
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    return status


def _files(path: Path) -> str:
    """What a death would leave; whoever opens the store next makes `-shm` anew."""
    digest = hashlib.sha256()
    for end in ("", "-wal", "-journal"):
        file = path.with_name(path.name + end)
        data = file.read_bytes() if file.exists() else b""
        digest.update(b"%d " % len(data) + data)
    return digest.hexdigest()
