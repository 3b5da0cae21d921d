"""The two pages of a sign-in at an issuer: the way there, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from streamer.console.doors import Doors, NotIdentified
from streamer.console.oidc import BEGUN_SECONDS, Issuer, Sealed
from streamer.errors import UsageError
from streamer.store.people.accounts import Accounts

START: Final = "/oidc/start"
BACK: Final = "/oidc/callback"


class OidcRoutes:
    """The handlers. The cookie of a sign-in under way is called after the console's own; `secure` :
    by TLS alone.

    `inside` returns an address of ours, whatever somebody asks for; `let_in` the answer that gives
    somebody a session, and leads on.
    """

    def __init__(
        self,
        issuer: Issuer,
        accounts: Accounts,
        doors: Doors,
        *,
        cookie: str,
        secure: bool,
        inside: Callable[[str], str],
        let_in: Callable[[str, str], Response],
    ) -> None:
        self._issuer = issuer
        self._accounts = accounts
        self._doors = doors
        self._cookie = f"{cookie}-oidc"
        self._secure = secure
        self._inside = inside
        self._let_in = let_in
        self._sealed = Sealed(monotonic=doors.monotonic)

    async def start(self, request: Request) -> Response:
        """Send the browser to the issuer."""
        ours = urlsplit(self._issuer.redirect)
        if request.headers.get("host", "").lower() != ours.netloc:
            # The issuer sends it back to that name, where a cookie of this one is not sent.
            again = request.url.replace(scheme=ours.scheme, netloc=ours.netloc)
            return RedirectResponse(str(again), 303)
        begun = await run_in_threadpool(self._issuer.begin)
        where = self._inside(request.query_params.get("next", ""))
        answer = RedirectResponse(begun.url, 303)
        answer.set_cookie(
            self._cookie,
            self._sealed.close(
                {"state": begun.state, "nonce": begun.nonce, "verifier": begun.verifier, "next": where}
            ),
            max_age=int(BEGUN_SECONDS),
            path="/oidc/",
            httponly=True,
            samesite="lax",
            secure=self._secure,
        )
        return answer

    async def back(self, request: Request) -> Response:
        """Let in whom the issuer has identified."""
        kept = self._sealed.open(request.cookies.get(self._cookie, ""))
        if kept is None:
            raise NotIdentified(
                "this sign-in was not begun in this browser, or more than ten minutes ago; begin again"
            )
        query = dict(request.query_params)
        session = await run_in_threadpool(self._admitted, query, kept)
        answer = self._let_in(session, kept["next"])
        answer.delete_cookie(self._cookie, path="/oidc/")
        return answer

    def _admitted(self, query: dict[str, str], kept: dict[str, str]) -> str:
        issuer = self._issuer
        person = issuer.finish(query, state=kept["state"], nonce=kept["nonce"], verifier=kept["verifier"])
        known = f"{issuer.name} knows you as {person.name}"
        if person.roles is not None and not person.roles:
            claim = issuer.registration.roles_claim
            raise NotIdentified(
                f"{known}, and gives you no role at this console (its claim `{claim}`); whoever administers {issuer.name} can"
            )
        try:
            account = self._accounts.admit(
                person.name, issuer=issuer.registration.issuer, subject=person.subject, roles=person.roles
            )
        except UsageError as error:
            raise NotIdentified(f"{known}; but {error}") from None
        return self._doors.admit(account, person.id_token)
