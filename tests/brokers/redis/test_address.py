"""What the URL of a store in Redis says, and which URLs are refused."""

from __future__ import annotations

import pytest

from penstock.brokers import demo_url
from penstock.brokers.redis.address import parse_address
from penstock.errors import Refused


@pytest.mark.parametrize(
    ("url", "fields"),
    [
        ("redis://db", {"hosts": (("db", 6379),), "db": 0, "tls": False}),
        ("valkey://db:7/3", {"hosts": (("db", 7),), "db": 3}),
        ("rediss://db", {"tls": True}),
        ("valkeys://db", {"tls": True}),
        ("redis://[::1]:7", {"hosts": (("::1", 7),)}),
        ("redis://:p%40ss@db", {"user": None, "password": "p@ss"}),
        ("redis://ada:p@ss@db", {"user": "ada", "password": "p@ss"}),
        ("redis+unix:///run/r.sock?db=2", {"path": "/run/r.sock", "db": 2, "hosts": ()}),
        (
            "redis+sentinel://a,b:7/mymaster/1",
            {"hosts": (("a", 26379), ("b", 7)), "service": "mymaster", "db": 1},
        ),
        ("redis://db?prefix={shop}:&retention=12h", {"prefix": "{shop}:", "retention": 43200.0}),
        ("redis://db?durability=everysec", {"durability": "everysec"}),
        ("redis://db?replicas=2", {"replicas": 2, "durability": "always"}),
        ("redis://db", {"prefix": "{penstock}:", "retention": 86400.0, "replicas": 0}),
    ],
)
def test_a_url_is_read(url, fields):
    address = parse_address(url)

    assert {name: getattr(address, name) for name in fields} == fields


def test_what_is_shown_has_no_password():
    assert "p@ss" not in parse_address("redis://ada:p@ss@db/0").where
    assert "geheim" not in parse_address("redis+sentinel://a/m?sentinel_password=geheim").where


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://", "'' is no host; write host or host:6379"),
        ("redis://db:x", "'db:x' is no host"),
        ("redis://a,b", "names 2 hosts: only Sentinels are several"),
        ("redis://db/one", "'one' is no number of a database"),
        ("redis://db?durable=yes", "no such option 'durable'; there are prefix, durability"),
        ("redis://db?durability=fsync", "durability 'fsync' is not known; there are always"),
        ("redis://db?prefix=shop:", r"no hash tag, .* write prefix=\{shop\}:"),
        ("redis://db?retention=0", "retention '0' is no time; write 12h, 1d or 3600"),
        ("redis://db?replicas=all", "replicas 'all': how many"),
        ("redis+sentinel://a,b", "names no master"),
        ("redis+unix://host/x", "names no socket"),
        ("redis+unix:///", "names no socket"),
    ],
)
def test_what_cannot_be_meant_is_refused(url, says):
    with pytest.raises(Refused, match=says):
        parse_address(url)


def test_only_this_machine_is_loopback_or_a_socket():
    here = ("redis://localhost", "redis://127.0.0.1:7", "redis+unix:///run/r.sock")

    assert all(parse_address(url).of_this_machine for url in here)
    assert not parse_address("redis://db").of_this_machine
    assert not parse_address("redis+sentinel://localhost,db/m").of_this_machine


def test_a_demo_has_a_prefix_of_its_own_and_asks_nothing_of_the_disk_on_loopback():
    here, there = demo_url("redis://localhost/0", "d1"), demo_url("redis://db?retention=1h", "d1")

    assert here == "redis://localhost/0?prefix={d1}:&durability=none"
    assert there == "redis://db?retention=1h&prefix={d1}:"
    assert parse_address(here).prefix == "{d1}:"
    with pytest.raises(Refused, match="the demo has a prefix of its own"):
        demo_url("redis://db?prefix={shop}:", "d1")
    with pytest.raises(Refused, match="the demo runs in a file of its own"):
        demo_url("postgresql://db/jobs", "d1")
