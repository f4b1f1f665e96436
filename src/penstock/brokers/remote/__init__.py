"""A store of a manager, over gRPC: a broker for machines that cannot open the store themselves."""

from penstock.brokers.remote.broker import RemoteBroker

__all__ = ["RemoteBroker"]
