"""Rules: what may be handed out, and what may not.

A rule stands beside the jobs, never in them: pausing a million jobs is one write. `pause` is the
user's, `block` is the operator's and wins: resuming leaves a block in force. `limit` bounds how
many run, and how many start in a time, over all workers together: `Limits` is the arithmetic.
`order` says whose turn it is in a queue; see `penstock.rules.key_order`.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from penstock.broker.checks import MOST_NAME_CHARACTERS, legible
from penstock.errors import Refused
from penstock.job import Job, Lane


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
    `rate[1]` seconds. An order names a queue and one `policy`: "wait", "skip" or "fair".
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
        if self.running is not None and self.running < 1:
            raise Refused(
                f"a limit of {self.running} running: it is 1 or more; pause holds back everything"
            )
        if self.rate is not None:
            jobs, seconds = self.rate
            if jobs < 1:
                raise Refused(f"a rate of {jobs}: it is 1 or more; pause holds back everything")
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


POLICIES = ("wait", "skip", "fair")
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


_RATE = re.compile(r"\s*(\d{1,9})\s*/\s*(\d+(?:\.\d+)?)?\s*(ms|s|sec|m|min|h|d)\s*")
_UNITS = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def limit_rule(
    queue: str | None, task: str | None, author: str = "", reason: str = "", **bounds: Any
) -> Rule:
    """A limit with these bounds; a rate may be a text, as people write it."""
    if queue is None and task is None:
        raise Refused("limit what? Name a queue, task=..., or both")
    if isinstance(bounds.get("rate"), str):
        bounds["rate"] = parse_rate(bounds["rate"])
    return Rule(RuleKind.LIMIT, queue, task, author, reason, **bounds)


def check_rule(rule: Rule) -> None:
    """Refuse names that no job can have, and numbers that no store can keep.

    Only when a rule is set: one that is stored is read all the same, so that no worker stops.
    """
    for name, most in _LONGEST_NAMES.items():
        value: str | None = getattr(rule, name)
        if value is not None and len(value) > most:
            raise Refused(f"{name} {value[:60]!r}: no job's has more than {most} characters")
    for number in (rule.running, rule.rate and rule.rate[0]):
        if number is not None and number > _MOST:
            raise Refused(f"a limit of {number:,}: up to {_MOST:,}")


def parse_rate(text: str) -> tuple[int, float]:
    """So many starts in so many seconds, as people write it: `10/s`, `100/min`, `5/30s`."""
    match = _RATE.fullmatch(text)
    if match is None:
        raise Refused(f"rate {text!r}: write 10/s, 100/min, 5/30s, with a unit of ms, s, min, h, d")
    return int(match[1]), float(match[2] or 1) * _UNITS[match[3]]


def slack_of(seconds: float) -> float:
    """How long after its claim a job may begin that is under a rate of so many seconds.

    A claim is counted as a start, and the start comes a little later: counted for the window and
    this much more, no window has more starts than the rate says.
    """
    return min(1.0, max(0.05, seconds / 10))


class Use(NamedTuple):
    """What stands against a limit: how many run, and when how many started."""

    running: int
    starts: Sequence[tuple[float, int]]


class Room(NamedTuple):
    """What is left under the limits of a lane."""

    jobs: int
    rule: Rule | None = None  # the one that leaves the least
    free_in: float | None = None  # with nothing left: seconds until more may start, if known


class Limits:
    """How many more jobs the limits in force allow, during one claim or look.

    `use_of(rule, key)` asks the store, once for each; what is taken meanwhile is kept in `started`.
    `now` is the time that leases run in: no jump of a wall clock opens or shuts a window.
    """

    def __init__(
        self,
        rules: Iterable[Rule],
        use_of: Callable[[Rule, str | None], Use],
        now: float,
    ) -> None:
        self.rules = [rule for rule in rules if rule.kind is RuleKind.LIMIT]
        self.started: Counter[tuple[Rule, str | None]] = Counter()
        self._use_of = use_of
        self._now = now
        self._uses: dict[tuple[Rule, str | None], Use] = {}

    def over(self, lane: Lane, *, per_key: bool) -> list[Rule]:
        """The limits that jobs of this lane come under."""
        return [
            rule
            for rule in self.rules
            if rule.per_key is per_key
            and rule.queue in {None, lane.queue}
            and rule.task in {None, lane.task}
        ]

    def room(self, lane: Lane, most: int, key: str | None = None) -> Room:
        """How many jobs of the lane may start: of this key, or of any as far as no key matters."""
        if not self.rules or (key is None and most <= 0):
            return Room(most)
        tightest = Room(most)
        for rule in self.over(lane, per_key=key is not None):
            room = self._left(rule, key)
            if room.jobs < tightest.jobs or (room.jobs <= 0 and _is_free_later(room, tightest)):
                tightest = room
        return tightest

    def took(self, lane: Lane, jobs: int, key: str | None = None) -> None:
        """So many jobs of the lane start now, of this key."""
        for rule in self.over(lane, per_key=False):
            self.started[rule, None] += jobs
        if key is not None:
            for rule in self.over(lane, per_key=True):
                self.started[rule, key] += jobs

    def start_within(self, lane: Lane) -> float | None:
        """How long after its claim a job of the lane may begin; None: no rate says."""
        rates = [
            rule.rate
            for per_key in (False, True)
            for rule in self.over(lane, per_key=per_key)
            if rule.rate is not None
        ]
        return min((slack_of(seconds) for _, seconds in rates), default=None)

    def _left(self, rule: Rule, key: str | None) -> Room:
        use = self._uses.get((rule, key))
        if use is None:
            use = self._uses[rule, key] = self._use_of(rule, key)
        started = self.started[rule, key]
        left: list[Room] = []
        if rule.running is not None:
            left.append(Room(max(0, rule.running - use.running - started), rule))
        if rule.rate is not None:
            jobs, seconds = rule.rate
            window = seconds + slack_of(seconds)
            recent = sorted((at, count) for at, count in use.starts if at > self._now - window)
            used = sum(count for _, count in recent) + started
            free_in = window
            over = used - jobs  # after a lowering several have to pass before one may start
            for at, count in recent:
                over -= count
                if over < 0:
                    free_in = at + window - self._now
                    break
            left.append(Room(max(0, jobs - used), rule, free_in))
        # If both limits are exhausted, report the one with no known end.
        return min(left, key=lambda room: (room.jobs, -_seconds_until_free(room)))


def _seconds_until_free(room: Room) -> float:
    return float("inf") if room.free_in is None else room.free_in


def _is_free_later(room: Room, other: Room) -> bool:
    return other.jobs <= 0 and _seconds_until_free(room) > _seconds_until_free(other)
