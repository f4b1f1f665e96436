"""The demo's output: numbered steps with lines below them, progress bars only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import rich.progress
import rich.text

from penstock.cli import output


class StepPrinter:
    """Prints to stdout, or, for --json, not at all."""

    def __init__(self, *, silent: bool = False) -> None:
        self.silent = silent
        self._steps = 0

    def step(self, title: str) -> None:
        self._steps += 1
        self._put(rich.text.Text(f"\n{self._steps}. {title}", "bold"))

    def line(self, text: str, style: str = "") -> None:
        self._put(rich.text.Text(f"   {text}", style))

    def print(self, table: Any) -> None:
        """A table or a styled line, as it is."""
        if not self.silent:
            output.console().print(table)

    def _put(self, text: rich.text.Text) -> None:
        if not self.silent:
            output.console().print(text, soft_wrap=True)
            sys.stdout.flush()

    @contextmanager
    def busy(self, what: str) -> Generator[None]:
        """Meanwhile a terminal shows a spinner and the time."""
        if self.silent or not sys.stdout.isatty():
            yield
            return
        with rich.progress.Progress(
            rich.progress.TextColumn("  "),
            rich.progress.SpinnerColumn(),
            rich.progress.TextColumn("{task.description}"),
            rich.progress.TimeElapsedColumn(),
            console=output.console(),
            transient=True,
            redirect_stderr=False,  # the Spark demo sends it to a file
        ) as progress:
            progress.add_task(what, total=None)
            yield

    def bar(self, total: int, what: str) -> Bar:
        return Bar(self, total, what)


class Bar:
    """Progress: a bar on a terminal, else a line for every quarter."""

    def __init__(self, printer: StepPrinter, total: int, what: str) -> None:
        self._printer = printer
        self._total = total
        self._what = what
        self._quarters = 0
        self._progress: rich.progress.Progress | None = None
        if sys.stdout.isatty() and not printer.silent:
            self._progress = rich.progress.Progress(
                rich.progress.TextColumn("   {task.description}"),
                rich.progress.BarColumn(),
                rich.progress.MofNCompleteColumn(),
                rich.progress.TimeElapsedColumn(),
                console=output.console(),
                transient=True,
            )
            self._task = self._progress.add_task(what, total=total)
            self._progress.start()

    def at(self, done: int) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=done)
            return
        quarter = 4 * done // max(self._total, 1)
        if quarter > self._quarters:
            self._quarters = quarter
            total = f"{self._total:,}"
            self._printer.line(f"{done:>{max(len(total), 7)},} of {total} {self._what}")

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
