"""Detached tasks on Spark: one application per attempt, and never two at a time."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import State
from penstock.cli.detached import progress_sentences, running_progress
from penstock.spark.application import Application, last_application
from tests.spark import detached_tasks
from tests.spark.cluster import Cluster
from tests.spark.drivers import parent_of
from tests.stories.conftest import Fleet, alive, eventually
from tests.stories.detached_story import DetachedStory

TASKS = Path(detached_tasks.__file__)
SOON = 240.0

pytestmark = pytest.mark.timeout(900)


class SparkStory(DetachedStory):
    """A store, workers on it, and the Spark applications that these started."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, url)
        self.app = detached_tasks.make_app(url)
        self.extra: dict[str, str] = {}

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **self.extra}

    def start(self, *, target: str | None = None, **options: Any) -> Fleet:
        return super().start(target=target or f"{TASKS}:app", **options)

    def wait_for(self, word: str, count: int = 1) -> list[list[str]]:
        def enough() -> list[list[str]]:
            lines = self.ledger(word)
            return lines if len(lines) >= count else []

        return eventually(enough, SOON, f"{count} times {word}")

    def application(self, job: str, attempt: int) -> Application:
        def look() -> Application | None:
            found = last_application(self.broker, job)
            return found if found and found.attempt == attempt else None

        return eventually(look, SOON, "its application is noted")


@pytest.fixture
def story(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SparkStory]:
    names = {"sqlite": "sqlite_url", "postgres": "postgres_store_url"}
    story = SparkStory(tmp_path, request.getfixturevalue(names[request.param]))
    yield story
    story.close()


def orders(folder: Path, files: int = 4, rows: int = 5) -> Path:
    """So many files of orders."""
    folder.mkdir()
    for number in range(files):
        lines = [json.dumps({"id": number * rows + row}) for row in range(rows)]
        (folder / f"{number}.json").write_text("\n".join(lines))
    return folder


def killed(story: SparkStory, handle: Any) -> None:
    """Its process is; it is resumed by itself."""
    del handle
    [line] = story.ledger("copy")
    os.kill(int(line[-1]), signal.SIGKILL)


def cancelled(story: SparkStory, handle: Any) -> None:
    """By somebody who thinks better of it later; meanwhile it may tidy up, with Spark."""
    handle.cancel()
    [line] = story.wait_for("left")
    assert line[1:3] == ["7", "8"]
    eventually(lambda: handle.state() is State.CANCELLED, SOON)
    eventually(lambda: not story.marked(), SOON)
    assert story.broker.act("retry", [handle.id])


# REQUIREMENTS S12
@pytest.mark.parametrize(
    ("story", "end"),
    [
        ("postgres", cancelled),
        pytest.param("sqlite", killed, marks=pytest.mark.soak),
        pytest.param("postgres", killed, marks=pytest.mark.soak),
    ],
    indirect=["story"],
)
def test_a_stream_is_adopted_and_goes_on_from_its_checkpoint_when_it_was_cut_short(
    story: SparkStory, tmp_path: Path, end: Callable[[SparkStory, Any], None]
):
    """Issue 6: progress of its own, no Java left behind, and no row twice."""
    handle = story.task("copy_orders").enqueue(
        str(orders(tmp_path / "orders")), str(tmp_path / "copy")
    )
    first = story.start(grace=SOON)
    story.wait_for("written", 2)
    own = story.application(handle.id, 1)
    quiet = re.compile(r"\d+ Spark jobs? ended, stream orders: batch 0, 5 rows")
    progress = eventually(
        lambda: (told := handle.progress()) and quiet.fullmatch(told.note) and told, SOON
    )
    assert progress.fraction == 1
    told = progress_sentences(*running_progress(story.broker, story.broker.get(handle.id)))
    assert told[1] == f"attempt 1 is the Spark application {own.id} on local[*]"

    story.kill_group(first)
    second = story.start()
    eventually(lambda: "is adopted" in second.output(), SOON)
    assert handle.state() is State.RUNNING
    before = story.marked()
    assert len(before) >= 2  # Python and Java
    end(story, handle)

    story.wait_for("copy", 2)
    assert not any(alive(pid) for pid in before)
    story.tell("on-2")
    assert handle.result(timeout=SOON) == 20
    assert [line[1:3] for line in story.ledger("written")] == [
        ["0", "1"],
        ["1", "1"],
        ["1", "2"],
        ["2", "2"],
        ["3", "2"],
    ]
    assert story.application(handle.id, 2).id != own.id
    eventually(lambda: not story.marked(), SOON)


@pytest.mark.soak
@pytest.mark.parametrize("story", ["sqlite"], indirect=True)
@pytest.mark.parametrize("verdict", ["cancelled", "shutdown"])
def test_a_job_that_waits_for_executors_is_interrupted_and_may_tidy_up_with_spark(
    story: SparkStory, verdict: str
):
    """Issue 6: Java has to answer before it is asked anything else, whoever ends it."""
    handle = story.task("sit").enqueue()
    story.start(grace=SOON)
    story.wait_for("waits")
    [[*_, pid]] = story.ledger("sit")

    if verdict == "cancelled":
        handle.cancel()
    else:
        os.kill(int(pid), signal.SIGTERM)

    [line] = story.wait_for("rose")
    assert line[1:3] == ["7", "8"]
    if verdict == "shutdown":
        story.tell("rise")
        assert handle.result(timeout=SOON) is None
        assert [event.reason for event in story.attempts(handle.id)] == ["shutdown", None]
    eventually(lambda: handle.state() in {State.CANCELLED, State.SUCCEEDED}, SOON)
    eventually(lambda: not story.marked(), SOON)


def active(cluster: Cluster) -> dict[str, str]:
    """The applications that the master has, by id."""
    return {each["id"]: each["name"] for each in (cluster.state() or {}).get("activeapps", ())}


@pytest.fixture
def on_cluster(story: SparkStory, cluster: Cluster) -> SparkStory:
    """Its tasks have their sessions on a real cluster."""
    eventually(lambda: not active(cluster), SOON)
    options = f"-Dspark.master.ui.port={cluster.page} -Dspark.executor.memory=512m"
    story.extra = {
        "PENSTOCK_SPARK_MASTER": cluster.url,
        "SPARK_SUBMIT_OPTS": f"{os.environ['SPARK_SUBMIT_OPTS']} {options}",
    }
    return story


@pytest.mark.soak
@pytest.mark.parametrize("story", ["postgres"], indirect=True)
def test_on_a_cluster_a_killed_driver_leaves_no_executor(on_cluster: SparkStory, cluster: Cluster):
    """Issue 6: the application of the first attempt is gone when the second begins."""
    handle = on_cluster.task("sit").enqueue()
    on_cluster.start()
    [[_, _, first, pid]] = on_cluster.wait_for("sit")
    on_cluster.wait_for("waits", 2)
    assert active(cluster) == {first: f"sit {handle.id} attempt 1"}
    assert on_cluster.application(handle.id, 1).master == cluster.url
    executors = cluster.executors()
    assert executors

    os.kill(int(pid), signal.SIGKILL)

    [_, [_, attempt, second, _]] = on_cluster.wait_for("sit", 2)
    assert active(cluster) == {second: f"sit {handle.id} attempt {attempt}"}
    eventually(lambda: not any(alive(pid) for pid in executors), SOON)
    on_cluster.tell("rise")
    assert handle.result(timeout=SOON) is None
    eventually(lambda: not active(cluster) and not cluster.executors(), SOON)


@pytest.mark.soak
@pytest.mark.parametrize("story", ["postgres"], indirect=True)
def test_an_application_that_outlived_its_lease_is_ended_before_the_next_begins(
    on_cluster: SparkStory, cluster: Cluster, tmp_path: Path
):
    """Issue 6: its host lost the store and kept the cluster, all of whose cores it holds."""
    handle = on_cluster.task("sit").enqueue()
    fleet = on_cluster.start(lease=3.0)
    [[_, _, first, pid]] = on_cluster.wait_for("sit")
    on_cluster.wait_for("waits", 2)
    on_cluster.application(handle.id, 1)
    keeper = parent_of(int(pid))
    os.kill(keeper, signal.SIGSTOP)
    on_cluster.kill_group(fleet)
    assert first in active(cluster)

    # Another host: it knows nothing of the processes of the first.
    on_cluster.extra["PENSTOCK_STATE"] = str(tmp_path / "elsewhere")
    on_cluster.start(lease=3.0)

    [_, [_, _, second, _]] = on_cluster.wait_for("sit", 2)
    assert set(active(cluster)) == {second}
    assert alive(keeper)
    on_cluster.tell("rise")
    assert handle.result(timeout=SOON) is None
    os.kill(keeper, signal.SIGCONT)
    eventually(lambda: not alive(keeper) and not alive(int(pid)), SOON)
