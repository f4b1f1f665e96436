"""Who is measured: each library once per store, in the order of the tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
LOCKS = HERE / "requirements"


NODE = frozenset({"bullmq", "pgboss", "graphile"})


@dataclass(frozen=True)
class Entrant:
    """A library on a store. `library` names its file in peers/, and its lock if `lock` does not."""

    name: str
    library: str
    store: str
    lock: str = ""

    @property
    def environment(self) -> str:
        """The name of its lock, and of the environment that is made of it."""
        return self.lock or self.library

    @property
    def on_node(self) -> bool:
        """Whether it is a library of Node, and not of Python."""
        return self.library in NODE


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
    Entrant("penstock-redis", "penstock", "redis"),
    Entrant("taskiq-postgres", "taskiq", "postgres", lock="taskiq-pg"),  # not for the newest taskiq
    Entrant("taskiq-redis", "taskiq", "redis"),
    Entrant("rq", "rq", "redis"),
    Entrant("arq", "arq", "redis"),
    Entrant("pgboss", "pgboss", "postgres"),
    Entrant("graphile", "graphile", "postgres"),
    Entrant("bullmq", "bullmq", "redis"),
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
