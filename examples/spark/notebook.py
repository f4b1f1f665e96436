"""A notebook, cell by cell: rows through durable jobs, in the session that the notebook has."""

# %% Tasks are in a module, which workers import as well: a notebook nobody can import.
from pyspark.sql import SparkSession
from reminders import remind

import penstock.spark

# %% The session exists already: this is where it learns of Penstock.
spark = penstock.spark.attach(SparkSession.builder.getOrCreate())
due = spark.createDataFrame([(1, "pay"), (2, "come back")], "customer int, text string")

# %% Waits for the workers. After a restart of the kernel, or run again, it goes on where it was.
said = penstock.spark.apply(due, remind, id="customer")
print(*sorted(row.result for row in said.collect()), sep="\n")

# %% What the history knows of it.
attempts = spark.read.format("penstock").option("table", "attempts").option("task", "shop:remind")
print(attempts.option("state", "succeeded").load().count(), "succeeded")
