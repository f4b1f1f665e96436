"""Who is measured: each library once per store, in the order of the tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
LOCKS = HERE / "requirements"


@dataclass(frozen=True)
class Entrant:
    """A library on a store. `library` names its file in peers/ and its lock."""

    name: str
    library: str
    store: str

    @property
    def lock(self) -> Path:
        """What its environment holds, every file with its hash."""
        return LOCKS / f"{self.library}.txt"


ROSTER = (
    Entrant("penstock-postgres", "penstock", "postgres"),
    Entrant("penstock-sqlite", "penstock", "sqlite"),
    Entrant("pgqueuer", "pgqueuer", "postgres"),
    Entrant("procrastinate", "procrastinate", "postgres"),
    Entrant("saq-postgres", "saq", "postgres"),
    Entrant("saq-redis", "saq", "redis"),
    Entrant("dramatiq", "dramatiq", "redis"),
    Entrant("celery", "celery", "redis"),
    Entrant("huey-redis", "huey", "redis"),
    Entrant("huey-sqlite", "huey", "sqlite"),
)
QUICK = ("penstock-postgres", "penstock-sqlite", "pgqueuer", "procrastinate")
STORES = {"postgres": "PostgreSQL", "redis": "Redis", "sqlite": "SQLite"}


def chosen(names: list[str] | None, *, quick: bool) -> list[Entrant]:
    """Those that the command line asks for, by name or by library."""
    if names is None:
        return [entrant for entrant in ROSTER if not quick or entrant.name in QUICK]
    known = {entrant.name for entrant in ROSTER} | {entrant.library for entrant in ROSTER}
    if unknown := sorted(set(names) - known):
        raise SystemExit(
            f"No such peer: {', '.join(unknown)}. There are {', '.join(sorted(known))}"
        )
    return [entrant for entrant in ROSTER if {entrant.name, entrant.library} & set(names)]
