"""`penstock demo --shards`: one SQLite file becomes two while its jobs run, told as it happens."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from penstock.cli import output
from penstock.cli.store_choice import use_store
from penstock.enqueue.ids import BUCKETS
from penstock.testing.checker import INVARIANTS
from penstock.tools.demo.shards import tasks
from penstock.tools.demo.shards.split import RUNNING, Split, SplitVerdict
from penstock.tools.demo.step_printer import StepPrinter

_SECONDS = 3.0  # that jobs run before the split, and after it
_WIDTH = 32


def run_demo(*, seconds: float = _SECONDS, json: bool = False) -> int:
    """0 if nothing was lost, nothing ended twice and no limit was exceeded; else 1."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-shards-"))
    printer = StepPrinter(silent=json)
    split = Split(folder, "a")
    began = time.monotonic()
    with use_store(split.url, None):
        try:
            verdict = _split(printer, split, seconds)
        finally:
            split.end()
            tasks.app.close()
    _put_verdict(printer, verdict)
    if json:
        output.print_json(
            {
                "accepted": verdict.accepted,
                "killed": verdict.killed,
                "contradictions": verdict.history.contradictions,
                "out_of_order": verdict.out_of_order,
                "holds": verdict.holds,
                "store": split.url,
            }
        )
    printer.step(f"That took {time.monotonic() - began:.0f} seconds. The shards stay; look around:")
    for words in ("shards status", "verify", "history --limit 20"):
        printer.line(f"{output.program()} {words} --url {split.url}", "cyan")
    return 0 if verdict.holds else 1


def _split(printer: StepPrinter, split: Split, seconds: float) -> SplitVerdict:
    printer.step("One SQLite file as the only shard; a producer and a worker use it.")
    split.start()
    printer.line(f"penstock limit orders --running {RUNNING}   on all shards together")
    time.sleep(seconds)
    _put_map(printer, split)
    printer.step("Name a second file, and have it join. Nobody is restarted.")
    printer.line("echo 'b = \"sqlite:///b.db\"' >> shards.toml; penstock shards add b")
    split.name("b")
    _put_map(printer, split)
    printer.step("Move half of the buckets; kill -9 the mover on its way, and call it again.")
    printer.line(f"penstock shards move --buckets {BUCKETS // 2}-{BUCKETS - 1} --to b")
    began = time.monotonic()
    split.move(range(BUCKETS // 2, BUCKETS), "b", kills=1)
    printer.line(f"{split.killed} processes killed; after {time.monotonic() - began:.1f} s:")
    _put_map(printer, split)
    time.sleep(seconds)
    printer.step("Send no more jobs, wait for the last one, and check the history of both.")
    return split.calm()


def _put_map(printer: StepPrinter, split: Split) -> None:
    for state in split.states():
        bar = "#" * round(_WIDTH * state.number / BUCKETS)
        printer.line(
            f"{state.name}  [{bar:<{_WIDTH}}] {state.number:>5,} buckets, "
            f"{state.open_jobs} jobs open"
        )


def _put_verdict(printer: StepPrinter, verdict: SplitVerdict) -> None:
    broken = {found.invariant for found in verdict.history.contradictions}
    for name in ("accepted", "ended once", "fence", "overlap", "running limit"):
        held = name not in broken
        printer.line(
            f"{'holds ' if held else 'BROKEN'}  {INVARIANTS[name]}", "green" if held else "red"
        )
    in_order = not verdict.out_of_order
    printer.line(
        f"{'holds ' if in_order else 'BROKEN'}  jobs of a customer, or of a unique key, ran one "
        "after the other",
        "green" if in_order else "red",
    )
    for found in verdict.history.contradictions[:20]:
        printer.line(str(found), "red")
    sentence = f"{verdict.accepted:,} jobs: nothing was lost, nothing ended twice."
    printer.line(
        sentence if verdict.holds else "THE CHECK FAILED.", "green" if verdict.holds else "red"
    )
