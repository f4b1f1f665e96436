"""`penstock bench --broker postgres`: how fast Penstock is on a PostgreSQL server.

Everything is measured in rounds, and the raw limits of the server in each of them: other load on
the machine affects both sides of a ratio.
"""

from penstock.tools.bench.postgres.report import bench

__all__ = ["bench"]
