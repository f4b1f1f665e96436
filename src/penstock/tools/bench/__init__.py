"""What this machine can do: `penstock bench`.

Every figure stands beside the limit of the store itself, measured in the same run; nothing is
asserted, so that a slow machine is a fact and not a failure.
"""

from penstock.tools.bench.report import bench

__all__ = ["bench"]
