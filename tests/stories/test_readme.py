"""The first run in README.md, for real: a child is killed, and all hundred jobs succeed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from penstock import App
from tests.stories.conftest import Fleet, eventually

ROOT = Path(__file__).parents[2]
SAID = (
    r" INFO +{} child \d+ started, as worker \S+\n",
    r" INFO +{} recovered \d+ jobs? of worker \S+: (?:they are|it is) ready again\n",
    r" WARNING {} child \d+ died \(SIGKILL\) while it ran jobs? ",
    r" INFO +{} child \d+ has exited\n",
)


def penstock(folder: Path, *words: str) -> list[str]:
    command = [sys.executable, "-m", "penstock", *words]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()


def test_all_hundred_jobs_succeed_though_the_worker_is_killed(tmp_path: Path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    source = (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")
    (tmp_path / "quickstart.py").write_text(source, encoding="utf-8")
    said = subprocess.run(
        [sys.executable, "quickstart.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert said.stdout == "100 jobs are stored\n"

    words = "worker quickstart.py --processes 1 --drain"
    assert f"$ penstock {words} &" in readme
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *words.split()], cwd=tmp_path, stderr=output
        )
    fleet = Fleet(process, log)
    app = App(f"sqlite:///{tmp_path}/penstock.db")
    eventually(lambda: len(app.broker.history(limit=100)) > 10)
    [child] = eventually(fleet.children)
    os.kill(child, signal.SIGKILL)

    assert fleet.wait() == 0, fleet.output()
    # The supervisor itself makes them ready again: no lease has to end for that.
    for shown, pid in ((readme, r"\d+"), (fleet.output(), str(fleet.pid))):
        for line in SAID:
            assert re.search(line.format(pid), shown), f"{line}\n{shown}"
    found = penstock(tmp_path, "find", "state:succeeded", "--limit", "1000", "--json")
    assert len(found) == 100
    attempts = [event for event in app.broker.history(limit=1000) if event.kind == "attempt"]
    app.close()
    crashed = [event.job for event in attempts if event.reason == "crashed"]
    assert 0 < len(crashed) <= 10
    assert len(attempts) == 100 + len(crashed)
    rows = penstock(tmp_path, "history", crashed[0])
    crash = (
        r"  attempt 1, .* ms  crashed: ProcessDied: the process that ran it died: SIGKILL; it used"
    )
    assert re.fullmatch(rf"\d{{20}}  \S+  ready  .*{crash} \d+ MB of memory", rows[0]), rows
    assert re.search(rf"{crash} \d+ MB of memory\n", readme)
    assert re.fullmatch(r"\d{20}  \S+  succeeded  .*  attempt 2, .* ms", rows[1]), rows
