"""How much CPU time each test takes: `make test ARGS=--cpu-time=cpu.tsv`.

The machine is busy for as long as a run lasts, so what makes a run shorter is less CPU time; how
long a test lasts says more about the tests beside it. Each test process is in a control group of
its own with all that it starts: servers and Javas count where they live on, and where they are
killed. Where no control group can be made, children that have ended are counted, and no others.

What is made once for many tests, such as a Spark session, counts with the first of them.
"""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

_NAME = "penstock-tests-"
_SHOWN = 40


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-time", metavar="FILE", help="write the CPU time of each test to this file"
    )


def pytest_configure(config: pytest.Config) -> None:
    if file := config.getoption("cpu_time"):
        of_xdist = hasattr(config, "workerinput")
        if of_xdist or not config.getoption("numprocesses", None):
            config.pluginmanager.register(_Measured())
        if not of_xdist:
            config.pluginmanager.register(_Shown(Path(file)))


class _Measured:
    """In each process that runs tests."""

    def __init__(self) -> None:
        self._group = _own_group()
        self._before = self._seconds()

    def _seconds(self) -> float:
        if self._group is not None:
            words = (self._group / "cpu.stat").read_text(encoding="ascii").split()
            return int(words[words.index("usage_usec") + 1]) / 1e6
        used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(one.ru_utime + one.ru_stime for one in used)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report = yield
        now = self._seconds()
        report.user_properties.append(("cpu", now - self._before))
        self._before = now
        return report

    def pytest_unconfigure(self) -> None:
        if self._group is not None:
            for pid in (self._group / "cgroup.procs").read_text(encoding="ascii").split():
                with suppress(OSError):  # ended meanwhile
                    (self._group.parent / "cgroup.procs").write_text(pid, encoding="ascii")
            _remove_ended(self._group.parent)


def _own_group() -> Path | None:
    """A new control group with this process in it, if that can be had."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
        root = next(line.split()[1] for line in lines if line.split()[2] == "cgroup2")
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        path = next(line.removeprefix("0::/") for line in lines if line.startswith("0::/"))
        _remove_ended(Path(root, path))
        group = Path(root, path, f"{_NAME}{os.getpid()}")
        group.mkdir()
        (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
        return group
    return None


def _remove_ended(groups: Path) -> None:
    """Remove this process's group, and those that killed runs have left."""
    for group in groups.glob(f"{_NAME}*"):
        pid = int(group.name.removeprefix(_NAME))
        if pid == os.getpid() or not Path("/proc", str(pid)).exists():
            with suppress(OSError):  # something that was started there still runs
                group.rmdir()


class _Shown:
    """In the process that reports."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.write_text("", encoding="utf-8")
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += dict(report.user_properties[-1:]).get("cpu", 0.0)
        if report.when == "teardown":  # now: a run that is interrupted has said something, too
            with self._file.open("a", encoding="utf-8") as file:
                file.write(f"{self._seconds[report.nodeid]:.3f}\t{report.nodeid}\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._seconds:
            return
        terminalreporter.section(f"seconds of CPU time, of {self._seconds.total():.0f}")
        for title, part in (
            ("folder", lambda test: "/".join(test.partition("::")[0].split("/")[:-1])),
            ("file", lambda test: test.partition("::")[0]),
            ("test", str),
        ):
            terminalreporter.write_line(f"by {title}:")
            for name, seconds in self._by(part).most_common(_SHOWN):
                terminalreporter.write_line(f"{seconds:9.2f}  {name}")

    def _by(self, part: Callable[[str], str]) -> Counter[str]:
        sums: Counter[str] = Counter()
        for test, seconds in self._seconds.items():
            sums[part(test)] += seconds
        return sums
