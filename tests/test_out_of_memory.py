"""The kernel ended a process for lack of memory: that is said where its death is described."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from penstock.worker.last_words import LastWords
from penstock.worker.memory_use import out_of_memory_kills

SENTENCE = "the kernel killed a process of this cgroup for lack of memory"

# What a process finds in /proc/self/cgroup, and where under /sys/fs/cgroup its counter is.
LAYOUTS = {
    "version 2": ("0::/shop.slice/worker", "shop.slice/worker/memory.events"),
    "version 2, in a namespace": ("0::/", "memory.events"),
    "version 1": (
        "5:cpu,cpuacct:/shop\n4:memory:/shop/worker",
        "memory/shop/worker/memory.oom_control",
    ),
    "both, memory in version 1": (
        "4:memory:/shop\n1:name=systemd:/\n0::/",
        "memory/shop/memory.oom_control",
    ),
    "both, memory in version 2": ("1:name=systemd:/\n0::/shop", "shop/memory.events"),
}


class Cgroup:
    """A folder laid out as the kernel shows cgroups."""

    def __init__(self, folder: Path, layout: str) -> None:
        groups, counter = LAYOUTS[layout]
        self.own, self._root = folder / "own", folder / "root"
        self.counter = self._root / counter
        self.own.write_text(f"{groups}\n")
        self.counter.parent.mkdir(parents=True)
        self.kills(0)

    def kills(self, number: int) -> None:
        self.counter.write_text(f"low 0\noom 7\noom_kill {number}\n")

    @property
    def read(self) -> Callable[[], int | None]:
        return partial(out_of_memory_kills, self.own, self._root)


@pytest.fixture(params=LAYOUTS)
def cgroup(tmp_path: Path, request: pytest.FixtureRequest) -> Cgroup:
    return Cgroup(tmp_path, request.param)


def test_a_process_that_was_killed_for_lack_of_memory_is_described_so(cgroup: Cgroup):
    cgroup.kills(3)  # of processes before
    words = LastWords(cgroup.read)

    assert SENTENCE not in words.evidence("a-job", "SIGKILL", 0)
    cgroup.kills(4)
    assert SENTENCE in words.evidence("a-job", "SIGKILL", 5 << 20)
    assert SENTENCE not in words.evidence("a-job", "SIGSEGV", 5 << 20)
    words.close()


def test_nothing_is_said_where_the_kernel_does_not_count(cgroup: Cgroup):
    cgroup.counter.write_text("oom_kill_disable 0\nunder_oom 0\n")
    words = LastWords(cgroup.read)

    assert cgroup.read() is None
    assert SENTENCE not in words.evidence("a-job", "SIGKILL", 0)
    cgroup.counter.unlink()
    assert cgroup.read() is None
    cgroup.own.unlink()
    assert cgroup.read() is None
    words.close()
