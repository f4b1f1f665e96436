"""The fleet, `penstock spark-worker`: ordinary workers that run in Spark tasks on executors.

driver                                        executor
driver.py: a Spark job per slot  --task-->    slot_worker.py: a worker while the task lasts
driver_channel.py: drain, stop  <--TCP-->     settled counts, log lines
"""
