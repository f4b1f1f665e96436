"""The benchmark on Redis: the same measures beside what the server itself can do."""

from penstock.tools.bench.redis.report import bench

__all__ = ["bench"]
