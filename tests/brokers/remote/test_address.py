"""The URL of a manager."""

from __future__ import annotations

import pytest

from penstock.app.settings import mask
from penstock.brokers import drivers, open_broker, store_condition
from penstock.brokers.remote.address import parse_address
from penstock.errors import Refused, StoreUnreachable

TOKEN = "s3cret-of-a-worker-0123456789abcdef"


def test_addresses_and_a_token():
    address = parse_address(f"penstock://:{TOKEN}@a.example:7451,b.example,[::1]:7452")

    assert address.targets == ("a.example:7451", "b.example:7450", "[::1]:7452")
    assert (address.token, address.tls) == (TOKEN, False)


def test_a_token_in_the_place_of_a_user_is_refused_and_not_shown():
    with pytest.raises(Refused, match="behind a colon") as refused:
        parse_address(f"penstock://{TOKEN}@a.example")

    assert TOKEN not in str(refused.value)
    assert TOKEN not in mask(f"penstock://:{TOKEN}@a.example")


def test_a_token_in_a_file_that_is_private(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)

    assert parse_address(f"penstock://a.example?token_file={file}").token == TOKEN
    file.chmod(0o604)
    with pytest.raises(Refused, match="can be read by others"):
        parse_address(f"penstock://a.example?token_file={file}")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("penstock://", "is no address"),
        ("penstock://a.example/jobs", "is no address"),
        ("penstock://a.example:port", "is no address"),
        ("penstock://a.example:0", "is no address"),
        ("penstock://a.example?colour=red", "no such option 'colour'"),
        ("penstock://a.example?tls=perhaps", "tls=yes or tls=no"),
        ("penstock://a.example?cert=/c.pem", "go together"),
        ("penstock://a.example?token_file=/nowhere/token", "cannot be read"),
        (f"penstock://:{TOKEN}@a.example?token_file=/token", "give one of them"),
    ],
)
def test_what_is_wrong_with_a_url_is_said(url, sentence):
    with pytest.raises(Refused, match=sentence) as refused:
        parse_address(url)

    assert TOKEN not in str(refused.value)


def test_certificates_mean_tls():
    address = parse_address("penstock://a.example?ca=/ca.pem&cert=/c.pem&key=/k.pem")

    assert (address.tls, address.ca, address.cert, address.key) == (
        *(True, "/ca.pem", "/c.pem", "/k.pem"),
    )


def test_nobody_there_is_said_at_once():
    with pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1:1 does not answer"):
        open_broker("penstock://127.0.0.1:1")


def test_the_condition_of_a_manager(manager):
    condition = store_condition(manager.url)

    assert (condition.exists, condition.kind) == (True, "penstock")
    assert "serves the memory broker" in condition.facts[0].says
    away = store_condition("penstock://127.0.0.1:1")
    assert away.unseen is not None
    assert "penstock manager" in away.unseen.remedy


def test_what_a_machine_needs_for_it():
    assert "grpc" in drivers("penstock://a.example")
