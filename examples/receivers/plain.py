"""A receiver that needs nothing of Penstock: grpcio, and the two modules that protoc makes.

python -m grpc_tools.protoc -I proto --python_out=. --grpc_python_out=. penstock/v1/receivers.proto
python plain.py 127.0.0.1:7450 [TOKEN]
"""

from __future__ import annotations

import json
import os
import queue
import random
import sys
import time

import grpc

from penstock.v1 import receivers_pb2 as contract
from penstock.v1 import receivers_pb2_grpc as stubs

NAME = f"plain-{os.getpid()}"
CREDITS = 10


def add(a: int, b: int) -> int:
    return a + b


def fail(**_: object) -> None:
    raise ValueError("this one always fails")


TASKS = {"example:add": add, "example:fail": fail}


def settled(job: contract.ReceivedJob) -> contract.Settlement:
    """Run the job; how it ended."""
    how = contract.Settlement(id=job.id, attempt=job.attempt)
    try:
        result = TASKS[job.task](**json.loads(job.arguments))
        how.succeed.result = json.dumps(result).encode()
    except Exception as error:
        sentence = f"{type(error).__name__}: {error}"
        if job.failures < 3:
            how.retry_later.error = sentence
            how.retry_later.after = 2 * 10**9
        else:
            how.fail.error = sentence
    return how


def receive(receivers: stubs.ReceiversStub, metadata: tuple[tuple[str, str], ...]) -> None:
    """One stream: a credit is given back for each job that was settled."""
    requests: queue.SimpleQueue[contract.ReceiveRequest] = queue.SimpleQueue()
    requests.put(contract.ReceiveRequest(receiver=NAME, tasks=sorted(TASKS), credits=CREDITS))
    stream = receivers.Receive(iter(requests.get, None), metadata=metadata)
    for answer in stream:
        if not answer.jobs:
            continue  # a sign of life
        request = contract.SettleRequest(
            receiver=NAME, settlements=[settled(job) for job in answer.jobs]
        )
        # Sent again until it is answered: what arrived the first time is stale the second time.
        while True:
            try:
                receivers.Settle(request, timeout=30, metadata=metadata)
                break
            except grpc.RpcError as error:
                print("settling again:", error.code(), file=sys.stderr)
                time.sleep(random.uniform(0.1, 1))
        requests.put(contract.ReceiveRequest(credits=len(answer.jobs)))


def main() -> None:
    address, *token = sys.argv[1:]
    metadata = tuple(("authorization", f"Bearer {text}") for text in token)
    with grpc.insecure_channel(address) as channel:
        while True:
            try:
                receive(stubs.ReceiversStub(channel), metadata)
            except grpc.RpcError as error:
                print("connecting again:", error.code(), error.details(), file=sys.stderr)
                time.sleep(random.uniform(0.1, 1))


if __name__ == "__main__":
    main()
