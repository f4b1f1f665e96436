"""Jobs in a Redis or Valkey server."""

from penstock.brokers.redis.broker import RedisBroker

__all__ = ["RedisBroker"]
