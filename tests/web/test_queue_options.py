"""Options of queues over REST and on the queue's page."""

from __future__ import annotations

from penstock.broker.queue_options import Options, QueueOptions
from penstock.web.access import Role

V1 = "/api/v1/queues"


def test_options_are_set_shown_and_reset(serve, broker):
    web = serve(broker)
    broker.put(QueueOptions(queue="mail", declared=Options(timeout=60.0)))
    program = web.client(Role.OPERATE)

    body = {"queue": "mail", "options": {"timeout": "5s"}, "reason": "slow"}
    answer = program.post(f"{V1}/set", json=body).json()

    assert answer["effective"] == {"timeout": 5.0}
    [shown] = program.get(f"{V1}/options", params={"queue": "mail"}).json()["queues"]
    assert (shown["declared"], shown["override"]) == ({"timeout": 60.0}, {"timeout": 5.0})
    page = web.browser(Role.VIEW).get("/queues/one", params={"name": "mail"}).text
    assert "Declared: timeout=60s" in page
    assert "timeout=5s (slow)" in page
    assert "Set options" not in page
    assert program.post(f"{V1}/reset", json={"queue": "mail"}).json()["override"] == {}
    assert program.post(f"{V1}/drop", json={"queue": "mail"}).json()["deleted"] == 0
    assert broker.records(QueueOptions) == []


def test_the_page_sets_and_resets(serve, broker):
    browser = serve(broker).browser(Role.OPERATE)

    browser.post("/queues/set", data={"queue": "mail", "options": "timeout=5s running=2"})
    assert broker.records(QueueOptions)[0].effective == Options(timeout=5.0, running=2)

    browser.post("/queues/reset", data={"queue": "mail", "reason": "over"})
    assert broker.records(QueueOptions)[0].override is None
