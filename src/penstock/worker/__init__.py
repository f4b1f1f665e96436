"""Workers: processes that claim jobs and run them."""

from penstock.worker.loop import Worker

__all__ = ["Worker"]
