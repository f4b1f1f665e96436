"""A session that knows Penstock, made here or by somebody else."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock.spark
from penstock import App, Refused
from penstock.app.version import RELEASE
from penstock.spark.session import uninterrupted
from penstock.spark.ship_code import ExecutorVersion, _paths, check_same


def an_app(url: str, jobs: int = 0) -> App:
    app = App(url)

    @app.task(name="mail:send")
    def send(number: int) -> None: ...

    send.enqueue_many([(number,) for number in range(jobs)])
    return app


def test_importing_it_imports_no_spark():
    code = "import penstock, penstock.spark, sys; print('pyspark' in sys.modules)"

    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert answer.stdout.strip() == "False"


def test_format_penstock_reads_the_store_that_the_session_names(spark: Any, store_url: str):
    app = an_app(store_url, jobs=3)

    rows = spark.read.format("penstock").option("table", "counts").load().collect()

    assert [(row.queue, row.task, row.ready) for row in rows] == [("default", "mail:send", 3)]
    app.close()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_session_that_nobody_attached_knows_the_format_by_itself(shared_spark: Any, store_url):
    app = an_app(store_url, jobs=1)

    reader = shared_spark.newSession().read.format("penstock").option("table", "counts")

    assert [row.ready for row in reader.option("url", store_url).load().collect()] == [1]
    app.close()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_table_that_there_is_not_is_refused_with_those_there_are(spark: Any):
    with pytest.raises(Exception, match=r"'jops'\): no such table; there are .*counts"):
        spark.read.format("penstock").option("table", "jops").load()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_asked_again_it_is_the_session_that_runs(spark: Any, store_url: str):
    again = penstock.spark.session(url=store_url)

    assert again.sparkContext is spark.sparkContext
    assert penstock.spark.store_of(again) == store_url
    with pytest.raises(Refused, match=r"a session on local\[2,4\] runs in this process"):
        penstock.spark.session("spark://elsewhere:7077", url=store_url)


def test_a_profile_or_a_url_but_not_both():
    with pytest.raises(Refused, match="profile and url both say"):
        penstock.spark.session(profile="production", url="sqlite:///jobs.db")


def test_a_profile_goes_before_what_the_environment_says(shared_spark, tmp_path, monkeypatch):
    (tmp_path / "penstock.toml").write_text('[profiles.lab]\nurl = "sqlite:///lab.db"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_URL", "sqlite:///elsewhere.db")
    monkeypatch.setattr("penstock.spark.session_store.calling_file", lambda: None)

    penstock.spark.attach(shared_spark, profile="lab")

    assert penstock.spark.store_of(shared_spark) == f"sqlite:///{tmp_path}/lab.db"


def test_executors_with_another_penstock_are_refused_in_one_sentence():
    with pytest.raises(Refused, match=r"the executor on node7 has 0\.0\.9: install the same"):
        check_same([ExecutorVersion("node7", "0.0.9")])
    with pytest.raises(Refused, match="the executor on node7 has none"):
        check_same([ExecutorVersion("node7", None)])


def test_executors_are_sent_the_metadata_by_which_the_version_is_known():
    sent = {place.name for place in _paths("penstock")}

    assert sent == {"penstock", f"penstock_queue-{RELEASE}.dist-info"}


def test_a_password_is_in_no_plan_configuration_exception_or_event_log(
    shared_spark: Any, postgres_store_url: str, event_log: Path
):
    """A canary password travels to every process that needs it, and is written down nowhere."""
    canary = "canary-4f1e"
    app = an_app(postgres_store_url, jobs=2)
    spoken: list[str] = []

    for given, in_option in ((_with(canary, postgres_store_url), False), (None, True)):
        spark = penstock.spark.attach(shared_spark, url=given or "sqlite:////nowhere/at.db")
        reader = spark.read.format("penstock").option("table", "counts")
        if in_option:
            reader = reader.option("url", _with(canary, postgres_store_url))
        frame = reader.load()
        assert frame.collect()[0].ready == 2
        spoken += [_explained(frame), str(spark.sparkContext.getConf().getAll())]
        closed = _with(canary, "postgresql://somebody@127.0.0.1:1/nowhere")
        failing = spark.read.format("penstock").option("table", "counts").option("url", closed)
        with pytest.raises(Exception, match=r"\*\*\*@127\.0\.0\.1:1") as raised:
            failing.load().collect()
        spoken += [str(raised.value), repr(raised.value)]

    files = [path for path in event_log.rglob("*") if path.is_file()]
    spoken += [path.read_text(errors="replace") for path in files]
    assert files
    assert any("BatchScan penstock" in text for text in spoken)
    assert not [text[:200] for text in spoken if canary in text]
    app.close()


def _with(password: str, url: str) -> str:
    scheme, _, rest = url.partition("://")
    user, at, place = rest.partition("@")
    return f"{scheme}://{user.partition(':')[0]}:{password}{at or '@'}{place if at else rest}"


def _explained(frame: Any) -> str:
    description = frame._jdf.queryExecution()
    return f"{description.toString()} {description.simpleString()} {description.stringWithStats()}"


def test_ctrl_c_waits_until_spark_has_started(capfd):
    """A Java that is left alone while it starts would run for ever; who insists has it so."""
    before = signal.getsignal(signal.SIGINT)
    started: list[int] = []

    def start(presses: int) -> None:
        with uninterrupted():
            for _ in range(presses):
                signal.raise_signal(signal.SIGINT)
            started.append(presses)

    for presses in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            start(presses)

    assert started == [1]
    assert "stopping as soon as Spark has started" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
