"""Datasets on Spark: their tables, one run of a partition, and the pipeline that they make."""
