"""Retry of jobs whose secrets were deleted when they ended."""

from __future__ import annotations

import pytest


@pytest.fixture
def failed(shop):
    """The id of a job that failed, and lost its secret."""
    shop("run", "shop:charge", "4242", code=1)
    [job] = shop.lines("find", "state:failed")
    return job["id"]


def stored(shop):
    [job] = shop.lines("find", "task:shop:charge")
    return job


def test_a_job_without_its_secrets_is_left_and_the_way_out_is_named(shop, failed):
    result = shop("retry", failed, code=1)

    assert f"{failed} was not changed (secrets_gone)" in result.stderr
    assert f"penstock retry {failed} --secret card" in result.stderr
    assert shop.json("retry", failed, code=1)["secrets_gone"] == [failed]
    assert f"penstock retry {failed} --secret card" in shop("why", failed).stdout


def test_jobs_without_their_secrets_are_counted_by_filter(shop, failed):
    sentence = "0 jobs ready again; 1 job left as it is: its secrets are not stored any more\n"

    assert shop("retry", "state:failed", "--yes").stdout == sentence
    answer = shop.json("retry", "state:failed", "--yes")
    assert (answer["matched"], answer["count"], answer["secrets_gone"]) == (1, 0, 1)


def test_a_secret_is_asked_for_and_not_shown(shop, failed):
    result = shop("retry", failed, "--secret", "card", answer="5353\n")

    assert f"{failed} ready again" in result.stdout
    assert "5353" not in result.output
    assert stored(shop)["args"] == {"card": "***"}


def test_a_secret_is_read_from_a_file(shop, failed, tmp_path):
    (tmp_path / "card").write_text("5353\n")

    shop("retry", failed, "--secret", "card", "--secret-file", str(tmp_path / "card"))

    assert stored(shop)["state"] == "ready"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["state:failed", "--secret", "card"], "named by their ids"),
        (["ID", "--secret", "pin"], "'pin' is not a secret argument that it has lost"),
        (["ID", "--secret-file", "FILE"], "name the argument"),
        (["ID", "--secret", "card", "--secret-file", "none"], "cannot be read"),
        (["ID", "--secret", "card", "--secret", "card"], "given twice"),
    ],
)
def test_what_is_wrong_is_said(shop, failed, words, sentence):
    words = [failed if word == "ID" else word for word in words]

    assert sentence in shop("retry", *words, code=2, answer="1\n1\n").stderr
    assert stored(shop)["state"] == "failed"
