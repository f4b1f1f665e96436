"""QueueOptions: what a queue says for its jobs, where their task and they themselves say nothing.

A record per queue of a program. It keeps two sets of options apart: those that the program
declares, and what an operator has set instead; a put changes one of them and leaves the other. An
order and a limit hold by rules, which the store puts and clears in the same transaction.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, UnsetType

from penstock.broker.checks import check_name, check_text, legible
from penstock.enqueue.codec import RetryWire
from penstock.errors import Refused
from penstock.rules.rule import Rule, RuleKind, check_rule
from penstock.task.retry import Repeat, Strategy

SHORTEST_LEASE = 5.0  # a change must reach every process that renews the lease before it ends
MOST_CODES = 8
FOREVER = 1000 * 366 * 86400.0  # seconds: "forever", of what is to be kept


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options of a queue. UNSET: it says nothing; None: explicitly none, or what is built in."""

    lease: float | UnsetType | None = UNSET
    keep: float | UnsetType | None = UNSET
    retry: RetryWire | UnsetType | None = UNSET
    timeout: float | UnsetType | None = UNSET
    on_success: Strategy | UnsetType | None = UNSET
    on_error: Strategy | UnsetType | None = UNSET
    on_timeout: Strategy | UnsetType | None = UNSET
    crash_budget: int | UnsetType | None = UNSET
    order: Literal["wait", "skip", "batch", "fair"] | UnsetType | None = UNSET
    running: int | UnsetType | None = UNSET
    rate: tuple[int, float] | UnsetType | None = UNSET
    per_key: bool | UnsetType | None = UNSET
    relaxed: bool | UnsetType | None = UNSET

    @property
    def text(self) -> str:
        """What it says, for people."""
        return (
            ", ".join(f"{name}={option_text(value)}" for name, value in self.said.items())
            or "nothing"
        )

    @property
    def said(self) -> dict[str, Any]:
        """The options that it says something of."""
        pairs = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {name: value for name, value in pairs if value is not UNSET}

    def over(self, below: Options) -> Options:
        """These options; where they say nothing, those of `below`."""
        said = self.said
        return msgspec.structs.replace(below, **said) if said else below

    def without(self, names: tuple[str, ...]) -> Options:
        return msgspec.structs.replace(self, **dict.fromkeys(names, UNSET))

    def rules(self, queue: str, author: str = "", reason: str = "") -> list[Rule]:
        """The rules by which its order and its limit hold."""
        found: list[Rule] = []
        if self.order:
            policy = self.order
            found.append(Rule(RuleKind.ORDER, queue, author=author, reason=reason, policy=policy))
        running, rate = self.running or None, self.rate or None
        if self.running == 0 or running or rate:
            found.append(
                Rule(
                    RuleKind.LIMIT,
                    queue,
                    author=author,
                    reason=reason,
                    running=0 if self.running == 0 else running,
                    rate=rate,
                    per_key=bool(self.per_key),
                )
            )
        return found


OPTION_NAMES = Options.__struct_fields__
# What a task or a job may say as well.
OF_JOBS = ("timeout", "retry", "on_success", "on_error", "on_timeout", "keep", "crash_budget")
NOTHING = Options()


class QueueOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one queue of a program, as the store keeps them.

    Of one that is put: `declared` is what the program's release says, `override` what an operator
    sets beside what he set before, `reset` which of that he takes back. None: left as it is.
    """

    queue: str
    app: str = ""
    declared: Options | None = None
    code: str = ""  # the digest of the code that declared it
    declared_at: float = 0.0
    replaced: tuple[str, ...] = ()  # digests whose declarations were replaced by later ones
    override: Options | None = None
    author: str = ""  # of the override
    reason: str = ""
    set_at: float = 0.0
    # Of one that is put; never kept.
    reset: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return queue_id(self.queue, self.app)

    @property
    def effective(self) -> Options:
        """What holds."""
        return (self.override or NOTHING).over(self.declared or NOTHING)


def rules_of(record: QueueOptions) -> dict[str, Rule]:
    """The rules by which the order and the limits of a queue hold, by their ids."""
    queue, theirs, both = record.queue, record.declared or NOTHING, record.effective
    # What is as declared has no author, whatever else was set.
    as_declared = {rule.id: rule for rule in theirs.rules(queue)}
    plain = {rule.id: rule for rule in both.rules(queue)}
    signed = {rule.id: rule for rule in both.rules(queue, record.author, record.reason)}
    return {id: rule if as_declared.get(id) == rule else signed[id] for id, rule in plain.items()}


def only_declares(record: QueueOptions) -> bool:
    """Whether the record, as it is put, says what a program says and nothing of a person's."""
    return record.override is None and not record.reset


def check_queue_options(record: QueueOptions) -> None:
    """Refuse what no store can keep."""
    check_name("queue", record.queue)
    check_text("app", record.app)
    for options in (record.declared, record.override):
        if options is None:
            continue
        if isinstance(options.lease, (int, float)) and options.lease < SHORTEST_LEASE:
            raise Refused(
                f"queue {record.queue}: a lease of {options.lease:g} s: {SHORTEST_LEASE:g} s or"
                " more, so that every worker hears of a change in time"
            )
        for rule in options.rules(record.queue):
            check_rule(rule)
    for name in record.reset:
        check_option(name)


def signed(record: QueueOptions, author: str, reason: str) -> QueueOptions:
    """The record as it is put, with who puts it."""
    return msgspec.structs.replace(record, author=legible(author), reason=legible(reason))


def replaced(kept: QueueOptions | None, given: QueueOptions, now: float) -> QueueOptions:
    """What is to be kept when `given` is put; `kept` itself if nothing changes."""
    before = kept or QueueOptions(queue=given.queue, app=given.app)
    after = before
    declared, known = given.declared, before.declared
    if declared is not None and known is not None and declared.order is UNSET:
        # A program that says nothing of an order leaves the one that another declared.
        declared = msgspec.structs.replace(declared, order=known.order)
    if declared is not None and declared != known:
        codes = [code for code in (*before.replaced, before.code) if code and code != given.code]
        after = msgspec.structs.replace(
            after,
            declared=declared,
            code=given.code,
            declared_at=now,
            replaced=tuple(dict.fromkeys(codes))[-MOST_CODES:],
        )
    if given.override is not None or given.reset:
        override = (given.override or NOTHING).over(before.override or NOTHING)
        override = override.without(given.reset)
        left = override if override.said else None
        if left != before.override:
            after = msgspec.structs.replace(
                after,
                override=left,
                author=given.author if left else "",
                reason=given.reason if left else "",
                set_at=now if left else 0.0,
            )
    return kept if kept is not None and after == kept else after


def event_data(
    before: QueueOptions | None, after: QueueOptions | None, author: str, reason: str
) -> dict[str, Any]:
    """What the history says of options that were declared, set, reset or removed."""
    record = after or before
    if record is None:
        return {}
    if after is None:
        says, options = "removed", record.effective
    elif after.override != (None if before is None else before.override):
        says, options = ("set", after.override) if after.override else ("reset", NOTHING)
    else:
        says, options = "declared" if after.declared else "created", after.declared or NOTHING
    return {
        "queue": record.queue,
        "app": record.app,
        "says": says,
        "options": msgspec.to_builtins(options),
        "author": legible(author),
        "reason": legible(reason),
    }


def queue_id(queue: str, app: str = "") -> str:
    """The id of the options of a queue: names of queues have no bar."""
    return f"{app}|{queue}" if app else queue


def check_option(name: str) -> str:
    if name not in OPTION_NAMES:
        raise Refused(f"{name!r} is no option of a queue; there are {', '.join(OPTION_NAMES)}")
    return name


def option_text(value: Any) -> str:
    """The value of an option, as a person writes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "forever" if value == FOREVER else f"{value:g}s"
    if isinstance(value, tuple):
        jobs, seconds = cast("tuple[int, float]", value)
        return f"{jobs}/{seconds:g}s"
    if isinstance(value, msgspec.Struct):
        return _numbers_text(value)
    return str(value)


def _numbers_text(value: msgspec.Struct) -> str:
    """A retry or a repeat: its limit, its delay, and what else is not as it would be anyway."""
    usual = type(value)()
    fields = msgspec.structs.asdict(value)
    words = [
        f"{name}={_number_text(name, number)}"
        for name, number in fields.items()
        if name in {"limit", "delay"} or number != getattr(usual, name)
    ]
    return ("repeat:" if isinstance(value, Repeat) else "") + ",".join(words)


def _number_text(name: str, value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:g}s" if name in {"delay", "min", "max"} else f"{value}"
