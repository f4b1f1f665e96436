"""Who came in, who did not, and who took the audit out: each is in the audit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from penstock.errors import Refused, StoreUnreachable
from penstock.operate.audit import AuditEntry, AuditQuery, read_audit
from penstock.operate.audit_text import audit_sentence
from penstock.web.access import Role
from tests.web.conftest import TYPED, Web, served


def entries(broker, *kinds: str) -> list[AuditEntry]:
    return read_audit(broker, AuditQuery(kinds=kinds)).entries


def until(true: Callable[[], object]) -> None:
    ends_at, pause = time.monotonic() + 30, threading.Event()
    while not true():
        assert time.monotonic() < ends_at, "it did not become true"
        pause.wait(0.01)


def test_whoever_logs_in_is_in_the_audit_by_the_form_and_by_the_address(web: Web, broker):
    web.client().get("/", params={"token": web.texts[Role.VIEW]}, headers=TYPED)
    form = {"token": web.texts[Role.ADMIN]}
    web.client().post("/enter", data=form, headers={"origin": web.address})

    ada, vera = entries(broker, "login")

    assert (vera.author, str(audit_sentence(vera))) == ("vera", "logged in from 127.0.0.1 (view)")
    assert (ada.author, str(audit_sentence(ada))) == ("ada", "logged in from 127.0.0.1 (admin)")


def test_who_logs_in_again_and_again_fills_no_history(memory_web: Web, memory_broker):
    for _ in range(5):
        memory_web.browser(Role.VIEW)
    memory_web.browser(Role.ADMIN)

    assert [entry.author for entry in entries(memory_broker, "login")] == ["ada", "vera"]


def test_wrong_tokens_are_in_the_audit_the_first_at_once_the_rest_together(memory_broker):
    with served(memory_broker) as web:
        nobody = web.client()
        nobody.get("/", params={"token": "w" * 43})
        until(lambda: entries(memory_broker, "login_failed"))
        for _ in range(2):
            nobody.get("/", headers={"authorization": "Bearer wrong"})

    rest, first = entries(memory_broker, "login_failed")

    assert str(audit_sentence(first)) == "gave a wrong token from 127.0.0.1"
    assert str(audit_sentence(rest)) == "gave 2 wrong tokens from 127.0.0.1"
    assert "w" * 43 not in repr(memory_broker.history(None, 100))


def test_whoever_takes_the_audit_out_is_in_it(web: Web, broker):
    broker.audit("enqueue", "otto", "by hand", {"jobs": 7})
    client = web.client(Role.VIEW)

    assert client.get("/audit.csv").status_code == 200
    assert client.get("/audit.jsonl").status_code == 200

    second, first = entries(broker, "export")
    assert (first.author, str(audit_sentence(first))) == ("vera", "exported audit.csv (1 rows)")
    assert str(audit_sentence(second)) == "exported audit.jsonl (2 rows)"


class Unwritable:
    """A store that takes no entry of the audit."""

    def __init__(self, broker, error: Exception) -> None:
        self._broker, self._error = broker, error

    def __getattr__(self, name):
        return getattr(self._broker, name)

    def audit(self, *args: object) -> None:
        raise self._error


def test_what_cannot_be_recorded_is_not_exported(serve, memory_broker):
    web = serve(Unwritable(memory_broker, Refused("this login lacks a privilege")))

    answer = web.client(Role.VIEW).get("/audit.csv")

    assert (answer.status_code, answer.json()["error"]) == (422, "this login lacks a privilege")


def test_a_store_that_takes_no_entry_keeps_nobody_out_and_the_log_has_it(
    serve, memory_broker, caplog
):
    web = serve(Unwritable(memory_broker, StoreUnreachable("it does not answer")))

    assert web.browser(Role.VIEW).get("/").status_code == 200

    assert "not in the audit: login of vera" in caplog.text
