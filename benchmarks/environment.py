"""One environment per library, below .cache/bench, from a lock with every hash.

Made again when its lock or the interpreter changes. Its own, so that no library decides which
version of a driver another one is measured with. A library of Node has a folder of node_modules
instead of a virtual environment, and is left out where there is no Node.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from asking import Failed
from roster import HERE, LOCKS

PROJECT = HERE.parent
CACHE = PROJECT / ".cache" / "bench"
NODE_LOCK = "package-lock.json"
_MOST_SECONDS = 600
# What a package would run when it is installed is not needed, and nobody has read it.
_NO_SCRIPTS = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
# What the lock of a library is made from, where that is not its .in file alone.
_SOURCES = {
    "penstock": [PROJECT / "pyproject.toml", "--extra", "postgres", "--extra", "redis"],
    "tools": [PROJECT / "pyproject.toml", "--extra", "postgres", LOCKS / "tools.in"],
}


def node_of(library: str) -> tuple[str, Path]:
    """Node, and the modules that the lock of a library describes; makes them if it must."""
    node, npm = _node_and_npm()
    folder, locked = CACHE / library, LOCKS / library
    modules, stamp = folder / "node_modules", folder / "made-from"
    version = subprocess.run([node, "--version"], capture_output=True, check=True).stdout
    lock = (locked / NODE_LOCK).read_bytes()
    made_from = hashlib.sha256(lock + version).hexdigest()
    if modules.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == made_from:
        return node, modules
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(locked, folder)
    # Not `npm ci`: it wants what other platforms would need in the lock, too, and not every
    # registry has that. So what was installed is compared with the lock here.
    _run([npm, "install", *_NO_SCRIPTS, "--omit=optional"], folder)
    known = json.loads(lock)["packages"]
    installed = json.loads((modules / ".package-lock.json").read_text(encoding="utf-8"))["packages"]
    for name, package in installed.items():
        if package.get("integrity") != known.get(name, {}).get("integrity", "none"):
            raise Failed(f"not installed: {name} is not as in its lock")
    stamp.write_text(made_from, encoding="utf-8")
    return node, modules


def _node_and_npm() -> tuple[str, str]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise Failed("not measured: it runs on Node, and no node with npm is found here")
    return node, npm


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
    for package in sorted(LOCKS.glob("*/package.json")):
        _lock_of_node(package.parent, upgrade=upgrade)


def _lock_of_node(locked: Path, *, upgrade: bool) -> None:
    """Every file with its hash, and no word about where it was found: that differs by machine."""
    _, npm = _node_and_npm()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / locked.name
        shutil.copytree(locked, folder)
        if upgrade:
            (folder / NODE_LOCK).unlink(missing_ok=True)
        _run([npm, "install", "--package-lock-only", *_NO_SCRIPTS], folder)
        lock: dict[str, Any] = json.loads((folder / NODE_LOCK).read_text(encoding="utf-8"))
    for package in lock["packages"].values():
        for name in ("resolved", "funding"):
            package.pop(name, None)
    (locked / NODE_LOCK).write_text(json.dumps(lock, indent=2) + "\n", encoding="utf-8")


def _uv() -> str | None:
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else shutil.which("uv")


def _run(command: list[str], folder: Path | None = None) -> None:
    settings = {"UV_SYSTEM_CERTS": "true", "UV_LINK_MODE": "copy", **os.environ}
    try:
        ran = subprocess.run(
            command,
            cwd=folder,
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
