"""The lake: history of stores in Delta tables, exported from them and kept for good.

lake.py changes a table atomically; export.py copies what is new; marks.py says how far that went.
"""

from penstock.spark.pipelines.lake.lake import Lake

__all__ = ["Lake"]
