"""Penstock on Spark: `session()` makes a session with Penstock, `attach(spark)` sets up yours.

Importing this imports no Spark: that happens when a session is made.
"""

from penstock.spark.apply_frame import apply
from penstock.spark.lineage import lineage_of
from penstock.spark.pipelines.fill_lake import fill_lake
from penstock.spark.row_ids import row_id
from penstock.spark.session import attach, session
from penstock.spark.session_store import store_of
from penstock.spark.ship_code import ship

__all__ = ["apply", "attach", "fill_lake", "lineage_of", "row_id", "session", "ship", "store_of"]
