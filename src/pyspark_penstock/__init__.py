"""Registers the data source `penstock` by its name: Spark looks for modules called pyspark_*.

Spark imports this in a Python process of its own, and only where that process can import Penstock;
`penstock.spark.session()` and `attach(...)` register the source in every case.
"""

from penstock.spark.source.data_source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
