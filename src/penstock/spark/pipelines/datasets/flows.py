"""Flows: one row per flow, and which of its steps it was waiting for, from end to beginning.

The critical path is found from times alone: the step that ended last, then, of those that had ended
when it began, the one that ended last, and so on. Its steps and the gaps before them, in which a
job was due and nobody ran it, add up to the time that the flow took.

Only the last attempt of a job says which flow it is of; those before are found by the job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql.functions import (
    aggregate,
    array,
    coalesce,
    col,
    collect_list,
    concat,
    count,
    explode,
    expr,
    lit,
    max_by,
    sort_array,
    struct,
    transform,
    unix_micros,
    when,
)
from pyspark.sql.functions import avg as mean
from pyspark.sql.functions import max as maximum
from pyspark.sql.functions import min as minimum
from pyspark.sql.functions import sum as total

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PATH = "array<struct<ended:bigint,started:bigint,node:string,task:string,again:bigint>>"
_OF_STEPS = (
    "shard",
    "job",
    "position",
    "task",
    "state",
    "enqueued_at",
    "started_at",
    "ended_at",
    "finished",
)
_JOB = ["shard", "job"]


def steps(attempts: DataFrame) -> DataFrame:
    """One row per node of a flow, from clean attempts: when it first began and last ended.

    `again` counts the attempts that another one followed.
    """
    return (
        _members(attempts)
        .groupBy("shard", "flow", "node")
        .agg(
            max_by("task", "position").alias("task"),
            minimum("enqueued_at").alias("enqueued_at"),
            minimum("started_at").alias("started_at"),
            maximum("ended_at").alias("ended_at"),
            total(col("finished").cast("int")).alias("jobs"),
            total((col("finished") & (col("state") != "succeeded")).cast("int")).alias("bad"),
            total((~col("finished")).cast("bigint")).alias("again"),
        )
    )


def _members(attempts: DataFrame) -> DataFrame:
    """Every attempt that ran for a flow, with its flow and node."""
    began = attempts.where(col("started_at").isNotNull())
    named = began.where(col("flow").isNotNull()).select(*_OF_STEPS, "flow", "node")
    # Few attempts are followed by another one, so few rows meet here.
    others = began.where(col("flow").isNull() & ~col("finished")).select(*_OF_STEPS)
    tried = attempts.where(col("flow").isNotNull() & col("finished") & (col("attempt") > 1))
    return named.unionByName(others.join(tried.select(*_JOB, "flow", "node"), _JOB))


def flows(steps: DataFrame) -> DataFrame:
    """One row per flow. Its kind is the task of its last step: the job that was enqueued."""
    end = maximum("ended_at")
    return (
        steps.groupBy("shard", "flow")
        .agg(
            max_by("task", when(col("node") == col("flow"), lit(2)).otherwise(lit(1))).alias(
                "kind"
            ),
            minimum("enqueued_at").alias("enqueued_at"),
            minimum("started_at").alias("started_at"),
            end.alias("ended_at"),
            count("*").alias("steps"),
            total("jobs").alias("jobs"),
            total("bad").alias("bad"),
        )
        .withColumn("elapsed", _seconds(col("enqueued_at"), col("ended_at")))
    )


def critical_path(steps: DataFrame) -> DataFrame:
    """The steps on the critical path of each flow, with `run` and the `gap` before, in seconds.

    `run` is from the first start to the last end, with whatever lay between attempts.
    """
    node = struct(
        unix_micros("ended_at").alias("ended"),
        unix_micros("started_at").alias("started"),
        col("node"),
        col("task"),
        col("again"),
    )
    nothing = expr(f"named_struct('until', cast(null as bigint), 'path', cast(array() as {_PATH}))")
    return (
        steps.groupBy("shard", "flow")
        .agg(
            sort_array(collect_list(node), asc=False).alias("nodes"),
            unix_micros(minimum("enqueued_at")).alias("began"),
        )
        .select("shard", "flow", "began", aggregate("nodes", nothing, _walk)["path"].alias("path"))
        .select("shard", "flow", explode(transform("path", _timed)).alias("step"))
        .select("shard", "flow", "step.*")
    )


def slow_steps(path: DataFrame, flows: DataFrame) -> DataFrame:
    """Per kind of flow and task: on how many paths it was, and the time that it took there.

    `share` is its part of the time that all flows of this kind took.
    """
    kinds = flows.select("shard", "flow", "kind")
    whole = total("spent").over(Window.partitionBy("kind"))
    return (
        path.join(kinds, ["shard", "flow"])
        .groupBy("kind", "task")
        .agg(
            count("*").alias("paths"),
            mean("run").alias("run"),
            mean("gap").alias("gap"),
            total("again").alias("again"),
            total(col("run") + col("gap")).alias("spent"),
        )
        .withColumn("share", coalesce(col("spent") / when(whole > 0, whole), lit(0.0)))
    )


def _walk(found: Column, node: Column) -> Column:
    """From the end back: a node is on the path if it had ended when the one after it began."""
    on_it = found["until"].isNull() | (node["ended"] <= found["until"])
    return when(
        on_it,
        struct(node["started"].alias("until"), concat(array(node), found["path"]).alias("path")),
    ).otherwise(found)


def _timed(node: Column, at: Column) -> Column:
    before = when(at == 0, col("began")).otherwise(col("path")[at - 1]["ended"])
    return struct(
        at.alias("number"),
        node["node"].alias("node"),
        node["task"].alias("task"),
        node["again"].alias("again"),
        ((node["ended"] - node["started"]) / 1_000_000).alias("run"),
        ((node["started"] - before) / 1_000_000).alias("gap"),
    )


def _seconds(start: Column, end: Column) -> Column:
    return (unix_micros(end) - unix_micros(start)) / 1_000_000
