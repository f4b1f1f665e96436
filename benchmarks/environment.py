"""One virtual environment per library, below .cache/bench, from a lock with every hash.

Made again when its lock or the interpreter changes. Its own, so that no library decides which
version of a driver another one is measured with.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from asking import Failed
from roster import HERE, LOCKS

PROJECT = HERE.parent
CACHE = PROJECT / ".cache" / "bench"
_MOST_SECONDS = 600
# What the lock of a library is made from, where that is not its .in file alone.
_SOURCES = {
    "penstock": [PROJECT / "pyproject.toml", "--extra", "postgres"],
    "tools": [PROJECT / "pyproject.toml", "--extra", "postgres", LOCKS / "tools.in"],
}


def python_of(lock: Path) -> Path:
    """The interpreter of the environment that a lock describes; makes it if it must."""
    folder = CACHE / lock.stem
    python = folder / "bin" / "python"
    stamp = folder / "made-from"
    made_from = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == made_from:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    uv = _uv()
    _run([sys.executable, "-m", "venv", *(["--without-pip"] if uv else []), str(folder)])
    how = [uv, "pip", "install", "--python", str(python)] if uv else [str(python), "-m", "pip"]
    install = [] if uv else ["install", "--disable-pip-version-check"]
    _run([*how, *install, "--quiet", "--require-hashes", "-r", str(lock)])
    stamp.write_text(made_from, encoding="utf-8")
    return python


def lock_all(*, upgrade: bool) -> None:
    """Write requirements/*.txt anew; without `upgrade`, versions stay where they can."""
    uv = _uv()
    if uv is None:
        raise SystemExit("Locks are made by uv: make setup puts it into .venv")
    for name in sorted({path.stem for path in LOCKS.glob("*.in")} | set(_SOURCES)):
        sources = [str(part) for part in _SOURCES.get(name, [LOCKS / f"{name}.in"])]
        options = ["--no-config", "--quiet", "--universal", "--python-version", "3.11"]
        options += ["--generate-hashes", "--no-annotate", "--no-header"]
        options += ["--upgrade"] if upgrade else []
        _run([uv, "pip", "compile", *options, *sources, "-o", str(LOCKS / f"{name}.txt")])


def _uv() -> str | None:
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else shutil.which("uv")


def _run(command: list[str]) -> None:
    settings = {"UV_SYSTEM_CERTS": "true", "UV_LINK_MODE": "copy", **os.environ}
    try:
        ran = subprocess.run(
            command,
            env=settings,
            capture_output=True,
            text=True,
            timeout=_MOST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"not installed within {_MOST_SECONDS} s") from None
    if ran.returncode != 0:
        lines = [line.strip() for line in ran.stderr.splitlines() if line.strip()]
        raise Failed(f"not installed: {' '.join(lines[-3:])[-300:] or 'no reason given'}")
