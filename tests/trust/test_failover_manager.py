"""The database behind a manager is lost, its standby takes its place, and receivers stay on."""

from __future__ import annotations

import threading
from collections import Counter

import grpc
import pytest

from penstock.brokers import open_broker
from penstock.job import State
from penstock.manager.access import parse_manager_tokens
from penstock.manager.contract import receivers_pb2 as contract
from penstock.manager.server import Manager
from tests.manager.conftest import Connected
from tests.stories.conftest import eventually
from tests.trust.test_failover_postgres import pair, wait_for_the_standby

__all__ = ["pair"]

JOBS, AFTERWARDS = 300, 50
TOKEN = "7f3a91c0e5d2486bb1f09e7c3a5d8264"


class Working(threading.Thread):
    """A receiver that settles whatever it is sent, on its stream, until all is settled."""

    def __init__(self, channel) -> None:
        super().__init__(daemon=True)
        self.receiver = Connected(channel, "one", tasks=["work"], credits=10)
        self.sent: Counter[str] = Counter()
        self.answered: set[str] = set()
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            while len(self.answered) < JOBS + AFTERWARDS:
                answer = next(self.receiver.stream)
                self.sent.update(job.id for job in answer.jobs)
                self.answered.update(each.id for each in answer.settled)
                if answer.jobs:
                    self._settle(answer.jobs)
        except Exception as error:
            self.error = error

    def _settle(self, jobs) -> None:
        how = [
            contract.Settlement(id=job.id, attempt=job.attempt, succeed=contract.Succeed())
            for job in jobs
        ]
        self.receiver.requests.put(contract.ReceiveRequest(settlements=how, credits=len(how)))


def test_a_receiver_sees_nothing_of_a_failover_under_load(pair):
    """Its stream stays open, what it ended meanwhile is settled, and no job is sent twice.

    The last jobs are stored when the old primary is gone: only the new one can hand them out.
    """
    wait_for_the_standby(pair.primary)
    accepted = {pair.app.tasks["work"].enqueue(n).id for n in range(JOBS)}
    first = f":{pair.primary.port}/"
    both = pair.url.replace(first, f":{pair.primary.port},127.0.0.1:{pair.standby.port}/")
    broker = open_broker(f"{both}?target_session_attrs=read-write")
    with (
        Manager(broker, "127.0.0.1:0") as manager,
        grpc.insecure_channel(f"127.0.0.1:{manager.port}") as channel,
    ):
        working = Working(channel)
        eventually(lambda: len(working.answered) >= 20)

        pair.fail_over()
        accepted |= {pair.app.tasks["work"].enqueue(n).id for n in range(AFTERWARDS)}

        working.join(120)
        assert working.error is None
        assert working.answered == accepted
        working.receiver.close()
    broker.close()
    assert set(pair.stored().values()) == {State.SUCCEEDED}
    assert set(working.sent.values()) == {1}
    ends = [event.job for event in pair.app.broker.history(limit=2000) if event.kind == "attempt"]
    assert len(ends) == len(set(ends)) == JOBS + AFTERWARDS


def test_a_standby_and_a_queue_that_is_not_there_are_different_errors(pair):
    tokens = parse_manager_tokens(f"mail:work:mail:{TOKEN}", "tokens")
    standby = pair.url.replace(f":{pair.primary.port}/", f":{pair.standby.port}/")
    broker = open_broker(standby)
    with (
        Manager(broker, "127.0.0.1:0", tokens=tokens) as manager,
        grpc.insecure_channel(f"127.0.0.1:{manager.port}") as channel,
    ):
        for queue, code in (
            ("mail", grpc.StatusCode.UNAVAILABLE),
            ("other", grpc.StatusCode.INVALID_ARGUMENT),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                Connected(channel, "one", TOKEN, tasks=["work"], queues=[queue])
            assert refused.value.code() is code
    broker.close()
