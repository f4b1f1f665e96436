"""Which Penstock this is, and which of two is the older."""

from __future__ import annotations

import re

# As in pyproject.toml. Written down here too: to read what is installed takes 25 ms of each start.
RELEASE = "0.1.0"
# What is installed; on the public index `penstock`, the import name, is another project's.
DISTRIBUTION = "penstock-queue"
_FORM = re.compile(r"(?P<numbers>\d+(?:\.\d+)*)(?:\.?(?P<before>dev|a|b|rc)(?P<number>\d*))?")
_BEFORE = {"dev": -4, "a": -3, "b": -2, "rc": -1, None: 0}


def age_order(text: str) -> tuple[tuple[int, ...], int, int]:
    """A key by which an older release comes first; one that cannot be read is the oldest."""
    match = _FORM.match(text)
    if match is None:
        return (), 0, 0
    numbers = [int(number) for number in match["numbers"].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers), _BEFORE[match["before"]], int(match["number"] or 0)
