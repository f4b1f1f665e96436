"""The lake: history of stores in Parquet files, exported from them and kept for good.

export.py copies what is new; manifest.py says which files count; lake.py changes them atomically.
"""

from penstock.spark.pipelines.lake.lake import Lake

__all__ = ["Lake"]
