"""The console's server: its pages, and what signed-in people may do."""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from streamer.console.acts import Act, Refused, Sent
from streamer.console.desk import MOST_FORM_BYTES, NoSuchItem, written
from streamer.console.doors import IssuerAway, NotIdentified, Session, TooMany
from streamer.console.forms import Forms
from streamer.console.pages import NotThere, Pages
from streamer.console.render import STATIC, environment
from streamer.console.trial import BEGIN, Trials, Tried, trial_page, upload_form
from streamer.errors import DatabaseFault, StreamerError, Unavailable, UsageError
from streamer.gates import free_text
from streamer.review.app import PERSON
from streamer.security.accounts import ROLES, Deed
from streamer.signing.policies import PolicyKeys
from streamer.telemetry.metrics import RequestMetrics, measured
from streamer.web.guard import Guard, Served
from streamer.web.requests import bounded_body, caller, media_type, static_file

MOST_BYTES: Final = 65_536
"""Of a form."""

_TITLES: Final = {
    400: "That was not understood",
    403: "You may not do this",
    404: "There is no such page",
    409: "It was not done",
    429: "Too many attempts",
    500: "The database is not in order",
    503: "The database does not answer",
}


def console_app(
    forms: Forms,
    served: Served,
    *,
    review: ASGIApp,
    keys: PolicyKeys,
    tried: Tried,
    requests: RequestMetrics | None = None,
) -> Guard:
    """Make the console's application.

    `review` : the review page, put below ``/label/`` for people who may label, who get a token of the forms' `access` for it.
    `keys` : whose signatures of policies are trusted. `tried` : says what a gate would make of an uploaded file. `requests` counts
    requests; None: nothing does.
    """
    pages = Pages(forms.store, keys=keys, clock=forms.clock)
    site = _Site(forms, pages, Trials(tried), served)
    page, act = site.page, site.act
    routes = [
        *(
            Route(path, static_file("streamer.console", *what), methods=["GET"])
            for path, what in STATIC.items()
        ),
        Route("/login", site.login, methods=["GET", "POST"]),
        Route("/enter", site.enter, methods=["GET", "POST"]),
        Route("/leave", site.leave, methods=["POST"]),
        Route("/", page("look", "gates.html", pages.gates)),
        Route("/gate/{gate}", site.of_gate("look", "gate.html", pages.gate)),
        Route("/gate/{gate}/what-if", site.of_gate("read", "what_if.html", pages.what_if)),
        Route("/decisions", page("read", "decisions.html", pages.decisions)),
        Route("/decision", page("read", "decision.html", pages.decision)),
        Route("/decision.json", site.record()),
        Route("/desk", page("read", "desk.html", forms.desk.list)),
        Route("/desk/item", page("read", "desk_item.html", forms.desk.item)),
        Route("/desk/item", site.item_again, methods=["POST"]),
        Route("/try", page("read", "try.html", lambda _query: BEGIN), methods=["GET"]),
        Route("/try", site.try_upload, methods=["POST"]),
        Route("/proposals", page("look", "proposals.html", pages.proposals)),
        Route("/alerts", page("look", "alerts.html", pages.alerts)),
        Route("/incident", page("look", "incident.html", pages.incident)),
        Route("/people", page("administer", "people.html", pages.people)),
        Route("/you", page("look", "you.html", lambda _query: {})),
        Route("/label", site.label(), methods=["GET"]),
        Mount("/label", _LabellersOnly(review, site)),
        *(
            Route(path, act(deed, work, at_desk=deed == "release"), methods=["POST"])
            for deed, works in forms.acts().items()
            for path, work in works.items()
        ),
        *site.issuers_routes(),
    ]
    refused = {StreamerError: site.refused, HTTPException: site.refused}
    app: ASGIApp = Starlette(routes=routes, exception_handlers=refused)
    if requests is not None:
        app = measured(app, requests)
    return Guard(app, served, forms=True)


class _Site:
    """The handlers of one console."""

    def __init__(self, forms: Forms, pages: Pages, trials: Trials, served: Served) -> None:
        self.forms = forms
        self.pages = pages
        self._doors = forms.doors
        self._issuer = forms.issuer
        self._trials = trials
        self._templates = environment()
        self._cookie = f"streamer-console-{served.port}"
        self._secure = served.secure
        self._proxies = 0 if served.public is None and served.proxies is None else served.proxies

    # -- who asks -------------------------------------------------------------------------------------------

    async def session(self, request: Request) -> Session | None:
        """The session of a request; None where there is none."""
        cookie = request.cookies.get(self._cookie, "")
        if not cookie:
            return None
        by_itself = "x-refresh" in request.headers
        return await run_in_threadpool(lambda: self._doors.session(cookie, by_itself=by_itself))

    def page(
        self, deed: Deed, template: str, gather: Callable[[Mapping[str, str]], dict[str, Any]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler of a page for people who may do `deed`."""
        return self._seen(
            deed,
            lambda request, session: self._page(
                request, session, template, lambda: gather(dict(request.query_params))
            ),
        )

    def _seen(
        self, deed: Deed, show: Callable[[Request, Session], Response]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler that shows something, in a thread, to people who may do `deed`, and leads others to the door."""

        async def answer(request: Request) -> Response:
            session = await self.session(request)
            if session is None:
                return await self._to_the_door(request)
            _require(session, deed)
            return await run_in_threadpool(show, request, session)

        return answer

    def act(
        self, deed: Deed, work: Act, *, at_desk: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler of a form for people who may do `deed`.

        `at_desk` : it has an answer's text, and where it is refused the page shows again what somebody wrote.
        """

        async def answer(request: Request) -> Response:
            form = await _form(request, MOST_FORM_BYTES if at_desk else MOST_BYTES)
            if at_desk:
                request.state.wrote = written(form)
            session = await self._sender(request, form)
            _require(session, deed)
            try:
                done = await run_in_threadpool(work, Sent(session, form))
                if deed in ("approve", "release"):
                    self.forms.announce()
                session.notice = done.notice or session.notice
                return _go(done.where)
            except Unavailable:
                raise Refused(
                    503,
                    "whether it was done is not known; as soon as the database answers, the page before this one says so",
                ) from None
            finally:
                self.pages.forget()

        return answer

    async def item_again(self, request: Request) -> Response:
        """Show a batch with what somebody wrote about it before it was refused; lets them in where their session has ended."""
        form = await _form(request, MOST_FORM_BYTES)
        query = dict(request.query_params)
        batch = {name: query[name] for name in ("gate", "batch", "attempt") if name in query}
        wrote = request.state.wrote = written(form | batch)
        session, cookie = await self.session(request), None
        if session is None:
            cookie = await self._signed_in(request, form)
            session = await run_in_threadpool(self._doors.session, cookie or "")
        if session is None:
            raise Refused(403, "name and password do not fit, or the account is closed")
        try:
            _require(session, "release")
            answer = await run_in_threadpool(
                self._page, request, session, "desk_item.html", lambda: self.forms.desk.item(query, wrote)
            )
        except StreamerError:
            self._doors.leave(cookie or "")  # the page that says so has no session
            raise
        return answer if cookie is None else self._remember(answer, cookie)

    async def try_upload(self, request: Request) -> Response:
        """Say what a gate would make of an uploaded file."""
        session = await self.session(request)
        if session is None:
            raise Refused(403, "your session has ended, and nothing was done")
        _require(session, "read")
        form = await upload_form(request)
        await self._sender(request, {"key": form.get("key", ("", b""))[1].decode("utf-8", "replace")})
        found = await run_in_threadpool(self._trials.answer, form)
        if isinstance(found, str):
            return trial_page(found)
        return await run_in_threadpool(self._page, request, session, "try.html", lambda: found)

    async def _sender(self, request: Request, form: Mapping[str, str]) -> Session:
        session = await self.session(request)
        if session is None:
            raise Refused(403, "your session has ended, and nothing was done")
        if not hmac.compare_digest(form.get("key", "").encode(), session.key.encode()):
            raise Refused(403, "this form is not of your session; open the page again and repeat it")
        return session

    def of_gate(
        self, deed: Deed, template: str, gather: Callable[[str, Mapping[str, str]], dict[str, Any]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler of a page about a gate."""

        def show(request: Request, session: Session) -> Response:
            name = request.path_params["gate"]
            try:
                self.forms.store.gates.get(name)
            except UsageError as error:
                raise NotThere(str(error)) from None
            return self._page(request, session, template, lambda: gather(name, dict(request.query_params)))

        return self._seen(deed, show)

    def record(self) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler of a decision's record as JSON."""

        def show(request: Request, _session: Session) -> Response:
            found = self.pages.record_of(dict(request.query_params))
            return Response(
                json.dumps(found, default=str, ensure_ascii=False, indent=2),
                media_type="application/json",
                headers={"content-disposition": 'attachment; filename="decision.json"'},
            )

        return self._seen("read", show)

    # -- the doors ------------------------------------------------------------------------------------------

    async def _signed_in(self, request: Request, form: Mapping[str, str]) -> str | None:
        name, password = form.get("name", ""), form.get("password", "")
        return await run_in_threadpool(
            self._doors.sign_in, name, password, caller(request, proxies=self._proxies)
        )

    async def login(self, request: Request) -> Response:
        """Show the form, or let somebody in."""
        if request.method == "GET":
            where = _inside(request.query_params.get("next", ""))
            return await run_in_threadpool(self._login_page, request, "", where)
        form = await _form(request)
        where, name = _inside(form.get("next", "")), form.get("name", "")[:200]
        if (cookie := await self._signed_in(request, form)) is not None:
            return self._let_in(cookie, where)
        wrong = "Name and password do not fit, or the account is closed."
        return await run_in_threadpool(self._login_page, request, wrong, where, 403, name)

    async def enter(self, request: Request) -> Response:
        """Exchange the token of a printed link; a page with a script takes it out of the address."""
        if request.method == "GET":
            return self._html(request, None, "enter.html", {})
        form = await _form(request)
        cookie = await run_in_threadpool(self._doors.enter, form.get("token", ""))
        if cookie is None:
            raise Refused(
                403,
                "this link is not, or no longer, the one that was printed; once there are accounts, sign in",
            )
        return self._let_in(cookie, "/")

    def issuers_routes(self) -> list[Route]:
        """The way to the issuer and back; none without one."""
        if self._issuer is None:
            return []
        from streamer.console.oidc_routes import BACK, START, OidcRoutes

        made = OidcRoutes(
            self._issuer,
            self.forms.store.accounts,
            self._doors,
            cookie=self._cookie,
            secure=self._secure,
            inside=_inside,
            let_in=self._let_in,
        )
        return [Route(START, made.start, methods=["GET"]), Route(BACK, made.back, methods=["GET"])]

    async def leave(self, request: Request) -> Response:
        """End the session, on the review page too."""
        form = await _form(request)
        session = await self._sender(request, form)
        self._doors.leave(request.cookies.get(self._cookie, ""))
        self.forms.access.end(session.name)
        answer = _go("/login")
        if session.id_token and self._issuer is not None:
            issuer, back = self._issuer, self._issuer.redirect.removesuffix("/oidc/callback") + "/login"
            there = await run_in_threadpool(issuer.sign_out, session.id_token, back)
            # A link, because the pages' own policy forbids forms that lead to another origin.
            answer = self._html(request, None, "left.html", {"there": there})
        answer.delete_cookie(self._cookie, path="/")
        return answer

    def label(self) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler that leads somebody who may label to the review page, under their name."""
        # In the fragment, which no server and no log ever sees.
        return self._seen(
            "label", lambda _, session: _go(f"/label/#{self.forms.access.invite(session.name, once=True)}")
        )

    async def _to_the_door(self, request: Request) -> Response:
        if "x-refresh" in request.headers:
            return Response(status_code=401)
        where = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return _go("/login" + (f"?next={quote(where, safe='')}" if where != "/" else ""))

    def _let_in(self, cookie: str, where: str) -> Response:
        return self._remember(_go(where), cookie)

    def _remember(self, answer: Response, cookie: str) -> Response:
        # Lax, so that a link in a message leads to its page; forms have the session's key beside it.
        answer.set_cookie(self._cookie, cookie, path="/", httponly=True, samesite="lax", secure=self._secure)
        return answer

    # -- answers --------------------------------------------------------------------------------------------

    def _page(
        self, request: Request, session: Session, template: str, gather: Callable[[], dict[str, Any]]
    ) -> Response:
        values = gather()
        return self._html(request, session, template, values | {"counts": self.pages.counts()})

    def _login_page(
        self, request: Request, wrong: str, where: str, status: int = 200, name: str = ""
    ) -> Response:
        values = {
            "wrong": wrong,
            "next": where,
            "name": name,
            "accounts": self.forms.store.accounts.any(),
        }
        return self._html(request, None, "login.html", values, status)

    def _html(
        self,
        request: Request,
        session: Session | None,
        template: str,
        values: dict[str, Any],
        status: int = 200,
    ) -> Response:
        notice = ""
        if session is not None and "x-refresh" not in request.headers:
            notice, session.notice = session.notice, ""
        written = self._templates.get_template(template).render(
            session=session,
            notice=notice,
            here=request.url.path,
            now=self.forms.clock(),
            all_roles=ROLES,
            issuer=None if self._issuer is None else self._issuer.name,
            **{"counts": {"desk": 0, "proposals": 0, "alerts": 0}} | values,
        )
        return Response(written, status, media_type="text/html; charset=utf-8")

    async def refused(self, request: Request, error: Exception) -> Response:
        """Say what was not done, and why."""
        status, detail = _status(error)
        try:
            session = await self.session(request)
        except StreamerError:
            session = None
        title = (
            "You are not signed in"
            if isinstance(error, IssuerAway | NotIdentified) or (session is None and status == 403)
            else _TITLES.get(status, "It was not done")
        )
        values = {
            "title": title,
            "detail": detail[:1].upper() + detail[1:],
            "wrote": getattr(request.state, "wrote", None),
        }
        return self._html(request, session, "refused.html", values, status)


class _LabellersOnly:
    """The review page, for whoever may label."""

    def __init__(self, review: ASGIApp, site: _Site) -> None:
        self._review = review
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        session = await self._site.session(Request(scope))
        if session is None or not session.may("label"):
            code = "no_session" if session is None else "not_allowed"
            status = 401 if session is None else 403
            body = msgspec.json.encode(
                {"error": code, "detail": "sign in at the console as somebody who may label"}
            )
            await Response(body, status, media_type="application/json")(scope, receive, send)
            return
        # The review page keeps sessions of its own, which may be of whoever was signed in before.
        await self._review({**scope, PERSON: session.name}, receive, send)


def _require(session: Session, deed: Deed) -> None:
    if not session.may(deed):
        raise Refused(
            403,
            f"your roles ({', '.join(session.roles)}) do not allow this; an administrator can change them",
        )


def _status(error: Exception) -> tuple[int, str]:
    if isinstance(error, HTTPException):
        return error.status_code, "nothing is at this address" if error.status_code == 404 else error.detail
    if isinstance(error, Refused):
        return error.status, str(error)
    if isinstance(error, TooMany):
        return 429, str(error)
    if isinstance(error, NotIdentified):
        return 403, f"{error}."
    if isinstance(error, IssuerAway):
        return 503, f"{error}. Whoever has a password here can sign in meanwhile."
    if isinstance(error, NotThere | NoSuchItem):
        return 404, str(error)
    if isinstance(error, Unavailable):
        return 503, "nothing was changed; this page works again as soon as the database answers"
    if isinstance(error, DatabaseFault):
        return 500, "the database refuses what it is asked; `streamer doctor` says more"
    return (409 if isinstance(error, UsageError) else 400), str(error)


async def _form(request: Request, most: int = MOST_BYTES) -> dict[str, str]:
    """Read a form; of a field that is there several times its values, separated by line feeds."""
    if media_type(request) != "application/x-www-form-urlencoded":
        raise Refused(400, "what the pages send are forms")
    body = await bounded_body(request, most)
    if body is None:
        raise Refused(400, f"a form has at most {most} bytes")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=100, errors="strict")
    except ValueError:
        raise Refused(400, "this form cannot be read") from None
    form: dict[str, str] = {}
    for name, value in pairs:
        if (wrong := free_text.fault(value, most)) is not None:
            raise Refused(400, f"the field {name[:40]!r} {wrong}")
        form[name] = f"{form[name]}\n{value}" if name in form else value
    return form


def _go(where: str) -> Response:
    return RedirectResponse(where, 303)


def _inside(where: str) -> str:
    """Return the local address that somebody asked for before they signed in; the first page for any other."""
    plain = where.startswith("/") and not where.startswith(("//", "/\\")) and where.isprintable()
    return where if plain and "\\" not in where else "/"
