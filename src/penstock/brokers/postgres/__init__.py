"""Jobs in PostgreSQL: the app's own database, any number of workers.

`broker.py` composes the parts. What it shares with other stores in tables is in brokers/tables:
settle, act, look. Here is what differs: enqueue, claim, renew, prune, scan. The schema is
sql/schema.sql. The hot path is in functions/, one round trip per call; every other statement is in
sql/, in the file of its verb.
"""

from penstock.brokers.postgres.broker import PostgresBroker

__all__ = ["PostgresBroker"]
