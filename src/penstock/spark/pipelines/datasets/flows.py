"""Flows: one row per flow, one per step, and the steps on each flow's critical path.

The critical path is computed from times alone, backwards: the step that ended last; before it, of
the steps that had ended when it began, the one that ended last; and so on. The runs of these steps
and the gaps before them, in which a job was due and no worker ran it, add up to the flow's time.

Only a job's last attempt names its flow; earlier attempts are joined to it by job id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PATH = "array<struct<ended:bigint,started:bigint,node:string,task:string,again:bigint>>"
_STEP_COLUMNS = (
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
    """One row per node of a flow, from clean attempts: first start, last end.

    `again` counts attempts that were followed by another one.
    """
    return (
        _members(attempts)
        .groupBy("shard", "flow", "node")
        .agg(
            F.max_by("task", "position").alias("task"),
            F.min("enqueued_at").alias("enqueued_at"),
            F.min("started_at").alias("started_at"),
            F.max("ended_at").alias("ended_at"),
            F.sum(F.col("finished").cast("int")).alias("jobs"),
            F.sum((F.col("finished") & (F.col("state") != "succeeded")).cast("int")).alias("bad"),
            F.sum((~F.col("finished")).cast("bigint")).alias("again"),
        )
    )


def _members(attempts: DataFrame) -> DataFrame:
    """All attempts that started for a flow, with their flow and node."""
    began = attempts.where(F.col("started_at").isNotNull())
    named = began.where(F.col("flow").isNotNull()).select(*_STEP_COLUMNS, "flow", "node")
    # Few attempts are retried, so this join is small.
    others = began.where(F.col("flow").isNull() & ~F.col("finished")).select(*_STEP_COLUMNS)
    tried = attempts.where(F.col("flow").isNotNull() & F.col("finished") & (F.col("attempt") > 1))
    return named.unionByName(others.join(tried.select(*_JOB, "flow", "node"), _JOB))


def flows(steps: DataFrame) -> DataFrame:
    """One row per flow. Its kind is the task of its final job, whose id is the flow's id."""
    return (
        steps.groupBy("shard", "flow")
        .agg(
            F.max_by(
                "task", F.when(F.col("node") == F.col("flow"), F.lit(2)).otherwise(F.lit(1))
            ).alias("kind"),
            F.min("enqueued_at").alias("enqueued_at"),
            F.min("started_at").alias("started_at"),
            F.max("ended_at").alias("ended_at"),
            F.count("*").alias("steps"),
            F.sum("jobs").alias("jobs"),
            F.sum("bad").alias("bad"),
        )
        .withColumn("elapsed", _seconds(F.col("enqueued_at"), F.col("ended_at")))
    )


def critical_path(steps: DataFrame) -> DataFrame:
    """The steps on the critical path of each flow, with `run` and the `gap` before it, in seconds.

    `run` is from first start to last end, including the time between attempts.
    """
    node = F.struct(
        F.unix_micros("ended_at").alias("ended"),
        F.unix_micros("started_at").alias("started"),
        F.col("node"),
        F.col("task"),
        F.col("again"),
    )
    empty_path = F.expr(
        f"named_struct('until', cast(null as bigint), 'path', cast(array() as {_PATH}))"
    )
    return (
        steps.groupBy("shard", "flow")
        .agg(
            F.sort_array(F.collect_list(node), asc=False).alias("nodes"),
            F.unix_micros(F.min("enqueued_at")).alias("began"),
        )
        .select(
            "shard",
            "flow",
            "began",
            F.aggregate("nodes", empty_path, _add_to_path)["path"].alias("path"),
        )
        .select("shard", "flow", F.explode(F.transform("path", _with_times)).alias("step"))
        .select("shard", "flow", "step.*")
    )


def slow_steps(path: DataFrame, flows: DataFrame) -> DataFrame:
    """Per kind of flow and task: on how many critical paths it is, and the time that it took there.

    `share` is its fraction of the total time of all flows of that kind.
    """
    kinds = flows.select("shard", "flow", "kind")
    whole = F.sum("spent").over(Window.partitionBy("kind"))
    return (
        path.join(kinds, ["shard", "flow"])
        .groupBy("kind", "task")
        .agg(
            F.count("*").alias("paths"),
            F.avg("run").alias("run"),
            F.avg("gap").alias("gap"),
            F.sum("again").alias("again"),
            F.sum(F.col("run") + F.col("gap")).alias("spent"),
        )
        .withColumn("share", F.coalesce(F.col("spent") / F.when(whole > 0, whole), F.lit(0.0)))
    )


def _add_to_path(found: Column, node: Column) -> Column:
    """Nodes come last end first: one is on the path if it ended before the path so far began."""
    on_path = found["until"].isNull() | (node["ended"] <= found["until"])
    return F.when(
        on_path,
        F.struct(
            node["started"].alias("until"), F.concat(F.array(node), found["path"]).alias("path")
        ),
    ).otherwise(found)


def _with_times(node: Column, at: Column) -> Column:
    before = F.when(at == 0, F.col("began")).otherwise(F.col("path")[at - 1]["ended"])
    return F.struct(
        at.alias("number"),
        node["node"].alias("node"),
        node["task"].alias("task"),
        node["again"].alias("again"),
        ((node["ended"] - node["started"]) / 1_000_000).alias("run"),
        ((node["started"] - before) / 1_000_000).alias("gap"),
    )


def _seconds(start: Column, end: Column) -> Column:
    return (F.unix_micros(end) - F.unix_micros(start)) / 1_000_000
