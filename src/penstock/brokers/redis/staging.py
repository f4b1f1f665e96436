"""Staged writes: a hash per part, so that those who write parts never meet.

    staged:<write>             set    the parts of a write
    part:<n>:<write>:<part>    hash   id -> row of the job; n is the length of the write's name
    staged_at                  hash   write -> when something was added last

A job that a part has already is left as it is: nothing is read to add to a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.broker.checks import check_stage
from penstock.brokers.memory.broker import MemoryBroker
from penstock.brokers.redis.rows import id_bytes, id_of, job_of, row_of
from penstock.brokers.redis.store import RedisStore
from penstock.job import Job, Parcel


class RedisStaging(MemoryBroker):
    """Stage and discard; a commit takes the parts from here."""

    stored: RedisStore

    def stage(self, write: str, part: str, jobs: Sequence[Job[Any] | Parcel]) -> int:
        check_stage(write, part)
        if not jobs:
            return self.stored.change.look("HLEN", _part_key(write, part))
        change, now, key = self.stored.change, self.clock.now(), _part_key(write, part)
        change.adds = True
        for job in self._check(jobs, now):
            change.write("HSETNX", key, id_bytes(job.id), row_of(job))
        change.write("SADD", _write_key(write), part)
        self.stored.staged_at[write] = now
        return 0

    def discard(self, write: str) -> None:
        check_stage(write)
        change = self.stored.change
        for part in change.look("SMEMBERS", _write_key(write)):
            change.write("DEL", _part_key(write, part.decode()))
        change.write("DEL", _write_key(write))
        self.stored.staged_at.pop(write, None)

    def _staged(self, write: str) -> dict[str, dict[str, Job[Any]]]:
        change = self.stored.change
        names = [part.decode() for part in change.read("SMEMBERS", _write_key(write))]
        keys = [_part_key(write, part) for part in names]
        # Nothing is ever changed in a part, only added: it is the same if it has as many.
        change.read_many([("HLEN", key) for key in keys])
        replies = change.look_many([("HGETALL", key) for key in keys])
        return {
            part: {
                (job_id := id_of(field)): job_of(job_id, row)
                for field, row in sorted(zip(reply[::2], reply[1::2], strict=True))
            }
            for part, reply in zip(names, replies, strict=True)
        }


def _write_key(write: str) -> str:
    return f"staged:{write}"


def _part_key(write: str, part: str) -> str:
    return f"part:{len(write)}:{write}:{part}"
