"""How a detached process is started: in its own session, and in a systemd scope where possible.

When systemd restarts a service, it kills the service's whole control group, other sessions
included. A scope is a control group of its own; `systemd-run --scope` execs the command, so process
id, environment and output stay the same.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

_SYSTEMD = Path("/run/systemd/system")
_CGROUP = Path("/proc/self/cgroup")
_CONTAINERS = (Path("/.dockerenv"), Path("/run/.containerenv"))
_TRY_SECONDS = 10.0


class StartMethod(NamedTuple):
    """How detached processes are started here, and what they survive."""

    command: tuple[str, ...]  # put before their own command
    survives: str  # a sentence, for the log and the doctor
    remedy: str = ""  # if they could survive more


@cache
def start_method() -> StartMethod:
    """How this process starts detached processes; found out once."""
    service = _service()
    if service is None:
        survives = "detached jobs run in their own session and survive this worker"
        if any(mark.exists() for mark in _CONTAINERS):
            survives += "; they do not survive the container, and are resumed by another worker"
        return StartMethod((), survives)
    user = ("--user",) if "user@" in service else ()
    command = ("systemd-run", *user, "--scope", "--collect", "--quiet")
    name = service.rpartition("/")[2]
    if shutil.which("systemd-run") and _works(command):
        return StartMethod(
            command, f"detached jobs run in their own systemd scope and survive a restart of {name}"
        )
    return StartMethod(
        (),
        f"a restart of {name} kills detached jobs; they are resumed afterwards",
        "let this user start transient units (systemd-run --scope), or set KillMode=process",
    )


def _service() -> str | None:
    """The control group of the systemd service that this process belongs to; None without one."""
    if not _SYSTEMD.exists():
        return None
    try:
        groups = _CGROUP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    paths = [line.rpartition(":")[2] for line in groups]
    return next((path for path in paths if path.endswith(".service")), None)


def _works(command: tuple[str, ...]) -> bool:
    try:
        trial = subprocess.run(
            [*command, "--", "true"],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TRY_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return trial.returncode == 0
