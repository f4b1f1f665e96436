"""Where a program without keys in its code finds its key ring."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock import App, KeyRing, Refused
from penstock.app.encrypted_broker import EncryptedBroker
from penstock.app.key_file import chosen_keys, find_keys, read_key_file
from penstock.app.settings import resolve_url


def a_key_file(path: Path, *keys: str, mode: int = 0o600) -> Path:
    path.write_text("# ours\n\n" + "\n".join(f"{key}  # a key" for key in keys) + "\n")
    path.chmod(mode)
    return path


@pytest.fixture
def keys() -> list[str]:
    return [KeyRing.new_key(), KeyRing.new_key()]


def test_one_key_per_line_and_the_first_encrypts(tmp_path, keys):
    ring = read_key_file(a_key_file(tmp_path / "keys", *keys), "a test")

    assert ring.names == KeyRing(*keys).names


def test_the_environment_names_it_by_its_path(tmp_path, keys, monkeypatch):
    file = a_key_file(tmp_path / "keys", *keys)
    monkeypatch.setenv("PENSTOCK_KEY_FILE", str(file))
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")

    assert app.seals
    assert isinstance(app.broker, EncryptedBroker)
    app.close()
    assert App(keys=KeyRing(b"k" * 32)).keys.names == KeyRing(b"k" * 32).names


def test_a_profile_names_it_beside_its_url(tmp_path, keys, monkeypatch):
    a_key_file(tmp_path / "shop.key", *keys)
    (tmp_path / "penstock.toml").write_text(
        '[profiles.default]\nurl = "sqlite:///a.db"\n'
        '[profiles.live]\nurl = "sqlite:///b.db"\nkey_file = "shop.key"\n'
    )
    monkeypatch.chdir(tmp_path)

    assert find_keys(resolve_url(None)) is None
    live = find_keys(resolve_url(None, profile="live"))
    assert live is not None
    assert live.names == KeyRing(*keys).names
    # A URL that somebody else gives is not that of the profile, and nor are its keys.
    monkeypatch.setenv("PENSTOCK_URL", "sqlite:///c.db")
    assert find_keys(resolve_url(None)) is None


def test_an_app_that_is_given_a_broker_is_given_its_keys(
    memory_broker, tmp_path, keys, monkeypatch
):
    monkeypatch.setenv("PENSTOCK_KEY_FILE", str(a_key_file(tmp_path / "keys", *keys)))

    assert not App(broker=memory_broker).seals
    assert App(broker=memory_broker, keys=KeyRing(*keys)).seals


@pytest.mark.parametrize(
    ("mode", "sentence"),
    [(0o604, "open to other users: chmod 600"), (0o660, "open to other users"), (0o440, None)],
)
def test_a_file_that_others_may_read_is_refused(tmp_path, keys, mode, sentence):
    file = a_key_file(tmp_path / "keys", *keys, mode=mode)
    if sentence is None:
        read_key_file(file, "a test")
    else:
        with pytest.raises(Refused, match=sentence):
            read_key_file(file, "a test")


def test_a_file_of_somebody_else_is_refused(tmp_path, keys, monkeypatch):
    file = a_key_file(tmp_path / "keys", *keys)
    if os.geteuid() == 0:  # a file that is not root's, read by somebody who is neither
        os.chown(file, 12345, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)

    with pytest.raises(Refused, match=r"belongs to the user \d+, who could read what it encrypts"):
        read_key_file(file, "a test")


@pytest.mark.parametrize("text", ["", "# none\n", "short\n", "\xff\n", "not base64 !\n"])
def test_a_file_without_keys_is_refused_and_not_shown(tmp_path, text):
    file = tmp_path / "keys"
    file.write_bytes(text.encode("latin-1"))
    file.chmod(0o600)

    with pytest.raises(Refused, match=r"one key per line, each made by KeyRing\.new_key") as error:
        read_key_file(file, "a test")
    assert "base64" not in str(error.value)
    assert error.value.__suppress_context__


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(Refused, match=r"PENSTOCK_KEY_FILE\) cannot be read: No such file"):
        read_key_file(tmp_path / "none", "PENSTOCK_KEY_FILE")
    with pytest.raises(Refused, match="is no regular file"):
        read_key_file(tmp_path, "a test")
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(Refused, match="is no regular file"):
        read_key_file(tmp_path / "pipe", "a test")


def test_the_profile_says_it_with_a_text(tmp_path, monkeypatch):
    (tmp_path / "penstock.toml").write_text('[profiles.default]\nurl = "memory:"\nkey_file = 5\n')
    monkeypatch.chdir(tmp_path)

    with pytest.raises(Refused, match="key_file is the path of a file"):
        resolve_url(None)


def test_settings_of_a_framework_name_keys_or_a_file(tmp_path, keys):
    file = a_key_file(tmp_path / "keys", *keys)
    ring = KeyRing(*keys)
    named: list[tuple[Any, Any]] = [(keys, None), (tuple(keys), None), (ring, None), (None, file)]

    for given in [*named, (None, str(file))]:
        chosen = chosen_keys(*given, "in a test")
        assert chosen is not None
        assert chosen.names == ring.names
    assert chosen_keys(keys[0], None, "in a test").names == KeyRing(keys[0]).names  # pyright: ignore[reportOptionalMemberAccess]
    assert chosen_keys(None, None, "in a test") is None
    with pytest.raises(Refused, match="keys and a key file in a test: give one of them"):
        chosen_keys(keys, file, "in a test")
