"""A store behind a manager, beside the same store without one and beside plain gRPC."""

from penstock.tools.bench.remote.report import bench

__all__ = ["bench"]
