"""Where a detached process is started, with systemd and without; systemd-run is a stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.worker.detached import systemd_unit

SERVICE = "0::/system.slice/shop-worker.service\n"
USERS = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/shop.service\n"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A host of which a test says what runs it."""
    monkeypatch.setattr(systemd_unit, "_SYSTEMD", tmp_path / "system")
    monkeypatch.setattr(systemd_unit, "_CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(systemd_unit, "_CONTAINERS", (tmp_path / ".dockerenv",))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    systemd_unit.start_method.cache_clear()
    yield tmp_path
    systemd_unit.start_method.cache_clear()


def systemd_run(host: Path, code: int) -> None:
    program = host / "bin" / "systemd-run"
    program.write_text(f'#!/bin/sh\necho "$@" >> {host}/asked\nexit {code}\n')
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("group", "asked"),
    [
        (SERVICE, "--scope --collect --quiet -- true"),
        (USERS, "--user --scope --collect --quiet -- true"),
    ],
    ids=["system", "user"],
)
def test_in_a_service_it_has_a_unit_of_its_own(host, group, asked):
    """A1, A2: because a restart of the service ends all of its control group."""
    (host / "system").mkdir()
    (host / "cgroup").write_text(group)
    systemd_run(host, 0)

    method = systemd_unit.start_method()

    assert method.remedy == ""
    assert method.command[0] == "systemd-run"
    assert (host / "asked").read_text().strip() == asked
    assert "systemd scope and survive a restart of shop" in method.survives


def test_a_service_that_may_not_start_units_is_told_so(host):
    """TRUST 5: it works, survives less, and the doctor has the remedy."""
    (host / "system").mkdir()
    (host / "cgroup").write_text(SERVICE)
    systemd_run(host, 1)

    method = systemd_unit.start_method()

    assert method.command == ()
    assert "a restart of shop-worker.service kills detached jobs" in method.survives
    assert "KillMode=process" in method.remedy


def test_elsewhere_it_has_a_session_of_its_own(host):
    method = systemd_unit.start_method()

    assert (method.command, method.remedy) == ((), "")
    assert "own session" in method.survives
    assert "container" not in method.survives


def test_in_a_container_they_do_not_survive_the_container(host):
    (host / ".dockerenv").touch()

    assert "they do not survive the container" in systemd_unit.start_method().survives
