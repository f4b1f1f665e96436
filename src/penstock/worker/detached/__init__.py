"""Detached jobs: each in a process of its own, which outlives the worker that started it.

    supervisor
      launcher          claims with a spare row, and starts a keeper, which takes that row over
        keeper          in a session of its own: renews the row, enforces limits, settles
          run process   calls the task's function

From the start on, the keeper's row in the store decides who has the job. The files on the host (a
lock, a log, which process runs it; `state_folder.py`) only prevent a second start and let a
restarted worker find the process and adopt it (`adoption.py`).
"""
