"""Workers: processes that claim jobs and run them."""

from penstock.worker.loop import Worker
from penstock.worker.supervisor import Supervisor

__all__ = ["Supervisor", "Worker"]
