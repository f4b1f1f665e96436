"""Streams of gRPC, in a process of their own: receivers with one credit each, and a raw echo.

python -m penstock.tools.bench.remote.streams echo
python -m penstock.tools.bench.remote.streams ask PORT METHOD STREAMS SECONDS

The echo answers each message with one job, and does nothing else: what gRPC costs in this Python.
Both are asked by the same client, which sends one message and waits for one.
"""

from __future__ import annotations

import asyncio
import sys
import time
from importlib import import_module
from typing import Any

import msgspec

from penstock.manager.contract import receivers_pb2 as messages

ECHO = "/bench/Echo"
RECEIVE = "/penstock.v1.Receivers/Receive"
TASK = "bench:receive"
_ONE_JOB = messages.ReceivedJob(
    id="0190c7a2-4c1e-7a90-b2d3-5f68e0c4a1b7", attempt=1, task=TASK, arguments=b'{"number":1}'
)


async def _echo(requests: Any, _: Any) -> Any:
    async for _request in requests:
        yield messages.ReceiveAnswer(jobs=[_ONE_JOB])


async def serve_echo() -> None:
    """Prints its port, and serves until it is killed."""
    grpc, aio = import_module("grpc"), import_module("grpc.aio")
    handler = grpc.stream_stream_rpc_method_handler(
        _echo, messages.ReceiveRequest.FromString, _serialized
    )
    server = aio.server()
    handlers = grpc.method_handlers_generic_handler("bench", {"Echo": handler})
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    _say(str(port))
    await server.wait_for_termination()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _serialized(message: Any) -> bytes:
    return message.SerializeToString()


class _Run(msgspec.Struct):
    """What all streams of one run share."""

    port: int
    method: str
    ready: Any  # a barrier
    until: Any  # a future


class Asked(msgspec.Struct):
    """What the streams of one run were sent: jobs, and settlements that were applied."""

    jobs: int = 0
    settled: int = 0
    seconds: float = 0.0


async def ask(port: int, method: str, streams: int, seconds: float) -> Asked:
    """Open so many streams, each on a connection of its own, and use them for so long."""
    asked = Asked()
    until = asyncio.get_running_loop().create_future()
    ready = asyncio.Barrier(streams + 1)
    run = _Run(port, method, ready, until)
    running = [
        asyncio.create_task(_one(run, f"bench-{number}", asked)) for number in range(streams)
    ]
    await ready.wait()
    began = time.perf_counter()
    await asyncio.sleep(seconds)
    asked.seconds = time.perf_counter() - began
    found = msgspec.structs.replace(asked)
    until.set_result(None)
    await asyncio.gather(*running, return_exceptions=True)
    return found


async def _one(run: _Run, name: str, asked: Asked) -> None:
    aio = import_module("grpc.aio")
    own = (("grpc.use_local_subchannel_pool", 1),)
    async with aio.insecure_channel(f"127.0.0.1:{run.port}", own) as channel:
        call = channel.stream_stream(
            run.method,
            request_serializer=_serialized,
            response_deserializer=messages.ReceiveAnswer.FromString,
        )()
        await call.write(messages.ReceiveRequest(receiver=name, tasks=[TASK]))
        await call.read()
        await run.ready.wait()
        await call.write(messages.ReceiveRequest(credits=1))
        while not run.until.done():
            answer = await call.read()
            asked.jobs += len(answer.jobs)
            asked.settled += sum(each.state == messages.SETTLED for each in answer.settled)
            for job in answer.jobs:
                how = messages.Settlement(
                    id=job.id, attempt=job.attempt, succeed=messages.Succeed(result=b"1")
                )
                await call.write(messages.ReceiveRequest(credits=1, settlements=[how]))
        call.cancel()


def main() -> None:
    match sys.argv[1:]:
        case ["echo"]:
            asyncio.run(serve_echo())
        case ["ask", port, method, streams, seconds]:
            found = asyncio.run(ask(int(port), method, int(streams), float(seconds)))
            _say(msgspec.json.encode(found).decode())
        case words:
            raise SystemExit(f"{words}: echo, or ask PORT METHOD STREAMS SECONDS")


if __name__ == "__main__":
    main()
