"""The sink: each row of a frame becomes one job, once, however often Spark runs its tasks.

    executors                                   driver
    write: rows -> jobs -> stage(write, part)   commit: publish(write, the parts that won)
                                                abort:  discard(write)

What a task attempt staged is seen by nobody, so retries, speculation and killed processes leave
rubbish at most; the one transaction of `publish` is what makes a write. With an `id_column` the ids
are derived from the rows, and jobs are enqueued at once: the same row is the same job.
"""

from penstock.spark.sink.writer import BatchSink, StreamSink

__all__ = ["BatchSink", "StreamSink"]
