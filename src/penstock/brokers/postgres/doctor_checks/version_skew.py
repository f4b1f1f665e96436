"""Releases side by side: schema, functions and workers of another Penstock than this one."""

from __future__ import annotations

import re
from collections import defaultdict

import msgspec

from penstock.app.version import age_order
from penstock.brokers.condition import Fact, Trouble
from penstock.brokers.postgres.doctor_checks import CheckContext, Findings
from penstock.brokers.postgres.statements import sql

_MADE = re.compile(r"^create (table|index|sequence) (?:penstock\.)?(\w+)", re.MULTILINE)
_FUNCTION = re.compile(r"^create or replace function penstock\.(\w+)", re.MULTILINE)


def missing(look: CheckContext) -> Findings:
    """What the schema should have and somebody took away."""
    if look.plan.pending(look.meta) or int(look.meta["schema"]) > look.plan.newest:
        return  # it is another release's, and may have other tables
    expected = [{"kind": kind, "name": name} for kind, name in _MADE.findall(sql.schema)]
    if look.meta.get("functions", "").partition(" ")[2] == look.plan.digest:
        made = dict.fromkeys(_FUNCTION.findall(look.plan.functions))
        expected += [{"kind": "function", "name": name} for name in made]
    gone = look.rows(sql.look_missing, {"expected": msgspec.json.encode(expected).decode()})
    if names := [row["name"] for row in gone if row["kind"] == "function"]:
        yield Trouble(
            f"functions of schema penstock are missing: {', '.join(names)}",
            "as the owner: delete from penstock.meta where name = 'functions'; then penstock "
            "migrate up",
            name="schema",
        )
    if names := [f"{row['kind']} {row['name']}" for row in gone if row["kind"] != "function"]:
        yield Trouble(
            f"the schema penstock is not whole, there is no {', '.join(names)}",
            "restore it from a backup, or make it as `penstock migrate sql` prints it for an empty "
            "database",
            name="schema",
        )


def functions(look: CheckContext) -> Findings:
    """Whose functions the store has."""
    by, _, digest = look.meta.get("functions", "").partition(" ")
    here = look.plan.release
    if digest == look.plan.digest:
        yield Fact("functions", f"those of Penstock {here}")
    elif look.plan.brings_functions(look.meta):
        yield Trouble(
            f"the functions are those of Penstock {by or 'unknown'}, this is {here}",
            "penstock migrate up, or the next worker that starts",
            grave=False,
            name="functions",
        )
    else:
        yield Trouble(
            f"the functions are those of Penstock {by}, newer than {here} here",
            "upgrade Penstock here; until then it works with the newer ones",
            grave=False,
            name="functions",
        )


def post_steps(look: CheckContext) -> Findings:
    """What waits until the older workers are gone."""
    if names := [step.name for step in look.plan.pending_post(look.meta)]:
        yield Trouble(
            f"{', '.join(names)} still to be applied: what only older workers used is still there",
            "penstock migrate up --post, once none of them runs",
            grave=False,
            name="schema",
        )


def releases(look: CheckContext) -> Findings:
    """Whether all live workers are of this release."""
    alive: dict[str, list[str]] = defaultdict(list)
    for row in look.rows(sql.look_workers):
        alive[row["penstock"] or "unknown"].append(f"{row['id']} ({row['host']}, pid {row['pid']})")
    if not set(alive) - {look.plan.release}:
        return
    releases = "; ".join(
        f"{by}: {', '.join(names[:5])}{' …' if len(names) > 5 else ''}"
        for by, names in sorted(alive.items(), key=lambda item: age_order(item[0]))
    )
    yield Trouble(
        f"workers of other releases than {look.plan.release} are alive: {releases}",
        "go on with the rollout; a job may meet either of them until it is done",
        grave=False,
        name="releases",
    )
