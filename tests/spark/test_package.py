"""`penstock spark package`: one archive, in a Python that has no Penstock (S29)."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

import penstock.spark.ship_code
from penstock.errors import Refused
from tests.spark.cluster import Cluster
from tests.spark.frames import numbers_in
from tests.spark.test_examples import SUBMIT, environment

PROGRAM = """
import sys
import penstock.spark
import shop_rows

spark = penstock.spark.session()
rows = spark.range(0, 40, 1, 2).rdd.map(shop_rows.row).toDF("number int")
rows.write.format("penstock").option("task", "mail:send").mode("append").save()
print("written by", penstock.__file__, flush=True)
spark.stop()
"""


def packaged(folder: Path, url: str) -> Path:
    """The archive, as a person makes it, with a module of theirs."""
    (folder / "shop_rows.py").write_text("def row(given):\n    return (given.id,)\n")
    archive = folder / "shop-spark.zip"
    command = [sys.executable, "-m", "penstock", "spark", "package", "shop_rows"]
    made = subprocess.run(
        [*command, "--output", archive, "--url", url],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert f"--archives {archive}#penstock_code" in made.stderr
    assert "shop_rows.py" in made.stdout
    return archive


# REQUIREMENTS S29
@pytest.mark.timeout(900)
def test_a_foreign_python_and_executors_run_from_the_archive_alone(
    cluster: Cluster, postgres_store_url: str, tmp_path: Path
):
    """The driver has the archive unpacked beside it, as in cluster deploy mode, and no other code.

    Python is that of the system, with PySpark and Arrow, as on a cluster's machines.
    """
    archive = packaged(tmp_path, postgres_store_url)
    driver = tmp_path / "driver"
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(driver / "penstock_code")
    (driver / "main.py").write_text(PROGRAM)
    spark_only = tmp_path / "spark-only"
    spark_only.mkdir()
    site = Path(pa.__file__).parents[1]
    for name in ("pyspark", "py4j", "pyarrow", "pyarrow.libs", "numpy", "numpy.libs"):
        if (site / name).exists():
            (spark_only / name).symlink_to(site / name)
    python = str(Path(sys.base_prefix) / "bin" / "python3")
    settings = {
        "spark.executorEnv.PYTHONPATH": f"penstock_code{os.pathsep}{spark_only}",
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.driver.host": "127.0.0.1",
    }
    settings |= {"spark.master": cluster.url, "spark.archives": f"{archive}#penstock_code"}
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]

    done = subprocess.run(
        [SUBMIT, *words, driver / "main.py"],
        cwd=driver,
        env={
            **environment(postgres_store_url),
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
            "PYTHONPATH": f"{driver / 'penstock_code'}{os.pathsep}{spark_only}",
        },
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )

    assert f"written by {driver}/penstock_code/penstock/__init__.py" in done.stdout, done.stderr
    assert numbers_in(postgres_store_url) == dict.fromkeys(range(40), 1)


def test_a_module_that_there_is_not_is_refused(tmp_path: Path):
    with pytest.raises(Refused, match="no_such_shop: no such module"):
        penstock.spark.ship_code.package(tmp_path / "x.zip", "sqlite:///x.db", "no_such_shop")
