"""The pipeline: exports history to the lake, and makes reports and replays from it.

    store --lake/export.py--> lake --rollups/--> report/
                                   --replay.py--> store

Importing this imports no Spark.
"""
