"""What this Penstock brings into a database: numbered steps, and the functions of the hot path.

A step comes in up to two parts. `0002_name.sql` (or `.pre.sql`) adds what workers of the release
before can live with; `0002_name.post.sql` takes away what only they used. The functions are
replaced as a set, so one whose parameters or answer change gets a new name, and the old one goes
with a later post step: workers of the release before go on calling it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from penstock.app.version import age_order, release
from penstock.brokers.postgres.statements import functions, sql

_FOLDER = Path(__file__).parent / "migrations"
Meta = Mapping[str, str]  # what a store says of itself


class MigrationStep(NamedTuple):
    number: int
    name: str  # the file's
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
        """Tells one set of functions from another."""
        return hashlib.sha256(self.functions.encode()).hexdigest()[:16]

    def pending(self, meta: Meta) -> list[MigrationStep]:
        """What an open applies: in a store that is new, everything in order."""
        if "schema" not in meta:
            return list(self.steps)
        found = int(meta["schema"])
        return [step for step in self.steps if not step.post and step.number > found]

    def pending_post(self, meta: Meta) -> list[MigrationStep]:
        """What is to be applied once the workers of the release before are gone."""
        if "schema" not in meta:
            return []
        found = int(meta.get("post", 0))
        return [step for step in self.steps if step.post and step.number > found]

    def brings_functions(self, meta: Meta) -> bool:
        """Whether the store's functions are to be replaced: never by those of an older release."""
        by, _, digest = meta.get("functions", "").partition(" ")
        return digest != self.digest and age_order(by) <= age_order(self.release)

    def knows(self, meta: Meta) -> bool:
        """Whether nothing was taken away that this release needs."""
        return int(meta.get("post", 0)) <= self.newest

    def is_current(self, meta: Meta) -> bool:
        """Whether an open has nothing to apply."""
        return not self.pending(meta) and not self.brings_functions(meta)


def steps_in(folder: Path) -> tuple[MigrationStep, ...]:
    """The steps of a folder, in order."""
    found = [
        MigrationStep(
            int(path.name[:4]),
            path.name,
            path.name.endswith(".post.sql"),
            path.read_text(encoding="utf-8"),
        )
        for path in folder.glob("[0-9]*.sql")
    ]
    return tuple(sorted(found, key=lambda step: (step.number, step.post)))


@cache
def this_plan() -> MigrationPlan:
    """What this Penstock brings; until the first release the schema is its only step."""
    steps = steps_in(_FOLDER) or (MigrationStep(1, "schema.sql", False, sql.schema),)
    return MigrationPlan(steps, functions(), release())
