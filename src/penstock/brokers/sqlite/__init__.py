"""Jobs in one SQLite file: no server, many processes, one writer at a time.

`broker` composes the parts. What any store in tables does is in brokers/tables: settle, recover,
act, look. Here is what this one does in its own way: enqueue, claim, renew, prune, scan. The schema
is sql/schema.sql; every other statement is in the file of its verb beside it.
"""

from penstock.brokers.sqlite.broker import SqliteBroker

__all__ = ["SqliteBroker"]
