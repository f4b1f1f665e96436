"""`penstock bench`: how fast Penstock is on this machine.

Every figure is printed beside the raw limit of the store, measured in the same run. Nothing is
asserted: on a slow machine the figures are low, and the command still succeeds.
"""

from penstock.tools.bench.report import bench

__all__ = ["bench"]
