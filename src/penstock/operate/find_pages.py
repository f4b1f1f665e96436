"""All jobs that match a filter, page by page: the loop around `find`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.broker.filter import Filter
from penstock.broker.views import Page
from penstock.job import Job

Find = Callable[[Filter, str | None, int], Page]


def find_pages(find: Find, filter: Filter, size: int = 1000) -> Iterator[Page]:
    """Pages, newest jobs first. Jobs of one page may be changed before the next is read."""
    after: str | None = None
    while True:
        page = find(filter, after, size)
        yield page
        if page.after is None:
            return
        after = page.after


def find_jobs(find: Find, filter: Filter) -> Iterator[Job[Any]]:
    for page in find_pages(find, filter):
        yield from page.jobs
