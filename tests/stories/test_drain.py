"""A worker that is asked to end when nothing is left."""

from __future__ import annotations

import json
import socket
import urllib.request

from penstock import State
from tests.stories.conftest import Story, eventually, whatever_the_store


@whatever_the_store
def test_draining_runs_everything_now_and_later_and_ends_with_code_0(story: Story):
    nap, nap_async, crunch = (story.task(name) for name in ("nap", "nap_async", "crunch"))
    handles = [
        *(nap.enqueue(n) for n in range(50)),
        *(nap_async.enqueue(n) for n in range(50)),
        crunch.enqueue(1),
        nap.options(delay=1).enqueue(99),
    ]

    fleet = story.start(drain=True, processes=2)

    assert fleet.wait() == 0, fleet.output()
    assert story.states(handles) == {State.SUCCEEDED: 102}
    assert set(story.successes().values()) == {1}


@whatever_the_store
def test_process_mode_runs_in_another_process_which_is_used_again(story: Story):
    crunch = story.task("crunch")
    handles = [crunch.enqueue(n) for n in range(5)]

    fleet = story.start(drain=True, threads=1)

    assert fleet.wait() == 0, fleet.output()
    assert [handle.result()[0] for handle in handles] == list(range(5))
    assert len({handle.result()[1] for handle in handles}) == 1


def test_a_job_in_a_process_of_its_own_leaves_notes_and_commits_with_its_effects(story: Story):
    story.execute("create table effect (value text)")
    handles = [story.task("noting").enqueue(text) for text in ("one", "two")]

    fleet = story.start(drain=True)

    assert fleet.wait() == 0, fleet.output()
    assert story.states(handles) == {State.SUCCEEDED: 2}
    assert [note.value for note in story.broker.notes(handles[0].id, "snapshot")] == [b'"one"']
    values = story.select("select value from effect order by value")
    assert values == [("one",), ("two",)]


@whatever_the_store
def test_children_that_never_come_up_end_the_supervisor_with_code_70(story: Story):
    module = story.folder / "born_dead.py"
    module.write_text(
        "import os, sys\nfrom penstock import App\napp = App()\n"
        "if 'child' in sys.orig_argv: os._exit(3)\n"
    )

    fleet = story.start(target=f"{module}:app")

    assert fleet.wait() == 70
    assert "died before they were ready" in fleet.output()


@whatever_the_store
def test_health_is_served_while_it_works(story: Story):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    story.start(health_port=port)

    def ready() -> dict[str, object] | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=1) as page:
                return json.load(page)
        except OSError:
            return None

    page = eventually(ready)

    assert page["ok"] is True
    assert len(page["children"]) == 1
