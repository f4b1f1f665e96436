"""What a page of another site can do to somebody who is let in here: nothing. In a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from penstock.broker.protocol import Broker
from penstock.job import Job
from penstock.testing.conformance.factories import a_job
from penstock.web.access import Role
from tests.web.conftest import Web, served, serving

pytestmark = pytest.mark.browser

FORMS = {
    "plain": '<form method=post action="{here}/jobs/{id}/cancel"><input name=reason></form>',
    "json": '<form method=post enctype=text/plain action="{here}/api/v1/cancel">'
    """<input name='{{"ids":["{id}"],"reason":"' value='"}}'></form>""",
    "parts": "<form method=post enctype=multipart/form-data "
    'action="{here}/jobs/{id}/cancel"></form>',
    "in": '<form method=post action="{here}/enter"><input name=token value="{token}"></form>',
    "quiet": "<meta name=referrer content=no-referrer>"
    '<form method=post action="{here}/leave"></form>',
}


class Scene:
    """An admin's browser, and another site that it comes to."""

    def __init__(self, web: Web, page: Page, job: Job) -> None:
        self.web = web
        self.page = page
        self.job = job
        self.shown = ""

    def lure(self, address: str, shown: str) -> None:
        token = self.web.texts[Role.VIEW]
        self.shown = shown.format(here=self.web.address, id=self.job.id, token=token)
        self.page.goto(address)


@pytest.fixture
def scene(browser: Browser, memory_broker: Broker, clock) -> Iterator[Scene]:
    job = a_job(clock)
    memory_broker.enqueue([job])
    with served(memory_broker) as web:
        context = browser.new_context()
        made = Scene(web, context.new_page(), job)
        made.page.goto(f"{web.address}/?token={web.texts[Role.ADMIN]}")
        yield made
        context.close()


@pytest.fixture(params=["127.0.0.1", "localhost"])
def foreign(request, scene: Scene) -> Iterator[str]:
    """Another site: our host's at another port, and a different host's."""

    async def show(_: object) -> HTMLResponse:
        return HTMLResponse(scene.shown)

    with serving(Starlette(routes=[Route("/", show)])) as address:
        yield address.replace("127.0.0.1", request.param)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_its_forms_change_nothing_here(scene: Scene, foreign: str, memory_broker, form):
    scene.lure(foreign, form)

    with scene.page.expect_navigation() as navigation:
        scene.page.evaluate("document.querySelector('form').submit()")

    assert navigation.value.status == 403
    assert memory_broker.get(scene.job.id).state == "ready"
    scene.page.goto(scene.web.address)
    assert "ada" in scene.page.inner_text(".who")


def test_it_can_neither_frame_nor_load_nor_read_nor_reach_us(scene: Scene, foreign: str):
    scene.lure(foreign, "<p>nothing to see")
    asked = {
        "frame": """new Promise(tell => { const made = document.createElement("iframe");
            made.onload = () => { try { tell(made.contentDocument ? "ours" : "refused"); }
            catch { tell("refused"); } }; made.src = HERE; document.body.append(made); })""",
        "script": """new Promise(tell => { const made = document.createElement("script");
            made.onload = () => tell("loaded"); made.onerror = () => tell("refused");
            made.src = HERE + "/static/penstock.js"; document.body.append(made); })""",
        "stream": """new Promise(tell => {
            const made = new EventSource(HERE + "/live", { withCredentials: true });
            made.onmessage = () => tell("heard"); made.onerror = () => tell("refused"); })""",
        "read": """fetch(HERE + "/api/v1/jobs", { credentials: "include" })
            .then(() => "read", () => "refused")""",
        "send": """fetch(HERE + "/api/v1/cancel", { method: "POST", mode: "no-cors",
            credentials: "include", body: "{}" }).then(() => "sent", () => "refused")""",
        "window": """new Promise(tell => { const opened = open(HERE + "/jobs");
            const look = () => opened.closed ? tell("refused") : setTimeout(look, 20);
            look(); })""",
    }

    told = {
        name: scene.page.evaluate(script.replace("HERE", f'"{scene.web.address}"'))
        for name, script in asked.items()
    }

    assert told == dict.fromkeys(asked, "refused")


def test_nothing_is_run_that_got_into_a_page(scene: Scene):
    page = scene.page
    page.goto(scene.web.address)

    ran = page.evaluate(
        """() => {
            const made = document.createElement("script");
            made.textContent = "window.ran = 1";
            document.body.append(made);
            document.body.insertAdjacentHTML("beforeend", `<img src="x" onerror="window.ran = 2">
                <b id="b" hx-on:click="window.ran = 3" onclick="window.ran = 4">b</b>`);
            htmx.process(document.body);
            document.getElementById("b").click();
            return [window.ran ?? null, document.cookie];
        }"""
    )
    settings = page.evaluate("htmx.config")

    assert ran == [None, ""]
    assert not settings["allowEval"]
    assert not settings["allowScriptTags"]
    assert settings["selfRequestsOnly"]
