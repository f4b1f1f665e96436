"""Redact: arguments that a body declares secret are hidden, and nothing else is touched."""

from __future__ import annotations

import json

import pytest

from penstock.redact import redact, redact_text


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
