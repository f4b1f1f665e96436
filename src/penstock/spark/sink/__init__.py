"""The sink: each row of a DataFrame becomes one job, once, however often Spark runs its tasks.

    executors                                   driver
    write: rows -> jobs -> stage(write, part)   commit: commit_write(write, the parts that won)
                                                abort:  discard(write)

Nobody sees what a task attempt staged, so retries, speculation and killed processes leave nothing
but staged rows behind; the one transaction of `commit_write` makes the jobs. With an `id_column`
ids are derived from the rows: the same row is the same job, whichever write it comes with.
"""

from penstock.spark.sink.writer import BatchSink, StreamSink

__all__ = ["BatchSink", "StreamSink"]
