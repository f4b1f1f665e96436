"""Jobs in this process's memory, for tests and for trying out; gone when the process ends."""

from penstock.brokers.memory.broker import MemoryBroker

__all__ = ["MemoryBroker"]
