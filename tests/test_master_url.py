"""The URL of a cluster is refused before Java starts."""

from __future__ import annotations

import subprocess

import pytest

from penstock.errors import Refused
from penstock.spark.master_url import check_master


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[4]", "local[*]", "local[2,3]", "local-cluster[2,1,1024]", "yarn"),
        *("spark://host:7077", "spark://10.0.0.1:7077,10.0.0.2:7077", "spark://[::1]:7077"),
        *("k8s://https://host:443", "sc://host:15002", "sc://host/;token=x"),
    ],
)
def test_what_spark_takes_is_taken(master):
    check_master(master)


@pytest.mark.parametrize(
    ("master", "hint"),
    [
        ("spark://host", "It has no port: a standalone master listens on 7077"),
        ("host:7077", "Did you mean spark://host:7077?"),
        ("http://host:8080", "That is the address of a web page"),
        ("sprak://host:7077", "such as spark://host:7077"),
        ("local[", "such as spark://host:7077"),
        ("", "such as spark://host:7077"),
    ],
)
def test_what_it_does_not_take_is_refused_with_a_hint(master, hint):
    with pytest.raises(Refused, match="is not the URL of a cluster") as refused:
        check_master(master)

    assert hint in str(refused.value)


def test_a_session_refuses_it_and_starts_no_java(monkeypatch):
    from penstock.spark import session

    started: list[object] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *words, **_: started.append(words))

    with pytest.raises(Refused, match="Did you mean spark://host:7077"):
        session("host:7077")

    assert started == []
