"""Redact: arguments that a body declares secret are hidden, and nothing else is touched."""

from __future__ import annotations

import json

import pytest

from penstock.enqueue.secrets import redact, redact_text


def test_declared_arguments_are_hidden():
    body = b'{"args":{"to":"ada","token":"hunter2","card":{"n":1}},"secret":["token","card"]}'

    hidden = json.loads(redact(body))

    assert hidden["args"] == {"to": "ada", "token": "***", "card": "***"}
    assert hidden["secret"] == ["token", "card"]


def test_the_order_of_the_rest_is_kept():
    body = b'{"v":1,"args":{"b":1,"a":2},"secret":["x"],"headers":{"z":1}}'

    assert redact(body) == body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"args":{"a":1}}',
        b'{"args":{"secret":1}}',
        b'{"args":{"a":"\\"secret\\""}}',
        b'not json, but "secret"',
        b'["secret"]',
        b'{"args":[1],"secret":["a"]}',
        b'{"args":{"a":1},"secret":"a"}',
        b'{"args":{"a":1},"secret":[1,null]}',
    ],
)
def test_bodies_without_a_declaration_are_left_as_they_are(body):
    assert redact(body) == body


def test_values_of_secrets_are_hidden_in_texts_about_the_job():
    body = b'{"args":{"to":"ada","token":"hunter2","card":{"n":"4111"}},"secret":["token","card"]}'

    hidden = redact_text("ValueError: ada's hunter2 with 4111", body)

    assert hidden == "ValueError: ada's *** with ***"
    assert redact_text("hunter2", b'{"args":{"token":"hunter2"}}') == "hunter2"


@pytest.mark.parametrize(
    "value", ['it\'s 1 "pass"\n\tword\\', 41112222, 4111.2222, {"hunter2": None}, [["hunter2"]]]
)
@pytest.mark.parametrize("spelt", [str, repr, json.dumps])
def test_a_secret_is_hidden_however_a_text_spells_it(value, spelt):
    body = json.dumps({"args": {"token": value}, "secret": ["token"]}).encode()

    hidden = redact_text(f"ValueError: no {spelt(value)}!", body)

    assert "***" in hidden
    assert not any(part in hidden for part in ("pass", "word", "4111", "2222", "hunter2"))


def test_what_is_too_short_to_be_a_secret_stays_readable():
    body = b'{"args":{"token":{"a":1,"b":true,"c":"x","d":null}},"secret":["token"]}'

    assert redact_text("line 1 of xyz: a true None", body) == "line 1 of xyz: a true None"
