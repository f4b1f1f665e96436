"""A manager in this process, and receivers that speak to it as any language does."""

from __future__ import annotations

import queue

import grpc
import pytest

from penstock.manager.contract import receivers_pb2 as contract

SECOND = 10**9


class Connected:
    """A receiver with its stream open."""

    def __init__(self, channel, name: str, token: str = "", **first):
        self.name = name
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self.requests: queue.SimpleQueue = queue.SimpleQueue()
        first.setdefault("tasks", ["mail:send"])
        self.requests.put(contract.ReceiveRequest(receiver=name, **first))
        receive = channel.stream_stream(
            "/penstock.v1.Receivers/Receive",
            request_serializer=contract.ReceiveRequest.SerializeToString,
            response_deserializer=contract.ReceiveAnswer.FromString,
        )
        self._settle = channel.unary_unary(
            "/penstock.v1.Receivers/Settle",
            request_serializer=contract.SettleRequest.SerializeToString,
            response_deserializer=contract.SettleAnswer.FromString,
        )
        self.stream = receive(iter(self.requests.get, None), metadata=self.metadata, timeout=150)
        self.first = next(self.stream)  # it is connected

    def grant(self, number: int) -> None:
        self.requests.put(contract.ReceiveRequest(credits=number))

    def jobs(self, number: int = 1) -> list[contract.ReceivedJob]:
        """The next jobs, at least so many; signs of life are passed over."""
        jobs: list[contract.ReceivedJob] = []
        while len(jobs) < number:
            jobs += next(self.stream).jobs
        return jobs

    def end(self, jobs, grant: int = 0, **outcome) -> list[str]:
        """Settle on the stream, and grant credits with it; no job may be sent meanwhile."""
        outcome = outcome or {"succeed": contract.Succeed()}
        how = [contract.Settlement(id=job.id, attempt=job.attempt, **outcome) for job in jobs]
        self.requests.put(contract.ReceiveRequest(settlements=how, credits=grant))
        settled: list[contract.Settled] = []
        while len(settled) < len(how):
            settled += next(self.stream).settled
        assert {(each.id, each.attempt) for each in settled} == {(j.id, j.attempt) for j in jobs}
        return [contract.State.Name(each.state) for each in settled]

    def settle(self, job: contract.ReceivedJob, **outcome) -> str:
        how = contract.Settlement(id=job.id, attempt=job.attempt, **outcome)
        request = contract.SettleRequest(receiver=self.name, settlements=[how])
        [state] = self._settle(request, metadata=self.metadata, timeout=60).states
        return contract.State.Name(state)

    def close(self) -> None:
        self.requests.put(None)
        self.stream.cancel()


@pytest.fixture
def connect():
    """Opens a receiver at a manager."""
    opened = []

    def at(manager, name: str = "one", token: str = "", **first) -> Connected:
        channel = grpc.insecure_channel(f"127.0.0.1:{manager.port}")
        receiver = Connected(channel, name, token, **first)
        opened.append((receiver, channel))
        return receiver

    yield at
    for receiver, channel in opened:
        receiver.close()
        channel.close()


@pytest.fixture
def enqueue():
    """Enqueues as a program in another language does."""

    def at(manager, *jobs, token: str = "") -> list[str]:
        with grpc.insecure_channel(f"127.0.0.1:{manager.port}") as channel:
            call = channel.unary_unary(
                "/penstock.v1.Receivers/Enqueue",
                request_serializer=contract.EnqueueRequest.SerializeToString,
                response_deserializer=contract.EnqueueAnswer.FromString,
            )
            metadata = (("authorization", f"Bearer {token}"),) if token else ()
            return list(call(contract.EnqueueRequest(jobs=jobs), metadata=metadata, timeout=60).ids)

    return at
