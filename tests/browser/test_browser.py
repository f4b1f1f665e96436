"""What a person does at the dashboard, done in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Route, expect

from penstock.brokers import open_broker
from penstock.job import State, failed
from penstock.testing.conformance.factories import a_job, begun, claim, some_jobs
from penstock.web.access import Role
from penstock.web.live import MOST_ROWS
from penstock.web.routes import ROUTES
from tests.browser.conftest import HOSTILE, Visitor
from tests.web.conftest import served

pytestmark = pytest.mark.browser


def test_every_page_opens_on_a_desk_and_on_a_phone_and_nothing_of_a_name_runs(visitor: Visitor):
    """Issue 7: a complaint of the browser fails this, see `visitor`."""
    places = visitor.places()
    assert len(places) >= 2

    for place in places:
        visitor.go(place)
        expect(visitor.page.locator("h1")).to_be_visible()
        assert visitor.page.locator("[aria-current=page]").count() == 1, place
        visitor.page.set_viewport_size({"width": 390, "height": 800})
        visitor.fits()
        visitor.page.set_viewport_size({"width": 1280, "height": 900})


def test_a_job_of_every_hostile_name_is_shown_as_text(visitor: Visitor, store):
    for name in HOSTILE:
        visitor.go("/jobs")
        visitor.page.fill("[data-filter]", f"key:'{name}'" if "'" not in name else f'key:"{name}"')
        visitor.page.keyboard.press("Enter")
        expect(visitor.page.locator("tr[data-row]")).to_have_count(1)
        visitor.page.locator("tr[data-row] a").first.click()

        shown = visitor.page.inner_text("main")
        assert name in shown
        assert "12345678901234567890" in shown


def test_an_error_that_turns_the_writing_round_turns_nothing_beside_it(
    visitor: Visitor, store, clock
):
    store.enqueue([a_job(clock, "media:turn", key="beside")])
    [job] = claim(store, tasks={"media:turn": 1})
    store.settle([(job, begun(failed("Boom: \u202egnp.exe"), clock.now()))])
    visitor.go("/jobs?q=task:media:turn")

    error = visitor.page.locator("tr[data-row] .error-line").bounding_box()
    key = visitor.page.locator("tr[data-row] .what .tag").bounding_box()

    assert error is not None
    assert key is not None
    assert error["x"] + error["width"] <= key["x"]


def test_the_keyboard_is_enough(visitor: Visitor):
    visitor.go("/")
    visitor.page.keyboard.press("/")
    visitor.page.wait_for_url("**/jobs")
    visitor.page.keyboard.press("/")
    visitor.page.keyboard.type("queue:default")
    visitor.page.keyboard.press("Enter")
    visitor.page.wait_for_url(re.compile("q=queue"))
    visitor.page.keyboard.press("j")
    visitor.page.keyboard.press("j")
    chosen = visitor.page.locator("tr.chosen a").first.get_attribute("href")
    visitor.page.keyboard.press("Enter")

    visitor.page.wait_for_url(f"**{chosen}")
    visitor.page.keyboard.press("?")
    expect(visitor.page.locator("dialog")).to_be_visible()
    visitor.page.keyboard.press("Escape")
    expect(visitor.page.locator("dialog")).to_be_hidden()
    visitor.page.keyboard.press("0")
    tenth = [route.path for route in ROUTES if route.nav][9]
    visitor.page.wait_for_url(f"**{tenth}")
    visitor.page.keyboard.press("1")
    visitor.page.wait_for_url(f"{visitor.web.address}/")


def test_a_filter_is_completed_while_it_is_typed(visitor: Visitor):
    page = visitor.page
    visitor.go("/jobs")
    page.keyboard.press("/")
    page.keyboard.type("-st")
    expect(page.locator("#suggestions li")).to_have_text(["-state:"])
    page.keyboard.press("Tab")
    expect(page.locator("#suggestions li").first).to_have_text("-state:waiting")
    page.keyboard.type("fa")
    expect(page.locator("#suggestions li")).to_have_text(["-state:failed"])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.type("queue:def")
    expect(page.locator("#suggestions li")).to_have_text(["queue:default"])
    page.locator("#suggestions li").click()
    page.keyboard.press("Enter")

    page.wait_for_url(re.compile(r"q=-state%3Afailed\+queue%3Adefault"))
    expect(page.locator("tr[data-row]")).to_have_count(30)
    page.keyboard.press("j")
    expect(page.locator("tr.chosen")).to_have_count(1)


def test_suggestions_that_come_late_neither_undo_a_choice_nor_open_anew(visitor: Visitor):
    page, late = visitor.page, list[Route]()
    items, field = page.locator("#suggestions li"), page.locator("[data-filter]")
    visitor.go("/jobs")

    def hold(route: Route) -> None:
        late.append(route)

    page.route(re.compile("word=-state%3Af[ab]$"), hold)
    field.press_sequentially("-state:f")
    expect(items).to_have_text(["-state:failed"])

    with page.expect_request(re.compile("word=-state%3Afa$")):
        page.keyboard.type("a")
    page.keyboard.press("ArrowDown")
    with page.expect_response(re.compile("word=-state%3Afa$")):
        late.pop().continue_()
    expect(items).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(field).to_have_value("-state:failed ")
    with page.expect_request(re.compile("word=-state%3Afb$")):
        field.fill("-state:fb")
    page.keyboard.press("Escape")
    with page.expect_response(re.compile("word=-state%3Afb$")):
        late.pop().fulfill(json=["-state:fb"])

    page.evaluate("fetch('/jobs/suggestions?word=x').then((answer) => answer.text())")
    assert items.count() == 0  # that answer was there before this one


def test_light_and_dark_are_remembered(visitor: Visitor):
    visitor.go("/")
    page = visitor.page

    def ground() -> str:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    before = ground()
    page.locator("[data-theme-switch]").click()
    after = ground()
    visitor.go("/jobs")

    assert before != after
    assert ground() == after


def test_more_rows_come_by_a_click_and_stay_in_order(visitor: Visitor, store, clock):
    store.enqueue(some_jobs(clock, 120, queue="long"))
    visitor.go("/jobs?q=queue:long")
    rows = visitor.page.locator("tr[data-row]")
    first = rows.count()

    visitor.page.locator("tr.more a").first.click()

    expect(rows).to_have_count(2 * first)
    shown = [
        row.get_attribute("href") or "" for row in visitor.page.locator("tr[data-row] a.id").all()
    ]
    assert shown == sorted(shown, reverse=True)
    assert len(set(shown)) == len(shown)


def test_a_failed_job_is_retried_from_its_page(visitor: Visitor, store):
    visitor.go("/jobs?q=state:failed")
    visitor.page.locator("tr[data-row] a").first.click()
    id = visitor.page.url.rpartition("/")[2]
    assert store.get(id).state is State.FAILED

    visitor.page.get_by_text("Retry…").click()
    form = visitor.page.locator("form[action$='/retry']")
    form.get_by_label("Reason").fill("the disk is back")
    form.locator("button").click()

    expect(visitor.page.locator("main")).to_contain_text("the disk is back")
    expect(visitor.page.locator("main")).to_contain_text("otto")
    assert store.get(id).state is State.READY


def test_a_job_is_run_again_with_arguments_that_were_edited(visitor: Visitor, store, clock):
    job = a_job(clock, body=b'{"args":{"n":12345678901234567890,"to":"ada"}}')
    store.enqueue([job])
    store.act("cancel", [job.id])
    visitor.go(f"/jobs/{job.id}")
    page = visitor.page

    page.get_by_text("Run a copy…").click()
    arguments = page.get_by_label("Arguments of the copy")
    expect(arguments).to_have_value(re.compile("12345678901234567890"))
    arguments.fill(arguments.input_value().replace("ada", "bob"))
    page.get_by_label("Reason for the copy").fill("wrong customer")
    page.get_by_text("Enqueue the copy").click()

    expect(page.locator("h1")).to_contain_text("ready")
    assert page.url.rpartition("/")[2] != job.id
    expect(page.locator("main")).to_contain_text(f"copy of{job.id}")
    expect(page.locator("main")).to_contain_text("12345678901234567890")
    expect(page.locator("main")).to_contain_text("bob")


def test_live_numbers_move_without_a_click(visitor: Visitor, store, clock):
    visitor.go("/")
    ready = visitor.page.locator("[data-live] [data-figure=ready]")
    expect(visitor.page.locator("#live")).to_have_text("live")
    before = int(ready.inner_text().replace(",", ""))

    store.enqueue(some_jobs(clock, 5000, queue="flood"))

    expect(ready).to_have_text(f"{before + 5000:,}")
    assert visitor.page.locator("canvas").count() >= 3
    expect(visitor.page.locator("#skipped")).to_be_hidden()


def test_what_the_live_view_skips_it_says(visitor: Visitor, store, clock):
    visitor.go("/")
    expect(visitor.page.locator("#live")).to_have_text("live")
    jobs = some_jobs(clock, MOST_ROWS + 100, queue="flood")
    store.enqueue(jobs)

    store.act("cancel", [job.id for job in jobs], "ada", "too many")

    expect(visitor.page.locator("#skipped")).to_contain_text("the first 2,000 events")
    expect(visitor.page.locator("#skipped")).to_be_hidden()  # with the next second


def test_plots_of_the_reports_are_drawn_anew_in_other_colours(visitor: Visitor, store, clock):
    for _ in range(3):
        clock.advance(seconds=60)
        store.gauge()
    visitor.go("/reports")
    page = visitor.page
    plots = page.locator("[data-chart] canvas")
    expect(plots).to_have_count(5)
    legends = page.locator("[data-chart] .u-legend")
    expect(legends.filter(has_text="ready").first).to_be_visible()
    before = page.evaluate("document.querySelector('canvas').toDataURL()")

    page.locator("[data-theme-switch]").click()

    expect(plots).to_have_count(5)
    assert page.evaluate("document.querySelector('canvas').toDataURL()") != before


def test_findings_of_the_doctor_come_without_a_click(visitor: Visitor):
    visitor.go("/health")

    expect(visitor.page.locator("#findings tr[data-row]").first).to_be_visible()
    expect(visitor.page.locator("#findings")).to_contain_text("examined")


def test_all_failed_jobs_of_a_filter_are_retried_by_typing_their_number(
    visitor: Visitor, store, clock
):
    """Issue 7: a batch is counted first, asked for by its number, shown and audited."""
    jobs = some_jobs(clock, 250, queue="broken", task="media:resize")
    store.enqueue(jobs)
    held = claim(store, 250, tasks={"media:resize": 1})
    store.settle([(job, begun(failed("Boom: 1"), clock.now())) for job in held])
    visitor.go("/jobs?q=queue:broken")
    page = visitor.page

    page.get_by_role("link", name="retry", exact=True).click()
    expect(page.locator("main")).to_contain_text("250 jobs match")
    page.get_by_label("Reason").fill("the disk is back")
    page.get_by_label("Type the number").fill("250")
    page.locator("button.danger").click()
    expect(page.locator("#progress")).to_contain_text("done: 250 of 250")

    assert {store.get(job.id).state for job in jobs} == {State.READY}
    page.goto(f"{visitor.web.address}/jobs/{jobs[0].id}")
    expect(page.locator("main")).to_contain_text("the disk is back")
    expect(page.locator("main")).to_contain_text("otto")


def test_the_live_view_says_that_the_store_is_away_and_goes_on_when_it_is_back(
    browser: Browser, own_postgres, clock
):
    broker = open_broker(own_postgres.create_database())
    with served(broker) as web:
        page = browser.new_context().new_page()
        page.goto(f"{web.address}/?token={web.texts[Role.VIEW]}")
        live, ready = page.locator("#live"), page.locator("[data-live] [data-figure=ready]")
        expect(live).to_have_text("live")

        own_postgres.stop()

        expect(live).to_contain_text("store", timeout=30_000)
        own_postgres.start()
        expect(live).to_have_text("live", timeout=30_000)
        broker.enqueue(some_jobs(clock, 3))
        expect(ready).to_have_text("3")
        page.context.close()
    broker.close()
