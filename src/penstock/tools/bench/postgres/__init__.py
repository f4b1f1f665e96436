"""What a PostgreSQL server can do with Penstock: `penstock bench --broker postgres`.

Everything is measured in rounds, the raw limits of the same server in each of them: what else the
machine does meanwhile falls on both sides of every ratio.
"""

from penstock.tools.bench.postgres.report import bench

__all__ = ["bench"]
