"""Jobs in one SQLite file: no server, many processes, one writer at a time.

The class is one chain, a file for each group of the protocol's verbs. What any store in tables does
is in brokers/tables: settle, renew, look after, look. Here is what this one does in its own way:
hand over, claim, prune. The schema is sql/schema.sql; every other statement is in
the file of its verb beside it.
"""

from penstock.brokers.sqlite.scanning import SqliteScanning


class SqliteBroker(SqliteScanning):
    """A Broker over one file, which is made if it is not there."""


__all__ = ["SqliteBroker"]
