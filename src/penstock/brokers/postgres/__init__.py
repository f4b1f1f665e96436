"""Jobs in PostgreSQL: the app's own database, any number of workers.

The class is one chain, a file for each group of the protocol's verbs. What any store in tables does
is in brokers/tables: settle, look after, look. Here is what this one does in its own way: hand
over, claim, prune, renew. The schema is sql/schema.sql; the hot path is in functions/, one round
trip for each call; every other statement is in the file of its verb in sql/.
"""

from penstock.brokers.postgres.scanning import PostgresScanning


class PostgresBroker(PostgresScanning):
    """A Broker over a schema of its own in a PostgreSQL database."""


__all__ = ["PostgresBroker"]
