"""Dramatiq on Redis."""

from __future__ import annotations

import sys
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import GroupCallbacks
from dramatiq.rate_limits.backends import RedisBackend

from peers import work

# For what a killed worker held: how soon it is missed, and how often anyone looks.
_CARE = {"heartbeat_timeout": 15_000, "maintenance_chance": 100_000}

broker = RedisBroker(url=work.URL, **_CARE if work.KIND == "short" else {})
broker.add_middleware(GroupCallbacks(RedisBackend(url=work.URL)))
dramatiq.set_broker(broker)

TASKS = {name: dramatiq.actor(actor_name=name)(function) for name, function in work.TASKS.items()}
after = dramatiq.actor(actor_name="after")(work.last)


def about() -> dict[str, Any]:
    """What is measured, and its settings."""
    return {
        "library": "Dramatiq",
        "version": dramatiq.__version__,
        "bulk": None,
        "settings": f"16 threads a process (default: 8), {work.THREADS} where tasks wait; "
        "group with a completion callback for the fan-out",
        "kill": "heartbeat timeout 15 s (default: 60), maintenance chance 10 % (default: 0.1 %)",
    }


def open_store() -> None:
    """Nothing to make; the first connection is not measured."""
    broker.client.ping()


def close_store() -> None:
    """Connections stay: the store is flushed, not replaced."""


def enqueue(task: str, numbers: range, text: str) -> None:
    """One by one."""
    put = TASKS[task].send
    for number in numbers:
        put(number, text)


def enqueue_bulk(task: str, numbers: range, text: str) -> None:
    """There is nothing for many but a group, which sends one by one."""
    dramatiq.group([TASKS[task].message(number, text) for number in numbers]).run()


def fan_out(count: int) -> None:
    """A group with a callback."""
    group = dramatiq.group([TASKS["nothing"].message(number, "") for number in range(count)])
    group.add_completion_callback(after.message())
    group.run()


def left() -> int:
    """In the list, or taken and not acknowledged."""
    client = broker.client
    taken = sum(client.scard(key) for key in client.scan_iter("dramatiq:__acks__.*"))
    return client.llen("dramatiq:default") + taken


def workers(kind: str, processes: int) -> list[list[str]]:
    """One command, which forks the processes."""
    threads = work.THREADS if kind in {"short", "slow"} else 16
    command = [sys.executable, "-m", "dramatiq", "peers.dramatiq:broker"]
    return [[*command, "--processes", str(processes), "--threads", str(threads)]]
