"""The migrations of this release: numbered steps, and the SQL functions.

A step has up to two parts. `0002_name.sql` (or `.pre.sql`) adds what is new, and workers of the
previous release must be able to run beside it; `0002_name.post.sql` drops what only they used.
The functions are replaced as a set. One whose parameters or answer change gets a new name: workers
of the previous release go on calling the old one, which a later post step drops.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from penstock.app.version import RELEASE, age_order
from penstock.brokers.postgres.statements import functions, sql

_FOLDER = Path(__file__).parent / "migrations"
Meta = Mapping[str, str]  # the rows of penstock.meta


class MigrationStep(NamedTuple):
    number: int
    name: str  # of its file
    post: bool
    script: str


@dataclass(frozen=True)
class MigrationPlan:
    """The steps and the functions of one release."""

    steps: tuple[MigrationStep, ...]
    functions: str
    release: str

    @property
    def newest(self) -> int:
        """The number of the last step."""
        return self.steps[-1].number

    @property
    def digest(self) -> str:
        """A hash of the functions."""
        return hashlib.sha256(self.functions.encode()).hexdigest()[:16]

    def pending(self, meta: Meta) -> list[MigrationStep]:
        """The steps that opening the store applies; in a new store, all of them."""
        if "schema" not in meta:
            return list(self.steps)
        applied = int(meta["schema"])
        return [step for step in self.steps if not step.post and step.number > applied]

    def pending_post(self, meta: Meta) -> list[MigrationStep]:
        """The post steps to apply once no worker of the previous release runs."""
        if "schema" not in meta:
            return []
        applied = int(meta.get("post", 0))
        return [step for step in self.steps if step.post and step.number > applied]

    def replaces_functions(self, meta: Meta) -> bool:
        """Whether the store's functions differ from ours, and are not of a newer release."""
        by, _, digest = meta.get("functions", "").partition(" ")
        return digest != self.digest and age_order(by) <= age_order(self.release)

    def knows(self, meta: Meta) -> bool:
        """Whether no post step of a newer release dropped what this one needs."""
        return int(meta.get("post", 0)) <= self.newest

    def is_current(self, meta: Meta) -> bool:
        """Whether opening the store has nothing to apply."""
        return not self.pending(meta) and not self.replaces_functions(meta)


def steps_in(folder: Path) -> tuple[MigrationStep, ...]:
    """The steps of a folder, in order."""
    steps = [
        MigrationStep(
            int(path.name[:4]),
            path.name,
            path.name.endswith(".post.sql"),
            path.read_text(encoding="utf-8"),
        )
        for path in folder.glob("[0-9]*.sql")
    ]
    return tuple(sorted(steps, key=lambda step: (step.number, step.post)))


@cache
def this_plan() -> MigrationPlan:
    """The plan of this release; before the first release, schema.sql is the only step."""
    steps = steps_in(_FOLDER) or (MigrationStep(1, "schema.sql", False, sql.schema),)
    return MigrationPlan(steps, functions(), RELEASE)
