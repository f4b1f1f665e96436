"""Rules: what may be handed out, and what may not.

A rule stands beside the jobs, never in them: pausing a million jobs is one write. `pause` is the
user's, `block` is the operator's and wins: resuming leaves a block in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

import msgspec

from penstock.checks import legible


class RuleKind(StrEnum):
    PAUSE = "pause"
    BLOCK = "block"


class Rule(msgspec.Struct, frozen=True):
    """Jobs of this queue, of this task, or of both together (None = any) are not handed out."""

    kind: RuleKind
    queue: str | None = None
    task: str | None = None
    author: str = ""
    reason: str = ""
    created_at: float = 0.0
    until: float | None = None  # it ends by itself then

    def __post_init__(self) -> None:
        for name in ("queue", "task", "author", "reason"):
            said: str | None = getattr(self, name)
            if said is not None and (kept := legible(said)) is not said:
                msgspec.structs.force_setattr(self, name, kept)

    def holds(self, queue: str, task: str, now: float) -> bool:
        return (
            (self.queue is None or self.queue == queue)
            and (self.task is None or self.task == task)
            and (self.until is None or now < self.until)
        )

    @property
    def target(self) -> str:
        """What it is about, as a person says it."""
        names = [
            f"{word} {name}" for word, name in (("queue", self.queue), ("task", self.task)) if name
        ]
        return " and ".join(names) or "everything"


def rule_over(rules: Iterable[Rule], queue: str, task: str, now: float) -> Rule | None:
    """The rule that keeps these jobs back: a block if there is one, else a pause, else None."""
    found = [rule for rule in rules if rule.holds(queue, task, now)]
    return min(found, key=lambda rule: rule.kind, default=None)  # "block" < "pause"


def covered_by(rules: Iterable[Rule], now: float) -> Callable[[str, str], bool]:
    """Whether any rule keeps jobs of a queue and task back; for many of them at once."""
    places = {(rule.queue, rule.task) for rule in rules if rule.until is None or now < rule.until}

    def covered(queue: str, task: str) -> bool:
        named = ((queue, task), (queue, None), (None, task), (None, None))
        return not places.isdisjoint(named)

    return covered
