"""Coming in with a token, by the form that whoever is not known is shown; and leaving."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from penstock.web.access import Tokens
from penstock.web.guard import Refusal, local, set_session
from penstock.web.request import Asked


def enter(asked: Asked) -> Response:
    form, access = asked.form(), asked.site.access
    person = access.person_with(form.get("token", "")) if isinstance(access, Tokens) else None
    if person is None or not isinstance(access, Tokens):
        sentence = "That token is not one of this dashboard."
        return asked.site.refuse(asked.request, Refusal(401, sentence))
    answer = RedirectResponse(local(form.get("to", ""), asked.root), status_code=303)
    set_session(answer, asked.request, access.enter(person))
    return answer


def leave(asked: Asked) -> Response:
    if isinstance(asked.site.access, Tokens):
        asked.site.access.leave(asked.request)
    return asked.go("/")
