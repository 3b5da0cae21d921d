"""The page's server: three files for everyone, and answers for holders of a token."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamer.errors import Unavailable, UsageError
from streamer.review import messages
from streamer.review.access import Access, LabellingSession, labeller_name
from streamer.review.items import Mark, Recalibrating, Reviewer, ReviewItem, ReviewStore, Rubric, UnknownItem
from streamer.web.guard import Guard, Served
from streamer.web.plot import COMMON
from streamer.web.requests import bounded_body, media_type, static_file

T = TypeVar("T", bound=msgspec.Struct)

HOLD: Final = timedelta(minutes=10)
"""How long an answer stays with a person who does nothing."""

UNDO: Final = timedelta(hours=1)
"""How far back a mark can be corrected."""

KEY_HEADER: Final = "x-review-key"
PERSON: Final = "streamer.person"
"""In the scope of a request: who is signed in where this page is a part of another, and the only one it is open to."""

_FILES: Final = {
    "/": ("review.html", "text/html; charset=utf-8"),
    "/review.js": ("review.js", "text/javascript; charset=utf-8"),
    "/review.css": ("review.css", "text/css; charset=utf-8", COMMON),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


class ReviewRefused(Exception):
    """An answer other than 200: its status, a word that the page knows, and a sentence for people."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code


_Answering = Callable[[LabellingSession, Any], Mapping[str, object]]


def review_app(
    store: ReviewStore,
    access: Access,
    served: Served,
    *,
    gates: Callable[[], Sequence[str]],
    recalibrating: Callable[[], Mapping[str, Recalibrating]],
    clock: Callable[[], datetime],
    hold: timedelta = HOLD,
    rubrics: Mapping[str, Rubric] = MappingProxyType({}),
) -> Guard:
    """Make the page's application.

    `gates` returns whose queues are shown, asked at each request, and may block; `recalibrating`
    what their next recalibrations wait for, likewise. `hold` : how long an answer stays with a
    person who does nothing. `rubrics` : what severities mean at gates, where that is not what the
    page says of all.
    """
    desk = _Desk(
        store=store, gates=gates, recalibrating=recalibrating, clock=clock, hold=hold, rubrics=rubrics
    )
    cookie_name = f"streamer-review-{served.port}"

    async def enter(request: Request) -> Response:
        message = await _read(request, messages.Enter)
        entered = access.enter(message.token, person=request.scope.get(PERSON))
        if entered is None:
            raise ReviewRefused(
                401, "no_session", "this address is not, or no longer, the one that was printed"
            )
        cookie, session = entered
        answer = _json({"key": session.key, "name": session.name, "named": session.named})
        answer.set_cookie(
            cookie_name, cookie, path="/", httponly=True, samesite="strict", secure=served.secure
        )
        return answer

    def answering(kind: type[T], handler: _Answering, *, nameless: bool = False) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            session = access.session(
                request.cookies.get(cookie_name, ""),
                request.headers.get(KEY_HEADER, ""),
                person=request.scope.get(PERSON),
            )
            if session is None:
                raise ReviewRefused(401, "no_session", "open the address that `streamer review` printed")
            if session.name is None and not nameless:
                raise ReviewRefused(409, "no_name", "say who you are first")
            message = await _read(request, kind)
            return _json(await run_in_threadpool(handler, session, message))

        return answer

    routes = [
        Route(path, static_file("streamer.review", *what), methods=["GET"]) for path, what in _FILES.items()
    ]
    routes += [
        Route("/api/enter", enter, methods=["POST"]),
        Route("/api/name", answering(messages.CallMe, _call, nameless=True), methods=["POST"]),
        Route("/api/who", answering(messages.Page, _who, nameless=True), methods=["POST"]),
        Route("/api/next", answering(messages.Page, desk.next), methods=["POST"]),
        Route("/api/others", answering(messages.Item, desk.others), methods=["POST"]),
        Route("/api/mark", answering(messages.Give, desk.mark), methods=["POST"]),
        Route("/api/skip", answering(messages.Item, desk.skip), methods=["POST"]),
        Route("/api/back", answering(messages.Back, desk.back), methods=["POST"]),
        Route("/api/renew", answering(messages.Item, desk.renew), methods=["POST"]),
        Route("/api/leave", answering(messages.Page, desk.leave), methods=["POST"]),
        Route("/api/progress", answering(messages.Page, desk.progress), methods=["POST"]),
    ]
    return Guard(
        Starlette(
            routes=routes,
            exception_handlers=dict.fromkeys((ReviewRefused, Unavailable, UnknownItem, UsageError), _refused),
        ),
        served,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Desk:
    """What happens to the items, as the page sees it. Its calls block."""

    store: ReviewStore
    gates: Callable[[], Sequence[str]]
    recalibrating: Callable[[], Mapping[str, Recalibrating]]
    clock: Callable[[], datetime]
    hold: timedelta
    rubrics: Mapping[str, Rubric]

    def next(self, session: LabellingSession, message: messages.Page) -> Mapping[str, object]:
        reviewer = _reviewer(session, message.holder)
        gates, refusals = self._open_to(reviewer)
        item = self.store.next(reviewer, gates, hold=self.hold, now=self.clock())
        return {
            **self._shown(item),
            "hold_seconds": self.hold.total_seconds(),
            "refusals": refusals,
        }

    def _shown(self, item: ReviewItem | None) -> dict[str, object]:
        return {"item": item, "rubric": None if item is None else self.rubrics.get(item.gate)}

    def _open_to(self, reviewer: Reviewer) -> tuple[Sequence[str], Sequence[str]]:
        """Return the gates that read this person's labels; and what to say of the others, before anything is labelled."""
        gates = self.gates()
        refusals = self.store.refusals(reviewer.labeller, gates)
        return [gate for gate in gates if gate not in refusals], list(refusals.values())

    def others(self, session: LabellingSession, message: messages.Item) -> Mapping[str, object]:
        return {"others": self.store.others(_reviewer(session, message.holder), message.item)}

    def mark(self, session: LabellingSession, message: messages.Give) -> Mapping[str, object]:
        mark = Mark(
            token=message.item,
            severity=message.severity,
            name=message.mark,
            count=message.count,
            remark=" ".join(message.remark.split()) or None,
            wrong=message.wrong,
        )
        decided = self.store.mark(_reviewer(session, message.holder), mark, now=self.clock())
        return {"decided": decided}

    def skip(self, session: LabellingSession, message: messages.Item) -> Mapping[str, object]:
        self.store.skip(_reviewer(session, message.holder), message.item, now=self.clock())
        return {}

    def back(self, session: LabellingSession, message: messages.Back) -> Mapping[str, object]:
        item = self.store.back(
            _reviewer(session, message.holder),
            self.gates(),
            before=message.before,
            since=self.clock() - UNDO,
        )
        return self._shown(item)

    def renew(self, session: LabellingSession, message: messages.Item) -> Mapping[str, object]:
        held = self.store.renew(
            _reviewer(session, message.holder), message.item, hold=self.hold, now=self.clock()
        )
        return {"held": held}

    def leave(self, session: LabellingSession, message: messages.Page) -> Mapping[str, object]:
        self.store.release(_reviewer(session, message.holder))
        return {}

    def progress(self, session: LabellingSession, message: messages.Page) -> Mapping[str, object]:
        now, reviewer = self.clock(), _reviewer(session, message.holder)
        gates, refusals = self._open_to(reviewer)
        progress = self.store.progress(reviewer, gates, since=_midnight(now), now=now)
        return {"progress": progress, "recalibrating": self.recalibrating(), "refusals": refusals}


def _call(session: LabellingSession, message: messages.CallMe) -> Mapping[str, object]:
    if session.named:
        raise ReviewRefused(409, "named", "this address is for one person, who has a name already")
    session.name = labeller_name(message.name)
    return {"name": session.name, "named": session.named}


def _who(session: LabellingSession, message: messages.Page) -> Mapping[str, object]:  # noqa: ARG001 - every handler has one
    return {"name": session.name, "named": session.named}


def _reviewer(session: LabellingSession, holder: str) -> Reviewer:
    if session.name is None:
        raise AssertionError("asked for a nameless person")
    return Reviewer(labeller=session.name, holder=holder)


def _midnight(now: datetime) -> datetime:
    """Return when today began, on this machine's calendar."""
    return now.astimezone().replace(hour=0, minute=0, second=0, microsecond=0)


async def _read(request: Request, kind: type[T]) -> T:
    if media_type(request) != "application/json":
        raise ReviewRefused(415, "bad_request", "what the page sends is JSON")
    body = await bounded_body(request, messages.MOST_BYTES)
    if body is None:
        raise ReviewRefused(413, "bad_request", f"a request has at most {messages.MOST_BYTES} bytes")
    try:
        return messages.read(body, kind)
    except ValueError as error:
        raise ReviewRefused(400, "bad_request", f"the request cannot be read: {error}") from None


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def _refused(_request: Request, error: Exception) -> Response:
    status, code, detail = _refusal(error)
    return _json({"error": code, "detail": detail}, status)


def _refusal(error: Exception) -> tuple[int, str, str]:
    match error:
        case ReviewRefused():
            return error.status, error.code, str(error)
        case Unavailable():
            return 503, "away", "the database does not answer"
        case UnknownItem():
            return 404, "unknown_item", "the database knows no such item of this person"
        case _:
            return 400, "bad_request", str(error)
