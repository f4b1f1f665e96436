"""Login at a provider on another site, in a browser that guards its cookies."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from penstock.brokers.memory import MemoryBroker
from penstock.operate.roles import Role
from penstock.web.access import Tokens, new_token
from penstock.web.oidc import OidcLogin
from penstock.web.oidc_settings import OidcSettings
from tests.web.conftest import served
from tests.web.openid import CLIENT, SECRET, provider

pytestmark = pytest.mark.browser


def test_a_login_elsewhere_leads_back_to_the_page_that_was_wanted(
    browser: Browser, memory_broker: MemoryBroker
):
    with provider() as openid:
        openid.claims["groups"] = ["staff"]
        roles = {Role.VIEW: frozenset({"staff"})}
        settings = OidcSettings(
            openid.issuer, CLIENT, SECRET, "groups", "email", ("openid",), "", roles
        )
        access = Tokens([new_token("ada")[0]], oidc=OidcLogin(settings))
        with served(memory_broker, access=access) as web:
            page = browser.new_context().new_page()
            # To a browser the ports of 127.0.0.1 are one site: the dashboard is on another one.
            page.goto(web.address.replace("127.0.0.1", "localhost") + "/queues?x=1")
            page.get_by_text("Log in at 127.0.0.1").click()

            expect(page.locator("h1")).to_have_text("Queues and rules")
            assert page.url.endswith("/queues?x=1")
            page.context.close()
