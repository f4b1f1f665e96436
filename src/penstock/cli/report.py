"""pipeline report: its range, its tables in a terminal, and the file of its page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.spark.pipelines.report.queries import Range, ReportData

_WIDE = 160  # characters: tables show every column from this width on
_ROWS = 15  # of a table; the page has more


def report_range(
    since: str | None, until: str | None, task: str | None, queue: str | None
) -> Range:
    """What --since, --until, --task and --queue say."""
    from penstock.broker.filter import parse_time
    from penstock.spark.pipelines.report.queries import Range

    now = time.time()
    ends = {
        name: parse_time(text, now)
        for name, text in (("since", since), ("until", until))
        if text is not None
    }
    return Range(**ends, task=task, queue=queue)


def write_page(page_file: Path, text: str) -> None:
    """Replace the page; all of it or nothing."""
    from penstock.app.private_files import write_new

    fresh = page_file.with_name(f".{page_file.name}.new")
    try:
        write_new(fresh, text.encode())
        fresh.replace(page_file)
    except OSError as error:
        raise Refused(
            f"the page cannot be written to {page_file}: {error.strerror}; name another file with"
            " --page"
        ) from None


def print_tables(answers: ReportData) -> None:
    """The report for a terminal."""
    import rich.text

    from penstock.cli import output
    from penstock.spark.pipelines.report.page import heading
    from penstock.spark.pipelines.report.sections import sections

    console = output.console()
    output.print_text(heading(answers))
    for section in sections(answers).values():
        if not section.rows:
            continue
        output.print_text("")
        output.print_text(section.question, "bold")
        columns = [each for each in section.columns if console.width >= _WIDE or not each.detail]
        numbers = [column.head for column in columns if column.number]
        made = output.table(*(column.head for column in columns), right=numbers)
        for row in section.rows[:_ROWS]:
            made.add_row(*(rich.text.Text(column.text(row)) for column in columns))
        console.print(made)
        if len(section.rows) > _ROWS:
            output.print_text(f"{len(section.rows) - _ROWS} more are on the page", "dim")
    output.print_text("")
