"""A notebook, cell by cell: a model that is paid by the call, asked once for each row.

Killed in any cell, it is run again from the top: rows that have an answer are not asked again.
"""

# %% The task is in a module, which workers import as well: a notebook nobody can import.
import os
from pathlib import Path

import deltalake
from model import call_model

import penstock.spark
from penstock.spark.pipelines.report.svg_plots import bars

# %% A new session, the one that runs, or with SPARK_REMOTE that of a Spark Connect server.
spark = penstock.spark.session(profile=os.environ.get("PENSTOCK_PROFILE"))
reviews = spark.range(60).selectExpr("cast(id as int) as id", "concat('review ', id) as prompt")

# %% Waits for the workers, and for the budget of tomorrow if need be. The jobs are in the store:
# if this process is killed, they go on, and next morning this cell has the answers there are.
answers = penstock.spark.apply(
    reviews,
    call_model,
    id="id",
    name="reviews-june",
    rate="500/s",
    into=str(Path("answers").absolute()),
)
tokens = answers.selectExpr("count(result) as answers", "sum(result.tokens) as tokens").first()
print(f"{tokens.answers} of {reviews.count()} rows have an answer, of {tokens.tokens} tokens")

# %% The history of the calls, for good: Delta tables, which need no Spark to be read.
penstock.spark.fill_lake(spark, "lake")
minutes = deltalake.DeltaTable("lake/minutes").to_pandas()
calls = minutes[(minutes.task == call_model.name) & (minutes.measure == "ended")]
calls = calls.assign(at=calls["at"].map(lambda at: at.timestamp()))
print(f"{calls[calls.state == 'succeeded'].attempts.sum()} calls succeeded")

# %% One plot: calls per minute, by how they ended.
by_state = {
    state: dict(rows.groupby("at").attempts.sum()) for state, rows in calls.groupby("state")
}
plot = bars("Calls per minute", by_state, 60, str)
Path("calls.html").write_text(f"<style>.c0 {{ fill: #999 }} .c1 {{ fill: #2a7 }}</style>{plot}")
