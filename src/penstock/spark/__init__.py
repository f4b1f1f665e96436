"""Penstock on Spark: `session()` makes a session that knows Penstock, `attach(spark)` teaches one.

Importing this imports no Spark: that waits until a session is asked for.
"""

from penstock.spark.apply_frame import apply
from penstock.spark.row_ids import row_id
from penstock.spark.session import attach, session
from penstock.spark.session_store import store_of
from penstock.spark.ship_code import ship

__all__ = ["apply", "attach", "row_id", "session", "ship", "store_of"]
