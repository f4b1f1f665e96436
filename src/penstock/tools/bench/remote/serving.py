"""The processes of the measurement: a manager of a store, an echo of gRPC, and who asks them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import msgspec

from penstock.errors import PenstockError
from penstock.tools.bench.remote import streams

# Not with -m: the module is imported by the one that starts it.
_STREAMS = (sys.executable, "-c", f"from {streams.__name__} import main; main()")
_SECONDS = 60.0


class Echo(NamedTuple):
    """A server that only answers, as a process of its own."""

    port: int
    pid: int

    def cpu_seconds(self) -> float:
        return _cpu_seconds(self.pid)


class Serving(NamedTuple):
    """A manager that runs as a process of its own."""

    url: str
    health: str
    pid: int

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def cpu_seconds(self) -> float:
        return _cpu_seconds(self.pid)

    def claims(self) -> float:
        return self._sample("penstock_manager_claims_total")

    def connections(self, store: Path) -> int:
        """How often the manager has the file of its store open: once per connection."""
        return sum(_leads_to(link, store) for link in Path(f"/proc/{self.pid}/fd").iterdir())

    def _sample(self, name: str) -> float:
        with urlopen(f"{self.health}/metrics", timeout=_SECONDS) as answer:  # noqa: S310  loopback
            for line in answer.read().decode().splitlines():
                if line.startswith(f"{name} "):
                    return float(line.rpartition(" ")[2])
        raise PenstockError(f"the manager of the benchmark has no {name}")


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # user and system


def _leads_to(link: Path, file: Path) -> bool:
    try:
        return link.resolve() == file.resolve()
    except OSError:
        return False


@contextmanager
def manager(store: str) -> Generator[Serving]:
    """A manager of this store on a free port."""
    words = ("manager", "--url", store, "--listen", "127.0.0.1:0", "--health-port", "0", "--json")
    with _running([sys.executable, "-m", "penstock", *words]) as (process, line):
        said = msgspec.json.decode(line, type=dict[str, str])
        yield Serving(said["url"], said["health"], process.pid)


@contextmanager
def echo() -> Generator[Echo]:
    """A server that only answers."""
    with _running([*_STREAMS, "echo"]) as (process, line):
        yield Echo(int(line), process.pid)


@contextmanager
def _running(command: list[str]) -> Generator[tuple[subprocess.Popen[str], str]]:
    """A process, and the first line that it prints."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        line = "" if process.stdout is None else process.stdout.readline()
        if not line:
            raise PenstockError(f"{' '.join(command[1:])} did not start")
        yield process, line
    finally:
        process.terminate()
        process.communicate(timeout=_SECONDS)


def ask(port: int, method: str, number: int, seconds: float) -> streams.Asked:
    """What so many streams were answered in this time; they are in a process of their own."""
    words = ("ask", str(port), method, str(number), str(seconds))
    done = subprocess.run(
        [*_STREAMS, *words], stdout=subprocess.PIPE, timeout=_SECONDS + seconds, check=True
    )
    return msgspec.json.decode(done.stdout, type=streams.Asked)


@contextmanager
def asking(port: int, method: str, number: int, seconds: float) -> Generator[None]:
    """Meanwhile so many streams are open."""
    words = ("ask", str(port), method, str(number), str(seconds))
    process = subprocess.Popen([*_STREAMS, *words], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait(_SECONDS)
