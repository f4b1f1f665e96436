"""Jobs in PostgreSQL: the app's own database, any number of workers.

`broker` composes the parts. What any store in tables does is in brokers/tables: settle, act, look.
Here is what this one does in its own way: enqueue, claim, renew, prune, scan. The schema is
sql/schema.sql; the hot path is in functions/, one round trip for each call; every other statement
is in the file of its verb in sql/.
"""

from penstock.brokers.postgres.broker import PostgresBroker

__all__ = ["PostgresBroker"]
