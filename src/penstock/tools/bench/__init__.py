"""`penstock bench`: how fast Penstock is on this machine.

Every figure is printed beside the raw limit of the store, measured in the same run. Nothing is
asserted: on a slow machine the figures are low, and the command still succeeds. The workers that it
starts import their tasks from here, and nothing else: what measures is not part of their memory.
"""
