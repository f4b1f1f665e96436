"""The page Health shows alerts, and who may operate sends a test message."""

from __future__ import annotations

from penstock.operate.alert_watch import AlertWatch
from penstock.operate.alerts import Alert, AlertSettings
from penstock.operate.roles import Role
from penstock.testing.conformance.factories import some_jobs
from tests.webhook import webhook


def test_alerts_are_on_the_page_with_what_is_wrong_and_a_test_button(serve, memory_broker, clock):
    with webhook() as hook:
        settings = AlertSettings((Alert(name="<deep>", depth=2),), hook.address)
        watch = AlertWatch(settings, lambda: memory_broker)
        web = serve(memory_broker, alerts=watch)
        memory_broker.enqueue(some_jobs(clock, 3, queue="mail"))
        watch.check()
        page = web.browser(Role.OPERATE).get("/health").text
        tested = web.browser(Role.OPERATE).post("/health/alert", data={"name": "<deep>"})
        shown = web.browser(Role.OPERATE).get(tested.headers["location"]).text
        refused = web.browser(Role.VIEW).post("/health/alert", data={"name": "<deep>"})

        assert "mail: 3 jobs are ready, more than 2" in page
        assert "Send a test" in page
        assert "<deep>" not in page
        assert "delivered" in shown
        assert refused.status_code == 403
        assert "Send a test" not in web.browser(Role.VIEW).get("/health").text
        assert [hook.take()["state"] for _ in range(2)] == ["firing", "test"]
        assert hook.heard.empty()
        assert "hidden-part" not in page + shown


def test_a_dashboard_without_alerts_has_no_such_section(memory_web):
    client = memory_web.browser(Role.OPERATE)

    assert "<h2>Alerts</h2>" not in client.get("/health").text
    assert client.post("/health/alert", data={"name": "x"}).status_code == 422
