"""Jobs in one SQLite file: no server, many processes, one writer at a time.

The class is one chain, a file for each group of the protocol's verbs: hand over, settle, work,
look after, look. The schema is sql/schema.sql; every other statement is a file beside it.
"""

from penstock.brokers.sqlite.looking import Looking


class SqliteBroker(Looking):
    """A Broker over one file, which is made if it is not there."""


__all__ = ["SqliteBroker"]
