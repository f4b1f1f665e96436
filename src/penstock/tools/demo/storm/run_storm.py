"""`penstock demo --storm`: a storm on a SQLite file of its own, told as it happens."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

import msgspec

from penstock.cli import output
from penstock.cli.store_choice import use_store
from penstock.testing.checker import INVARIANTS
from penstock.tools.demo.step_printer import StepPrinter
from penstock.tools.demo.storm import tasks
from penstock.tools.demo.storm.storm import Storm, StormVerdict
from penstock.tools.demo.worker_process import signals_deferred

_SAY_SECONDS = 10.0


class _Narrator:
    """Says every ten seconds what has happened."""

    def __init__(self, printer: StepPrinter, storm: Storm) -> None:
        self._printer = printer
        self._storm = storm
        self._next = _SAY_SECONDS

    def __call__(self, seconds: float) -> None:
        if seconds >= self._next:
            self._next += _SAY_SECONDS
            faults = sum(self._storm.did().values())
            self._printer.line(
                f"{seconds:>4.0f} s: {faults:,} faults, {self._storm.accepted():,} jobs accepted"
            )


def run_storm(seconds: float, seed: int | None, *, json: bool = False) -> int:
    """0 if nothing was lost, nothing ended twice, and all faults had their effect; else 1."""
    if seed is None:
        seed = random.randrange(1_000_000)  # noqa: S311  no secret
    folder = Path(tempfile.mkdtemp(prefix="penstock-storm-"))
    url = f"sqlite:///{folder / 'jobs.db'}"
    printer = StepPrinter(silent=json)
    with use_store(url, None):
        try:
            verdict = _storm(printer, url, folder, seconds, seed)
        finally:
            tasks.app.close()
    _print_verdict(printer, verdict)
    if json:
        output.print_json(
            {
                **msgspec.to_builtins(verdict),
                "missing": verdict.missing,
                "holds": verdict.holds,
                "store": url,
            }
        )
    printer.step("The store and the logs stay; look around:")
    for words in ("verify", "history --reason crashed", "workers"):
        printer.line(f"{output.program()} {words} --url {url}", "cyan")
    printer.line(str(folder), "dim")
    return 0 if verdict.holds else 1


def _storm(printer: StepPrinter, url: str, folder: Path, seconds: float, seed: int) -> StormVerdict:
    printer.step("Start two producers and two workers with two child processes each.")
    with signals_deferred():
        storm = Storm(url, folder, seed=seed)
    try:
        storm.prepare()
        printer.step(f"Kill, freeze and restart them at random for {seconds:.0f} s (seed {seed}).")
        storm.rage(seconds, _Narrator(printer, storm))
        for name, times in storm.did().items():
            printer.line(f"{times:>5,}  {name}")
        printer.step("No more faults: wait until every job has ended.")
        began = time.monotonic()
        verdict = storm.calm()
        printer.line(f"after {time.monotonic() - began:.1f} s")
        return verdict
    finally:
        storm.end()


def _print_verdict(printer: StepPrinter, verdict: StormVerdict) -> None:
    seen = verdict.history.seen
    printer.step("Check the history of the store, and what the producers know.")
    facts = (
        ("accepted", verdict.accepted, "jobs whose enqueue returned, by the producers' own file"),
        ("ended", seen["jobs ended"], "with those of flows and of the schedule"),
        ("lapses", seen["lapses"], "attempts that ended with their process"),
        ("refused", seen["stale settlements"], "outcomes that came after the lease was lost"),
        ("retried", seen["retried attempts"], "attempts that failed, and were repeated"),
        ("slots", seen["slots"], "of a schedule, one a second"),
        ("flows", seen["flows"], "that ended"),
        (
            "effects",
            verdict.effects[0],
            f"rows, by {verdict.transfers:,} jobs that commit one each",
        ),
    )
    for name, number, note in facts:
        printer.line(f"{name:<10}{number:>7,}  {note}")
    broken = {found.invariant for found in verdict.history.contradictions}
    for name, sentence in INVARIANTS.items():
        printer.line(
            f"{'BROKEN' if name in broken else 'holds '}  {sentence}",
            "red" if name in broken else "green",
        )
    for sentence in verdict.sentences()[:20]:
        printer.line(sentence, "red")
    printer.line(
        "Nothing was lost, nothing ended twice." if verdict.holds else "THE CHECK FAILED.",
        "green" if verdict.holds else "red",
    )
