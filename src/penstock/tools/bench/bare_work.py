"""`python -m penstock.tools.bench.bare_work ...`: the functions alone, in a process of their own.

The same thread pool size and event loop slots as a worker's child, and nothing to claim or settle:
what the worker is compared with. Says when it is ready, waits for a line, and prints when it began
and ended, and its memory.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from penstock.tools.bench.work_tasks import AWAITED, THREADED, kind_of
from penstock.worker.memory_use import memory_of


async def run(work: str, count: int, loops: int, threads: int, async_slots: int) -> None:
    """All of it: threaded functions on a pool, awaited ones here, both at once."""
    kinds = [kind_of(work, number) for number in range(count)]
    slots = asyncio.Semaphore(async_slots)

    async def awaited(kind: str) -> None:
        async with slots:
            await AWAITED[kind](loops)

    with ThreadPoolExecutor(threads) as pool:
        begun = [pool.submit(THREADED[kind], loops) for kind in kinds if kind in THREADED]
        await asyncio.gather(*(awaited(kind) for kind in kinds if kind in AWAITED))
        await asyncio.gather(*map(asyncio.wrap_future, begun))


def main() -> None:
    """The command."""
    work, *numbers = sys.argv[1:]
    count, loops, threads, async_slots = map(int, numbers)
    print("ready", flush=True)  # noqa: T201  to who has started it
    sys.stdin.readline()
    began = time.monotonic()
    asyncio.run(run(work, count, loops, threads, async_slots))
    print(json.dumps([began, time.monotonic(), memory_of()]), flush=True)  # noqa: T201  as above


if __name__ == "__main__":
    main()
