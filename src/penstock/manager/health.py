"""What a manager says of itself over HTTP on loopback: /live, /ready, and /metrics for Prometheus.

Labels are the queue, for a bounded number of them, and the receiver, for as many as are shown.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.broker.protocol import Broker
from penstock.enqueue.ids import Ids
from penstock.errors import PenstockError
from penstock.manager.dispatch import Dispatch

MOST_RECEIVERS_SHOWN = 200
ANY_QUEUE = "*"
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
Labels = tuple[tuple[str, str], ...]


class ManagerHealth:
    """Answers the probes of one manager."""

    def __init__(self, broker: Broker, dispatch: Dispatch, wrong_tokens: Callable[[], int]) -> None:
        self._broker = broker
        self._dispatch = dispatch
        self._wrong_tokens = wrong_tokens
        self._ids = Ids(broker.clock)
        self._asking = threading.Lock()  # many probes are one call of the store at a time

    def live(self) -> tuple[bool, dict[str, Any]]:
        return True, {}

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether the store answers."""
        with self._asking:
            try:
                self._broker.get(self._ids.first())
            except PenstockError as error:
                return False, {"error": str(error)}
        return True, {"receivers": len(self._dispatch.receivers())}

    def metrics(self) -> str:
        counters = self._dispatch.counters
        sent, not_sent, ended = counters.copy()
        connected: Counter[Labels] = Counter()
        wanted: dict[Labels, int] = {}
        held: dict[Labels, int] = {}
        for row, free, jobs in self._dispatch.receivers():
            for queue in row.queues or (ANY_QUEUE,):
                connected[(("queue", queue),)] += 1
            name = (("receiver", row.id.removeprefix("receiver/")),)
            if len(wanted) < MOST_RECEIVERS_SHOWN:
                wanted[name], held[name] = free, jobs
        families = (
            _family("receivers", "gauge", "Receivers that are connected, by queue.", connected),
            _family("receiver_credits", "gauge", "Jobs that a receiver would take.", wanted),
            _family("receiver_jobs", "gauge", "Jobs that a receiver holds.", held),
            _family("jobs_sent_total", "counter", "Jobs sent to receivers.", _by_queue(sent)),
            _family(
                "jobs_not_sent_total",
                "counter",
                "Jobs claimed for a receiver and put back, uncounted.",
                _by_queue(not_sent),
            ),
            _family(
                "settled_total",
                "counter",
                "Settlements of receivers, by what became of the job; stale ones changed nothing.",
                {(("queue", queue), ("outcome", how)): n for (queue, how), n in ended.items()},
            ),
            _family("claims_total", "counter", "Claims at the store.", {(): counters.claims}),
            _family(
                "failed_rounds_total",
                "counter",
                "Claims that the store did not answer.",
                {(): counters.failed_rounds},
            ),
            _family("wrong_tokens_total", "counter", "Wrong tokens.", {(): self._wrong_tokens()}),
        )
        return "".join(families)


def _by_queue(numbers: Mapping[str, int]) -> dict[Labels, int]:
    return {(("queue", queue),): number for queue, number in numbers.items()}


def _family(name: str, kind: str, text: str, samples: Mapping[Labels, int]) -> str:
    """In the text format of Prometheus."""
    full = f"penstock_manager_{name}"
    lines = [f"# HELP {full} {text}", f"# TYPE {full} {kind}"]
    lines += [f"{full}{_labels(labels)} {number}" for labels, number in samples.items()]
    return "\n".join(lines) + "\n"


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    inside = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels)
    return f"{{{inside}}}" if inside else ""
