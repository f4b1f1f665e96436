"""Detached jobs: each in a process of its own, which outlives the worker that started it.

    supervisor
      launcher          claims with a spare row, then starts a keeper, whose row it becomes
        keeper          in a session of its own: renews the row, settles, sees to limits
          run process   calls the task's function

The row that claimed the job becomes the keeper's: from then on nobody else renews it, and whoever
holds it decides. What the host keeps beside it (a lock, a log, a few facts in a file) only keeps a
second start out and helps a restarted worker to find what runs; none of it is the truth.
"""
