"""The dashboard itself: one store, a small pool of threads, and the routes behind a guard.

Everything that could touch the store runs on the pool; the event loop only moves bytes. The number
of waiting requests is bounded: beyond it the answer is 503.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route as StarletteRoute
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from penstock.app.app import App
from penstock.broker.protocol import Broker
from penstock.broker.read_budget import Share
from penstock.errors import PenstockError, StoreUnreachable, UnknownOutcome
from penstock.operate.access_list import AccessList
from penstock.operate.actions import Actions
from penstock.operate.alert_watch import AlertWatch
from penstock.operate.listed_store import ListedStore
from penstock.operate.refusals import Conflict, Forbidden, NotFound
from penstock.operate.roles import Person, Role, forbidden
from penstock.web.access import Access, Tokens
from penstock.web.bulk_operations import Operations
from penstock.web.checked_store import CheckedStore, NeedsPost
from penstock.web.count_cache import CountCache
from penstock.web.doctor_runs import DoctorRuns
from penstock.web.guard import (
    MOST_BODY,
    SAFE,
    Confirmation,
    Guard,
    Refusal,
    TooLarge,
    path_of,
    person_in,
)
from penstock.web.live import Live
from penstock.web.metrics import Metrics
from penstock.web.rendering import environment
from penstock.web.request import Malformed, WebRequest
from penstock.web.route import Route, check_routes, may_use
from penstock.web.routes import ROUTES
from penstock.web.store_opening import StoreOpening
from penstock.web.wrong_tokens import WINDOW_SECONDS, Counts, WrongTokens, address_of

logger = logging.getLogger("penstock.web")

THREADS = 4
MOST_WAITING = 64
API = "/api/"
_NOBODY = Person("nobody", Role.ANYBODY)
_UNKNOWN = Person("unknown", Role.VIEW)  # who gave a wrong token, in the audit
_STATUS: tuple[tuple[type[PenstockError], int], ...] = (
    (Malformed, 400),
    (Forbidden, 403),
    (NotFound, 404),
    (NeedsPost, 405),
    (Conflict, 409),
    (StoreUnreachable, 503),
    (UnknownOutcome, 503),
    (PenstockError, 422),
)

T = TypeVar("T")


class SiteBusy(Exception):
    """Too many requests are waiting."""


class _Route(StarletteRoute):
    """A route that answers 405 in the same form as every other refusal."""

    def __init__(self, *args: Any, refuse: Callable[[Request, Refusal], Response], **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._refuse = refuse

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        allowed = sorted(self.methods or ())
        if scope["method"] in allowed:
            await super().handle(scope, receive, send)
            return
        sentence = f"{path_of(scope)} takes {', '.join(allowed)}, not {scope['method']}."
        answer = self._refuse(Request(scope), Refusal(405, sentence))
        answer.headers["allow"] = ", ".join(allowed)
        await answer(scope, receive, send)


class Dashboard:
    """An ASGI application; `close` ends its threads, and leaves the store to whoever opened it."""

    def __init__(
        self,
        store: App | Broker | StoreOpening,
        *,
        access: Access,
        hosts: Collection[str] | None,
        prefix: str = "",
        read_only: bool = False,
        hide_arguments: bool = False,
        where: str = "",
        url: str | None = None,
        lake: Path | None = None,
        metrics: bool = False,
        alerts: AlertWatch | None = None,
        routes: Sequence[Route] = ROUTES,
    ) -> None:
        self._opening = store if isinstance(store, StoreOpening) else None
        self.app = store if isinstance(store, App) else self._opening and self._opening.app
        self._broker = None if isinstance(store, (App, StoreOpening)) else store
        self.access = access
        self.hide_arguments = hide_arguments
        self._where = where
        self._url = url
        self.lake = lake
        self.metrics = Metrics() if metrics else None
        self.alerts = alerts
        self.doctor_runs = DoctorRuns()
        self.count_cache = CountCache()
        self._share = Share()
        self.routes = check_routes(routes)
        self._templates = environment()
        self._pool = ThreadPoolExecutor(THREADS, "penstock-web")
        self._waiting = 0
        self.operations = Operations()
        self.live = Live(self)
        self._live: dict[AccessList | None, Live] = {None: self.live}
        self.wrong_tokens = WrongTokens(time.monotonic, self._record_wrong_tokens)
        self._logins: dict[tuple[str, str], float] = {}  # when they were last recorded
        table = [
            _Route(route.path, self._endpoint(route), methods=[route.method], refuse=self.refuse)
            for route in self.routes
        ]
        self._guard = Guard(
            Router(table, redirect_slashes=False, default=self._missing),
            access=access,
            hosts=hosts,
            open_paths=[route.path for route in self.routes if route.role is Role.ANYBODY],
            prefix=prefix.rstrip("/"),
            highest=Role.VIEW if read_only else Role.ADMIN,
            refuse=self.refuse,
            confirm=self.confirm,
            wrong_tokens=self.wrong_tokens,
            logged_in=self.record_login,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guard(scope, receive, send)

    @property
    def broker(self) -> Broker:
        """The store; an App's is opened by the first request that needs it, on the pool."""
        if self._broker is not None:
            return self._broker
        if self._opening is not None:
            return self._opening.broker
        return cast("App", self.app).broker

    def store_for(self, person: Person, *, may_change: bool) -> CheckedStore:
        """The store as this person sees it, with the role checked at each call."""
        broker: Any = self.broker
        if person.only is not None:
            broker = ListedStore(broker, person.only, person.name)
        return CheckedStore(
            broker,
            person,
            may_change=may_change,
            hide_arguments=self.hide_arguments,
            # What is cut for one person is kept for nobody.
            count_cache=self.count_cache if person.only is None else CountCache(),
        )

    def live_for(self, only: AccessList | None) -> Live:
        """The live numbers of those who see the same."""
        if only not in self._live:
            self._live[only] = Live(self, only)
        return self._live[only]

    def now(self) -> float:
        """The store's time; this machine's until it is open."""
        try:
            return self.broker.clock.now()
        except PenstockError:
            return time.time()

    @property
    def where(self) -> str:
        """The store's address as pages show it, without its password."""
        if self._where:
            return self._where
        return type(self._broker).__name__ if self.app is None else self.app.describe()

    @property
    def url(self) -> str | None:
        """The store's URL, for the doctor; None if only an open broker was given."""
        if self._url is None and self.app is not None and self.app.opens_itself:
            return self.app.resolved_url.url
        return self._url

    def end_streams(self) -> None:
        """End the endless streams, so that a server can stop; safe in a signal handler."""
        for live in list(self._live.values()):
            live.end()

    def run_doctor(self, store: CheckedStore) -> None:
        """Start the doctor unless it runs, and wait for its findings for a bounded time."""
        known = None if self.app is None else self.app.known_tasks()
        self.doctor_runs.run(lambda: store.examine(self.url, known), store.now)

    async def record_login(self, person: Person, request: Request) -> None:
        """Put a login into the audit: one a minute of a person from an address."""
        key, now = (person.name, address_of(request)), time.monotonic()
        recent = {who: at for who, at in self._logins.items() if now - at < WINDOW_SECONDS}
        known, self._logins = key in recent, {key: now, **recent}
        if not known:
            data = {"role": str(person.role), "from": key[1]}
            await self._record(lambda: self._record_now(person, data))

    async def _record_wrong_tokens(self, counts: Counts) -> None:
        await self._record(lambda: self._record_now(_UNKNOWN, _failures(counts)))

    async def _record(self, record: Callable[[], None]) -> None:
        try:
            await self.run(record)
        except SiteBusy:
            logger.warning("not in the audit: a login, since too many requests are waiting")

    def _record_now(self, person: Person, data: dict[str, Any]) -> None:
        try:
            Actions(self.broker, person).record_login(data, failed=person is _UNKNOWN)
        except Exception as error:
            # A store that is away, or may not be written to, keeps nobody from logging in.
            logger.warning("not in the audit: login of %s, %s (%s)", person.name, data, error)

    def close(self) -> None:
        self.operations.close()
        if self.wrong_tokens.counts:
            self._record_now(_UNKNOWN, _failures(self.wrong_tokens.take()))
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def run(self, work: Callable[[], T]) -> T:
        """Run this on the pool, within the dashboard's read budget."""
        if self._waiting >= MOST_WAITING:
            raise SiteBusy

        def within_budget() -> T:
            with self._share.within():
                return work()

        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, within_budget)
        finally:
            self._waiting -= 1

    def rendered(self, template: str, request: WebRequest | Request, /, **values: Any) -> str:
        """HTML from a template; the values that the layout needs are added."""
        scope = (request.http if isinstance(request, WebRequest) else request).scope
        person, root, here = person_in(scope), scope.get("root_path", ""), path_of(scope)
        nav = [
            {"title": route.nav, "path": route.path, "here": _within(here, route.path)}
            for route in self.routes
            if route.nav and person is not None and route.role and may_use(person, route)
        ]
        given = {
            "root": root,
            "away": (),
            "person": person,
            "nav": nav,
            "where": self.where,
            **values,
        }
        if isinstance(request, WebRequest):
            given |= {"link": request.link, "now": request.store.now}
            given["away"] = () if person is None else request.store.missing()
        return self._templates.get_template(template).render(given)

    def refuse(self, request: Request, refusal: Refusal) -> Response:
        """A refusal as JSON for programs, or as a page for people."""
        status, sentence = refusal
        if wants_json(request):
            answer = json_response({"error": sentence}, status)
        else:
            page = "login.html" if status == 401 else "refused.html"
            target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            html = self.rendered(
                page,
                request,
                sentence=sentence,
                status=status,
                to=without_token(target),
                provider=provider_of(self.access),
            )
            answer = HTMLResponse(html, status)
        if status == 401:
            answer.headers["www-authenticate"] = "Bearer"
        return answer

    def confirm(self, request: Request, login: Confirmation) -> Response:
        """A page that names the person whom its button logs in."""
        return HTMLResponse(self.rendered("login_confirm.html", request, login=login))

    def _endpoint(self, route: Route) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            try:
                answer = await self._answer(route, request)
            except TooLarge:
                return self.refuse(
                    request, Refusal(413, f"The body has more than {MOST_BODY:,} bytes.")
                )
            except SiteBusy:
                return self.refuse(request, Refusal(503, "The dashboard is busy: try again."))
            except ClientDisconnect:
                return Response(status_code=400)  # nobody is there to read it
            except PenstockError as error:
                status = next(status for kind, status in _STATUS if isinstance(error, kind))
                return self.refuse(request, Refusal(status, str(error)))
            except Exception:
                logger.exception("%s %s", route.method, route.path)
                sentence = "Something went wrong here; the dashboard's own log says what."
                return self.refuse(request, Refusal(500, sentence))
            return answer if isinstance(answer, Response) else json_response(answer)

        return endpoint

    async def _answer(self, route: Route, request: Request) -> Any:
        person = person_in(request.scope) or _NOBODY
        if route.role is None or person.role < route.role:
            raise forbidden(route.does or route.name, route.role, person)
        if not may_use(person, route):
            raise Forbidden(f"{route.name}: not for {person.name}, who has an access list")
        body = b"" if request.method in SAFE else await request.body()
        web_request = WebRequest(self, request, person, body)
        if inspect.iscoroutinefunction(route.handle):
            return await route.handle(web_request)
        return await self.run(lambda: route.handle(web_request))

    async def _missing(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        answer = self.refuse(request, Refusal(404, f"There is no page {path_of(scope)}."))
        await answer(scope, receive, send)


def _failures(counts: Counts) -> dict[str, Any]:
    return {"tokens": sum(counts.values()), "from": counts}


def json_response(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def wants_json(request: Request) -> bool:
    return path_of(request.scope).startswith(API) or "authorization" in request.headers


def provider_of(access: Access) -> str:
    """The name of the provider where people can log in; empty without one."""
    return access.oidc.host if isinstance(access, Tokens) and access.oidc is not None else ""


def without_token(target: str) -> str:
    """The target of a redirect after login; empty if it contains a token."""
    return "" if "token=" in target or "/oidc/" in target else target


def _within(here: str, path: str) -> bool:
    return here == path or (path != "/" and here.startswith(f"{path}/"))
