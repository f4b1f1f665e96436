"""Where a detached process is started: in a session of its own, or in a systemd unit of its own.

A service manager that restarts a service ends its whole control group, sessions or not. A scope is
a group of its own, and `systemd-run --scope` becomes the process that it starts: its number, its
environment and its output stay what they were.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

_MANAGED = Path("/run/systemd/system")
_GROUP = Path("/proc/self/cgroup")
_CONTAINERS = (Path("/.dockerenv"), Path("/run/.containerenv"))
_TRY_SECONDS = 10.0


class StartPlace(NamedTuple):
    """How a detached process is started here, and what it outlives."""

    command: tuple[str, ...]  # put before its own
    name: str  # "session" or "unit"
    survives: str
    remedy: str = ""  # if it outlives less than it could


@cache
def place_here() -> StartPlace:
    """How a detached process is started by this one; found out once."""
    service = _service()
    if service is None:
        lost = "a replaced container takes it along, and the job is resumed elsewhere"
        gone = f"; {lost}" if any(mark.exists() for mark in _CONTAINERS) else ""
        return StartPlace(
            (), "session", f"it outlives the worker and its whole process group{gone}"
        )
    user = ("--user",) if "user@" in service else ()
    command = ("systemd-run", *user, "--scope", "--collect", "--quiet")
    if shutil.which("systemd-run") and _works(command):
        return StartPlace(command, "unit", f"it outlives a restart of {service.rpartition('/')[2]}")
    return StartPlace(
        (),
        "session",
        f"a restart of {service.rpartition('/')[2]} takes it along, and the job is resumed",
        "let this user start transient units (systemd-run --scope), or set KillMode=process",
    )


def _service() -> str | None:
    """The systemd service that this process is part of."""
    if not _MANAGED.exists():
        return None
    try:
        groups = _GROUP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    paths = [line.rpartition(":")[2] for line in groups]
    return next((path for path in paths if path.endswith(".service")), None)


def _works(command: tuple[str, ...]) -> bool:
    try:
        tried = subprocess.run(
            [*command, "--", "true"],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TRY_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0
