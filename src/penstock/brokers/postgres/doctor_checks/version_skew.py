"""Schema, functions and workers of another Penstock release than this one."""

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


def missing(context: CheckContext) -> Findings:
    """Tables, indexes, sequences and functions that somebody dropped."""
    if context.plan.pending(context.meta) or int(context.meta["schema"]) > context.plan.newest:
        return  # a schema of another release may have other tables
    expected = [{"kind": kind, "name": name} for kind, name in _MADE.findall(sql.schema)]
    if context.meta.get("functions", "").partition(" ")[2] == context.plan.digest:
        functions = dict.fromkeys(_FUNCTION.findall(context.plan.functions))
        expected += [{"kind": "function", "name": name} for name in functions]
    gone = context.rows(sql.doctor_missing, {"expected": msgspec.json.encode(expected).decode()})
    if names := [row["name"] for row in gone if row["kind"] == "function"]:
        yield Trouble(
            f"calls will fail, functions of schema penstock are missing: {', '.join(names)}",
            "as the owner: delete from penstock.meta where name = 'functions'; then penstock "
            "migrate up",
            name="schema",
        )
    if names := [f"{row['kind']} {row['name']}" for row in gone if row["kind"] != "function"]:
        yield Trouble(
            f"the schema penstock is incomplete, there is no {', '.join(names)}",
            "restore it from a backup, or create it as `penstock migrate sql` prints it for an "
            "empty database",
            name="schema",
        )


def functions(context: CheckContext) -> Findings:
    """Which release the store's functions are of."""
    by, _, digest = context.meta.get("functions", "").partition(" ")
    here = context.plan.release
    if digest == context.plan.digest:
        yield Fact("functions", f"those of Penstock {here}")
    elif context.plan.replaces_functions(context.meta):
        yield Trouble(
            f"the functions are those of Penstock {by or 'unknown'}, this is {here}: they "
            "lack what is new in it",
            "penstock migrate up; the next worker that starts does it, too",
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


def post_steps(context: CheckContext) -> Findings:
    """Post steps that wait until no older worker runs."""
    if names := [step.name for step in context.plan.pending_post(context.meta)]:
        yield Trouble(
            f"{', '.join(names)} still to be applied: the schema keeps what only older workers use",
            "penstock migrate up --post, once no older worker runs",
            grave=False,
            name="schema",
        )


def releases(context: CheckContext) -> Findings:
    """Whether all live workers are of this release."""
    alive: dict[str, list[str]] = defaultdict(list)
    for row in context.rows(sql.doctor_workers):
        alive[row["penstock"] or "unknown"].append(f"{row['id']} ({row['host']}, pid {row['pid']})")
    if not set(alive) - {context.plan.release}:
        return
    releases = "; ".join(
        f"{by}: {', '.join(names[:5])}{' …' if len(names) > 5 else ''}"
        for by, names in sorted(alive.items(), key=lambda item: age_order(item[0]))
    )
    yield Trouble(
        f"workers of other releases than {context.plan.release} are alive, and a job may run on "
        f"any of them: {releases}",
        "finish the rollout",
        grave=False,
        name="releases",
    )
