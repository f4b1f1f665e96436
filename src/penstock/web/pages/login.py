"""Log in with a token, and log out."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from penstock.web.access import Tokens
from penstock.web.guard import WRONG_TOKEN, Refusal, local_path, set_session
from penstock.web.request import WebRequest


async def enter(request: WebRequest) -> Response:
    form, access = request.form(), request.site.access
    given = form.get("token", "")
    person = access.person_with_ticket_or_token(given) if isinstance(access, Tokens) else None
    if person is None or not isinstance(access, Tokens):
        await request.site.wrong_tokens.count(request.http)
        return request.site.refuse(request.http, Refusal(401, WRONG_TOKEN))
    answer = RedirectResponse(local_path(form.get("to", ""), request.root), status_code=303)
    set_session(answer, request.http, access.start_session(person))
    await request.site.record_login(person, request.http)
    return answer


def leave(request: WebRequest) -> Response:
    if isinstance(request.site.access, Tokens):
        request.site.access.end_session(request.http)
    return request.go("/")
