"""The page that takes a labelled file and says what a gate would make of it: `streamer try` as an upload. Nothing is kept."""

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from time import monotonic
from typing import Any, Final, NamedTuple, TypeAlias

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from streamer.console.render import STATIC, environment
from streamer.console.what_if import percent_of
from streamer.errors import UsageError
from streamer.frames.answers import Doubt
from streamer.frames.results import PAGE_POLICY
from streamer.web.guard import Guard, Served
from streamer.web.requests import bounded_body, form_parts, static_file

MOST_BYTES: Final = 16 * 2**20
"""Of an upload; `streamer try` reads larger files."""

_KEPT_SECONDS: Final = 900.0
_MOST_KEPT: Final = 4

BEGIN: Final[dict[str, Any]] = {"said": {"file": "", "budget": "5", "columns": ""}}
"""What the page shows at first."""

Tried: TypeAlias = Callable[[str, bytes, float, Sequence[str]], str | Doubt]
"""Returns the page about a file by its name, content, budget and columns; or what has to be asked first."""

Form: TypeAlias = Mapping[str, tuple[str, bytes]]


class _Upload(NamedTuple):
    name: str
    content: bytes
    budget: str
    columns: Sequence[str]
    doubt: Doubt
    until: float


class Trials:
    """Answers uploads, one at a time. Only a file that a question is about stays in memory, until it is answered."""

    def __init__(self, tried: Tried) -> None:
        self._tried = tried
        self._one = threading.Lock()
        self._kept: dict[str, _Upload] = {}

    def answer(self, form: Form) -> str | dict[str, Any]:
        """Return the page about a file, or the values of the template `try.html`: a question, or what is wrong."""
        said = {
            name: content.decode("utf-8", "replace") for name, (_, content) in form.items() if name != "file"
        }
        asked = {"said": BEGIN["said"] | said}
        if not self._one.acquire(blocking=False):
            return asked | {"wrong": "another file is being tried; send yours again in a minute"}
        try:
            return self._answer(form, asked)
        except UsageError as error:
            return asked | {"wrong": f"{error}"}
        finally:
            self._one.release()

    def _answer(self, form: Form, asked: dict[str, Any]) -> str | dict[str, Any]:
        said = asked["said"]
        self._kept = {token: one for token, one in self._kept.items() if one.until > monotonic()}
        if "upload" in said:
            kept = self._kept.pop(said["upload"], None)
            if kept is None:
                raise UsageError("the file is no longer here; choose it again")
            named = kept.doubt.settled(said.get("column", ""), right=said.get("one") == "right")
            name, content, budget = kept.name, kept.content, kept.budget
            columns = [
                *kept.columns,
                *(f"{role}={one}" for role, names in named.items() for one in names or ("",)),
            ]
        else:
            name, content = form.get("file", ("", b""))
            name, budget = PurePath(name.replace("\\", "/")).name[:200], said["budget"]
            columns = [one.strip() for one in said["columns"].split(",") if one.strip()]
            if not content:
                raise UsageError("choose a file with something in it")
        found = self._tried(name, content, percent_of(budget), columns)
        if isinstance(found, str):
            return found
        token = secrets.token_urlsafe()
        while len(self._kept) >= _MOST_KEPT:
            self._kept.pop(next(iter(self._kept)))
        self._kept[token] = _Upload(name, content, budget, columns, found, monotonic() + _KEPT_SECONDS)
        return asked | {"doubt": found, "upload": token, "name": name}


async def upload_form(request: Request) -> Form:
    """Read the form of an upload. Raises `UsageError`."""
    body = await bounded_body(request, MOST_BYTES + 65_536)
    if body is None:
        raise UsageError(
            f"an upload has at most {MOST_BYTES >> 20} MiB; `streamer try FILE` reads larger files"
        )
    form = form_parts(request, body)
    if form is None:
        raise UsageError("what the page sends is a form with a file")
    return form


def trial_page(html: str) -> Response:
    """Return the page about a file, in a sandbox: it has people's texts, and reaches neither the session nor anything else."""
    return HTMLResponse(html, headers={"content-security-policy": PAGE_POLICY})


def trial_app(tried: Tried) -> ASGIApp:
    """Make an application that is this page alone, for whoever is at this machine."""
    trials, templates = Trials(tried), environment()

    async def page(request: Request) -> Response:
        found: str | dict[str, Any] = BEGIN
        if request.method == "POST":
            try:
                form = await upload_form(request)
                found = await run_in_threadpool(trials.answer, form)
            except UsageError as error:
                found = BEGIN | {"wrong": str(error)}
        if isinstance(found, str):
            return trial_page(found)
        shown = templates.get_template("try.html").render(session=None, notice="", here="/try", **found)
        return HTMLResponse(shown, 400 if "wrong" in found else 200)

    async def home(_request: Request) -> Response:
        return RedirectResponse("/try")

    static = [Route(path, static_file("streamer.console", *what)) for path, what in STATIC.items()]
    routes = [Route("/", home), Route("/try", page, methods=["GET", "POST"]), *static]
    return Guard(Starlette(routes=routes), Served("127.0.0.1", 0), forms=True)
