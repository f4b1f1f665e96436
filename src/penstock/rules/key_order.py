"""Order per key: fair turns between the keys of a queue, or strict order within each key.

A queue that asks for it is handed out by its keys in turn, so that no key waits for all the jobs of
another; that is all of `fair`. `wait`, `skip` and `batch` add strict order: of each key one job, or
one batch, at a time, in the order of their ids, over all tasks, versions and priorities.

    wait    a job that failed for good keeps its key back, until it is retried or deleted
    skip    however a job ended, the next one of its key may start
    batch   as skip, but a claim hands out the next jobs of the key as well, in their order, and no
            other before all of them have ended; it begins with the key of the oldest job

A job that waits for its time or its retry, or that runs, holds its key under all three. One that
waits for its needs takes its place when it is made ready: it might need one that comes after it.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args

from penstock.errors import Refused
from penstock.job import Job, Lane, State
from penstock.rules.rule import Rule, RuleKind

Ordered = Literal["wait", "skip", "batch"]
ORDERED: frozenset[str | None] = frozenset(get_args(Ordered))

T = TypeVar("T")

# Where claims begin may be guessed by anybody.
_random = random.Random()  # noqa: S311


def policies(rules: Iterable[Rule]) -> dict[str, str]:
    """The queues that are handed out by key, each with its policy."""
    return {
        rule.queue: rule.policy
        for rule in rules
        if rule.kind is RuleKind.ORDER and rule.queue and rule.policy
    }


def policy_named(queue: str, ordered: str | None, *, fair: bool) -> str | None:
    """The policy that a program asks for; None: the queue is like any other."""
    if ordered is not None and ordered not in ORDERED:
        raise Refused(
            f'queue {queue}: ordered={ordered!r} is not known: write "wait" (a job that failed '
            'keeps its key back), "skip" (the next one goes on) or "batch" (several at a time)'
        )
    return ordered or ("fair" if fair else None)


def check_same_policy(queue: str, stored: str | None, policy: str | None) -> None:
    """Refuse another policy than the one that stands."""
    if stored is not None and stored != policy:
        raise Refused(
            f"queue {queue} is {policy_text(stored)} in the store, and {policy_text(policy)} here:"
            f" change one of them, or remove the stored one with `penstock order {queue} --off`"
        )


def policy_text(policy: str | None) -> str:
    """A policy as a program asks for it."""
    if policy is None:
        return "not ordered"
    return "fair=True" if policy == "fair" else f'ordered="{policy}"'


def holds(job: Job[Any], policy: str) -> bool:
    """Whether a job in this state keeps later ones of its key back."""
    return job.state in {State.READY, State.RUNNING} or (
        policy == "wait" and job.state is State.FAILED
    )


def goes_with_others(job: Job[Any]) -> bool:
    """Whether a batch may hold it beside others: one that went wrong before is handed out alone."""
    return not (job.failures or job.lapses)


def in_turn(
    offers: Sequence[T], policy_of: Mapping[str, str], lane_of: Callable[[T], Lane]
) -> list[T]:
    """The offers in their order, but with lanes of one such queue and priority shuffled.

    The keys of a queue are in several lanes where it has several tasks, and none of these lanes is
    to wait until another is empty.
    """
    offers = list(offers)
    positions: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for position, offer in enumerate(offers):
        lane = lane_of(offer)
        if lane.queue in policy_of:
            positions[lane.queue, lane.priority].append(position)
    for group in positions.values():
        mixed = [offers[position] for position in group]
        _random.shuffle(mixed)
        for position, offer in zip(group, mixed, strict=True):
            offers[position] = offer
    return offers
