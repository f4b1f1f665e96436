"""Rules: what may be handed out, and what may not.

A rule stands beside the jobs, never in them: pausing a million jobs is one write. `pause` is the
user's, `block` is the operator's and wins: resuming leaves a block in force. `limit` bounds how
many run, and how many start in a time, over all workers together: see `penstock.rules.limits`.
`order` says whose turn it is in a queue; see `penstock.rules.key_order`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable
from enum import StrEnum
from typing import Any

import msgspec

from penstock.broker.checks import MOST_NAME_CHARACTERS, legible
from penstock.errors import Refused
from penstock.job import Job


class RuleKind(StrEnum):
    PAUSE = "pause"
    BLOCK = "block"
    LIMIT = "limit"
    ORDER = "order"


class Rule(msgspec.Struct, frozen=True):
    """Holds back jobs that match all that it names (None: any), or limits how many run.

    Queue, task and version are those of the job, `tag` one of its tags with its value, `key` its
    key. A limit names a queue, a task or both, and `per_key` counts each key on its own (jobs
    without one are not counted): at most `running` at a time, and at most `rate[0]` starts in any
    `rate[1]` seconds. An order names a queue and one `policy`, see POLICIES.
    """

    kind: RuleKind
    queue: str | None = None
    task: str | None = None
    author: str = ""
    reason: str = ""
    created_at: float = 0.0
    until: float | None = None  # it ends by itself then
    version: int | None = None
    tag: tuple[str, str] | None = None
    key: str | None = None
    running: int | None = None
    rate: tuple[int, float] | None = None
    per_key: bool = False
    policy: str | None = None

    def __post_init__(self) -> None:
        for name in ("queue", "task", "author", "reason", "key"):
            value: str | None = getattr(self, name)
            if value is not None and (kept := legible(value)) is not value:
                msgspec.structs.force_setattr(self, name, kept)
        if self.tag is not None:
            tag = (legible(self.tag[0]), legible(self.tag[1]))
            msgspec.structs.force_setattr(self, "tag", tag)
            # Longer ones are indexed by their beginning alone.
            if not self.tag[0] or max(map(len, self.tag)) > MOST_NAME_CHARACTERS:
                raise Refused(
                    f"tag {self.tag[0][:60]!r}: a rule names a tag and its value, each of up to "
                    f"{MOST_NAME_CHARACTERS} characters"
                )
        if self.key == "":
            raise Refused("a rule about the key '': name the key, or leave it out")
        self._check_limit()
        self._check_order()

    def _check_order(self) -> None:
        if self.kind is not RuleKind.ORDER:
            if self.policy is not None:
                raise Refused(f"a {self.kind} has no policy: that is of an order")
            return
        if self.policy not in POLICIES:
            raise Refused(f"an order {self.policy!r}: there are {', '.join(POLICIES)}")
        if (
            self.queue is None
            or self.until is not None
            or self.identity != _identity_of_order(self.queue)
        ):
            raise Refused("an order is about a whole queue, until it is taken back")

    def _check_limit(self) -> None:
        if self.kind is not RuleKind.LIMIT:
            if self.running is not None or self.rate is not None or self.per_key:
                raise Refused(f"a {self.kind} has no numbers: those are of a limit")
            return
        if self.version is not None or self.tag is not None or self.key is not None:
            raise Refused("a limit is about a queue, a task or both, and with per_key each key")
        if self.running is None and self.rate is None:
            raise Refused(f"how many of {self.target}? A limit needs running, rate or both")
        if self.rate is not None:
            _, seconds = self.rate
            if not 0 < seconds <= _LONGEST_WINDOW:
                raise Refused(f"a rate in {seconds:g} s: up to {_LONGEST_WINDOW:.0f} s (a day)")

    @property
    def identity(self) -> Hashable:
        """What it names: setting a rule replaces the one with the same identity."""
        return self.kind, self.queue, self.task, self.version, self.tag, self.key, self.per_key

    @property
    def id(self) -> str:
        """A hash of its identity: what a rule is cleared by."""
        return _id_of(self.identity)

    def in_force(self, now: float) -> bool:
        return self.until is None or now < self.until

    def holds(self, queue: str, task: str, now: float) -> bool:
        """Whether it is in force and names this queue and this task, or any."""
        return (
            (self.queue is None or self.queue == queue)
            and (self.task is None or self.task == task)
            and (self.until is None or now < self.until)
        )

    @property
    def by_job(self) -> bool:
        """Whether it must be checked job by job, because jobs of one lane may differ in it."""
        return self.tag is not None or self.key is not None

    def fits(self, job: Job[Any]) -> bool:
        """Whether the job is one of those it is about."""
        return (
            (self.queue is None or self.queue == job.queue)
            and (self.task is None or self.task == job.task)
            and (self.version is None or self.version == job.version)
            and (self.key is None or self.key == job.key)
            and (self.tag is None or job.tags.get(self.tag[0]) == self.tag[1])
        )

    @property
    def freezes(self) -> bool:
        """Whether it is the freeze of a store: a block of everything."""
        return self.kind is RuleKind.BLOCK and self.id == FREEZE_ID

    @property
    def target(self) -> str:
        """What it is about, as a person says it."""
        named = (
            ("queue", self.queue),
            ("task", self.task),
            ("version", None if self.version is None else str(self.version)),
            ("tag", None if self.tag is None else "=".join(self.tag)),
            ("key", self.key),
        )
        words = [f"{word} {name}" for word, name in named if name]
        return " and ".join(words) or "everything"

    @property
    def words(self) -> list[str]:
        """What it is about, as the command line says it."""
        words = [] if self.queue is None else [self.queue]
        words += [] if self.task is None else ["--task", self.task]
        words += [] if self.version is None else ["--version", str(self.version)]
        words += [] if self.tag is None else ["--tag", "=".join(self.tag)]
        words += [] if self.key is None else ["--key", self.key]
        words = words or ["--all"]
        return words + (["--per-key"] if self.per_key else [])

    @property
    def bound(self) -> str:
        """A limit's numbers, as a person says them."""
        parts: list[str] = []
        if self.running is not None:
            parts.append(f"{self.running:,} running")
        if self.rate is not None:
            parts.append(f"{self.rate[0]:,} starts in {self.rate[1]:g} s")
        return " and ".join(parts) + (", each key on its own" if self.per_key else "")

    def data(self, *, in_force: bool) -> dict[str, Any]:
        """What the history keeps of a change."""
        data: dict[str, Any] = {
            "id": self.id,
            "kind": self.kind,
            "queue": self.queue,
            "task": self.task,
            "author": self.author,
            "reason": self.reason,
            "set": in_force,
        }
        for name in ("version", "tag", "key", "running", "rate", "policy", "until"):
            value = getattr(self, name)
            if value is not None:
                data[name] = value
        return data | ({"per_key": True} if self.per_key else {})


POLICIES = ("wait", "skip", "batch", "fair")
_LONGEST_WINDOW = 86400.0
_LONGEST_NAMES = {"queue": MOST_NAME_CHARACTERS, "task": MOST_NAME_CHARACTERS, "key": 500}
_MOST = 2**31 - 1


def rule_id(
    kind: RuleKind,
    queue: str | None = None,
    task: str | None = None,
    *,
    version: int | None = None,
    tag: tuple[str, str] | None = None,
    key: str | None = None,
    per_key: bool = False,
) -> str:
    """The id of the rule with this identity, whatever its bounds."""
    names = [None if name is None else legible(name) for name in (queue, task, key)]
    words = None if tag is None else (legible(tag[0]), legible(tag[1]))
    return _id_of((kind, names[0], names[1], version, words, names[2], per_key))


def _id_of(identity: Hashable) -> str:
    return hashlib.sha256(msgspec.json.encode(identity)).hexdigest()[:12]


# A store is frozen by a block that names nothing.
FREEZE_ID = rule_id(RuleKind.BLOCK)


def frozen(rules: Iterable[Rule], now: float) -> Rule | None:
    """The freeze of a store, if it is in force."""
    return next((rule for rule in rules if rule.freezes and rule.in_force(now)), None)


def signed(rule: Rule, author: str, reason: str) -> Rule:
    """The rule with its author and reason, unless it names others already."""
    return msgspec.structs.replace(rule, author=rule.author or author, reason=rule.reason or reason)


def _identity_of_order(queue: str) -> Hashable:
    return RuleKind.ORDER, queue, None, None, None, None, False


_HOLDING = (RuleKind.PAUSE, RuleKind.BLOCK)


def rule_over(
    rules: Iterable[Rule], queue: str, task: str, now: float, version: int | None = None
) -> Rule | None:
    """The rule that keeps all of these jobs back: a block if there is one, else a pause."""
    holding = [
        rule
        for rule in rules
        if rule.kind in _HOLDING
        and not rule.by_job
        and rule.version in {None, version}
        and rule.holds(queue, task, now)
    ]
    return min(holding, key=lambda rule: rule.kind, default=None)  # "block" < "pause"


def rule_over_job(rules: Iterable[Rule], job: Job[Any], now: float) -> Rule | None:
    """The rule that keeps this job back: a block if there is one, else a pause, else None."""
    holding = [
        rule for rule in rules if rule.kind in _HOLDING and rule.in_force(now) and rule.fits(job)
    ]
    return min(holding, key=lambda rule: rule.kind, default=None)


def covered_by(rules: Iterable[Rule], now: float) -> Callable[[str, str, int | None], bool]:
    """Whether any rule keeps whole lanes of a queue, task and version back; for many at once."""
    covered_lanes = {
        (rule.queue, rule.task, rule.version)
        for rule in rules
        if rule.kind in _HOLDING and not rule.by_job and rule.in_force(now)
    }

    queues, tasks = {lane[0] for lane in covered_lanes}, {lane[1] for lane in covered_lanes}

    def covered(queue: str, task: str, version: int | None = None) -> bool:
        named = (queue in queues or None in queues) and (task in tasks or None in tasks)
        if not named:
            return False
        pairs = ((queue, task), (queue, None), (None, task), (None, None))
        return not covered_lanes.isdisjoint(
            (*pair, each) for pair in pairs for each in (version, None)
        )

    return covered


def check_rule(rule: Rule) -> None:
    """Refuse names that no job can have, and numbers that no store can keep.

    Only when a rule is set: one that is stored is read all the same, so that no worker stops.
    """
    for name, most in _LONGEST_NAMES.items():
        value: str | None = getattr(rule, name)
        if value is not None and len(value) > most:
            raise Refused(f"{name} {value[:60]!r}: no job's has more than {most} characters")
    if rule.running is not None and rule.running < 1:
        raise Refused(
            f"a limit of {rule.running} running: it is 1 or more; pause holds back everything"
        )
    if rule.rate is not None and rule.rate[0] < 1:
        raise Refused(f"a rate of {rule.rate[0]}: it is 1 or more; pause holds back everything")
    for number in (rule.running, rule.rate and rule.rate[0]):
        if number is not None and number > _MOST:
            raise Refused(f"a limit of {number:,}: up to {_MOST:,}")
