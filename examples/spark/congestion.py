"""From raw probe files to monthly views of congestion: two datasets, made partition by partition.

    python examples/spark/congestion.py 2026-01-01 31     files, as vehicles might send them
    penstock pipeline run congestion --app examples/spark/congestion.py
    penstock worker examples/spark/congestion.py

A day is conflated: each probe is matched to the nearest road. A month is made of its days, as a
Spark application of its own that outlives the worker, and is published in one transaction. Kill
whatever you like, deploy in between: the next worker goes on, and readers never see half.
"""

import json
import os
import sys
from datetime import date, timedelta
from pathlib import Path
from random import Random

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import avg, count, expr, min_by, struct

from penstock import App, Expect, Interval, Source

HERE = Path(os.environ.get("CONGESTION", "congestion")).absolute()
# Where a road is, and how fast it is driven when it is empty.
ROADS = [("E4", 48.85, 2.35, 90), ("A7", 48.80, 2.40, 130), ("D20", 48.90, 2.25, 50)]
SLOW = 0.5  # below this share of that speed traffic is congested
VEHICLES = 40

app = App()


def probe_files(interval: Interval) -> list[Path]:
    return sorted((HERE / "raw" / interval.text).glob("*.json"))


def digest(interval: Interval) -> str:
    """What is there now: files that come late, or again, make the day stale."""
    return ", ".join(f"{path.name} {path.stat().st_size}" for path in probe_files(interval))


def raw_probes(spark: SparkSession, interval: Interval) -> DataFrame:
    """The files of a day, as they were sent."""
    columns = "vehicle long, lat double, lon double, speed double, hour int"
    return spark.read.schema(columns).json([f"file:{path}" for path in probe_files(interval)])


@app.dataset(
    name="conflated",
    partition="day",
    zone="Europe/Paris",
    start=os.environ.get("CONGESTION_START", "2026-01-01"),
    inputs=[Source(raw_probes, version=digest)],
    table=HERE / "conflated",
    check=[
        Expect("road is not null"),
        Expect("speed <= 200", at_most=10, on_failure="warn", name="plausible speed"),
    ],
    version=int(os.environ.get("RELEASE", "1")),  # a deploy of other code counts it up
    timeout=3600,
)
def conflated(spark: SparkSession, _: Interval, probes: DataFrame) -> DataFrame:
    """Each probe on the road that is nearest to it."""
    roads = spark.createDataFrame(ROADS, "road string, at_lat double, at_lon double, free int")
    distance = expr("pow(lat - at_lat, 2) + pow(lon - at_lon, 2)")
    return (
        probes.where("speed >= 0")
        .crossJoin(roads)
        .groupBy("vehicle", "hour", "speed")
        .agg(min_by(struct("road", "free"), distance).alias("nearest"))
        .select("vehicle", "hour", "speed", "nearest.road", "nearest.free")
    )


@app.dataset(
    name="congestion",
    partition="month",
    inputs=[conflated],
    table=HERE / "congestion",
    check=Expect("slow between 0 and 1"),
    detached=os.environ.get("CONGESTION_DETACHED", "1") == "1",
)
def congestion(_: SparkSession, __: date, days: DataFrame) -> DataFrame:
    """For each road and hour the number of probes, and the share of them that were slow."""
    slow = avg(expr(f"double(speed < {SLOW} * free)"))
    return days.groupBy("road", "hour").agg(count("*").alias("probes"), slow.alias("slow"))


def make_files(first: date, days: int) -> None:
    """Files for these days, the same each time: slow on one road from seven to nine."""
    for day in (first + timedelta(n) for n in range(days)):
        folder = HERE / "raw" / day.isoformat()
        folder.mkdir(parents=True, exist_ok=True)
        random = Random(day.toordinal())
        rows = [probe(random, vehicle) for vehicle in range(VEHICLES)]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "probes-0.json").write_text(lines, encoding="utf-8")


def probe(random: Random, vehicle: int) -> dict[str, float]:
    road, lat, lon, free = ROADS[vehicle % len(ROADS)]
    hour = vehicle % 24
    share = 0.3 if road == "E4" and hour in {7, 8, 9} else 0.9
    return {
        "vehicle": vehicle,
        "lat": lat + random.uniform(-0.01, 0.01),
        "lon": lon + random.uniform(-0.01, 0.01),
        "speed": free * share + random.random(),
        "hour": hour,
    }


if __name__ == "__main__":
    make_files(date.fromisoformat(sys.argv[1]), int(sys.argv[2]))
    print(f"files in {HERE / 'raw'}")
