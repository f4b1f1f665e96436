"""Rollups: small tables that reports are made from, by minute, hour and day.

Plain rows that are added up: Arrow makes them, in Spark's tasks or in this process, from a part of
the raw rows, and rows of two parts are merged by addition. build.py keeps them in the lake.
"""
