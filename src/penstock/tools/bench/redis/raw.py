"""The raw limits of a Redis server: LPUSH in pipelines, and one SET after the other."""

from __future__ import annotations

import time

from penstock.brokers.redis.address import parse_address
from penstock.brokers.redis.connection import ServerCalls

PIPELINE = 1000
_BODY = b'{"args":{"number":1234567,"text":"' + b"x" * 60 + b'"}}'


def bulk(url: str, rows: int) -> float:
    """Values per second by LPUSH, a thousand commands to a packet."""
    server = ServerCalls(parse_address(url))
    commands = [("LPUSH", f"{server.prefix}raw", _BODY)] * PIPELINE
    began = time.perf_counter()
    for _ in range(0, rows, PIPELINE):
        server.many(commands)
    seconds = time.perf_counter() - began
    server.call("DEL", f"{server.prefix}raw")
    server.close()
    return rows / seconds


def single(url: str, rows: int) -> float:
    """Calls per second of one SET each, on one connection."""
    server = ServerCalls(parse_address(url))
    began = time.perf_counter()
    for number in range(rows):
        server.call("SET", f"{server.prefix}raw:{number % 100}", _BODY)
    seconds = time.perf_counter() - began
    for number in range(100):
        server.call("DEL", f"{server.prefix}raw:{number}")
    server.close()
    return rows / seconds
