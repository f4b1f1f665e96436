"""For spark-submit: a frame becomes jobs, each row once, however often this is submitted."""

import sys

import penstock.spark


def main(name: str) -> None:
    spark = penstock.spark.session()  # the one that spark-submit has set up
    due = spark.range(1, 101).selectExpr("cast(id as int) as customer", "'your invoice' as text")

    writer = due.write.format("penstock").option("task", "shop:remind").option("queue", "mail")
    writer.option("write", name).mode("append").save()

    [count] = spark.read.format("penstock").option("table", "counts").load().collect()
    print(f"{count.ready} reminders are ready, written on {spark.sparkContext.master}")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
