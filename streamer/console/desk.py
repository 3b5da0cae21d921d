"""The desk: held answers that wait for a person, who releases one, edits it or rejects them."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from streamer.audit.story import HELD
from streamer.console.acts import Done, Sent
from streamer.errors import StreamerError, UsageError
from streamer.events.desk import DeskV1
from streamer.events.responses import read_attempt
from streamer.gates.batch_key import BatchKey
from streamer.recalibration.age_cut import span
from streamer.scoring.unread_answers import SAYS
from streamer.store import Store
from streamer.store.desk.release_desk import AlreadyDecided, NotAtDesk, Reject, Release
from streamer.wording.numbers import when
from streamer.wording.policies import needed_text, smallest_budget

MOST_TEXT_BYTES: Final = 65_536
"""Of an edited answer, as of any other."""

MOST_FORM_BYTES: Final = 4 * MOST_TEXT_BYTES
"""A form writes most bytes of a text as three."""

_LISTED: Final = 100
_MINUTE = 60.0
_HOURS_FROM = 120


class NoSuchItem(StreamerError):
    """No batch of this name is, or was, at the desk."""


class Written(NamedTuple):
    """What somebody wrote about a batch: the page of the batch, the answer, its edited text (None: not edited), the remark, and the
    claims to put back.
    """

    where: str
    answer: str
    text: str | None
    remark: str
    claims: tuple[str, ...] = ()


class DeskPages:
    """What the pages of the desk show, and what their forms do. Calls block."""

    def __init__(self, store: Store, *, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock

    def waiting(self) -> int:
        """How many batches wait, at all gates together."""
        return sum(queue.waiting for queue in self._store.desk.queues().values())

    def list(self, _query: Mapping[str, str]) -> dict[str, Any]:
        """What waits, what would have shipped with the smallest budget first, and what was decided last."""
        found = self._store.desk.waiting(limit=_LISTED)
        return {
            "waiting": [
                {
                    "batch": one,
                    "link": link(one.key),
                    "left": (one.until - self._clock()).total_seconds(),
                    "needed": None if one.needed is None else smallest_budget(one.needed),
                }
                for one in found
            ],
            "total": len(found) if len(found) < _LISTED else self.waiting(),
            "lately": [
                (one, link(BatchKey(one.gate, one.batch_id, one.attempt)))
                for one in self._store.desk.lately()
            ],
            "desks": [
                one.gate for one in self._store.gates.list() if one.settings.desk_deadline_seconds is not None
            ],
        }

    def item(self, query: Mapping[str, str], wrote: Written | None = None) -> dict[str, Any]:
        """One batch with its answers; with `edit` one of them in a field.

        `wrote` : what the fields have, in place of the answer's own text and of no remark.
        """
        key = _key(query)
        found = self._store.desk.batch(key)
        if found is None:
            raise NoSuchItem(f"no batch {key.batch_id[:200]!r} is, or was, at the desk")
        claims = found.claims
        why = (
            "the other answers do not support all of it enough"
            if claims
            else "its scores do not clear the threshold"
        )
        why = HELD.get(found.reason, why)
        if found.reason == "scored" and found.needed is not None:
            settings = self._store.policies.get(key.gate, found.policy_version).settings
            why = needed_text(found.needed, alpha=settings.alpha, attempts=settings.max_attempts)
        edit = query.get("edit") if wrote is None or wrote.text is None else wrote.answer
        offered = found.answers if claims is None else (claims,)
        edited = next((one for one in offered if one.id == edit), None)
        return {
            "found": found,
            "claims": claims,
            "part": claims is not None and claims.shipped != "",
            "key_fields": {"gate": key.gate, "batch": key.batch_id, "attempt": key.attempt},
            "link": link(key),
            "edited": None if found.outcome is not None else edited,
            "wrote": wrote,
            "left": left((found.until - self._clock()).total_seconds()),
            "why": why,
            "says": SAYS,
            "decision": urlencode({"batch": key.batch_id, "gate": key.gate, "attempt": key.attempt}),
        }

    def release(self, sent: Sent) -> Done:
        """Release an answer, edited where the form has another text."""
        form = sent.form
        key, answer = _key(form), sent.get("answer")
        text = form.get("text")
        if text is not None:
            text = self._edited(key, answer, _put(form), text)
        knowing = sent.get("knowing")
        act = Release(
            response_id=answer,
            text=text,
            claims=_put(form),
            knowing=int(knowing) if knowing.isascii() and knowing.isdigit() and len(knowing) < 10 else None,
        )
        return self._decide(key, act, sent)

    def reject(self, sent: Sent) -> Done:
        """Go on holding."""
        return self._decide(_key(sent.form), Reject(), sent)

    def _decide(self, key: BatchKey, act: Release | Reject, sent: Sent) -> Done:
        remark = " ".join(sent.get("remark").split())
        try:
            made = self._store.desk.decide(key, act, by=sent.by, remark=remark)
        except NotAtDesk as error:
            raise NoSuchItem(str(error)) from None
        except AlreadyDecided as late:
            return Done(f"Nothing was done. {said(late.outcome)}; that stands.", link(key))
        after = self._store.desk.waiting(limit=1)
        what = (
            "rejected: nobody is shown an answer"
            if made.selected is None
            else f"answer {made.selected} is released{_with(made)}"
        )
        where = link(after[0].key) if after else "/desk"
        return Done(f"{made.batch_id}: {what}{', edited' if made.edited else ''}.", where)

    def _edited(self, key: BatchKey, answer: str, put: tuple[str, ...], text: str) -> str | None:
        """The text that a field came back with; None where nobody changed it: browsers write line ends their own way."""
        text = text.replace("\r\n", "\n")
        if len(text.encode()) > MOST_TEXT_BYTES:
            raise UsageError(
                f"the edited answer has {len(text.encode()):,} bytes, at most {MOST_TEXT_BYTES:,} are allowed"
            )
        found = self._store.desk.batch(key)
        own = next((one.text for one in found.answers if one.id == answer), None) if found else None
        if found and found.claims is not None:
            own = found.claims.with_claims(put)
        return None if own is not None and text == own.replace("\r\n", "\n").replace("\r", "\n") else text


def written(form: Mapping[str, str]) -> Written | None:
    """What a form of the desk holds; None where it names no batch."""
    try:
        where = link(_key(form))
    except NoSuchItem:
        return None
    answer, text, remark = form.get("answer", ""), form.get("text"), form.get("remark", "")
    return Written(where, answer, text, remark, _put(form))


def left(seconds: float) -> str:
    """Say how long somebody may still decide; empty once the deadline has passed."""
    if seconds < 0:
        return ""
    if seconds < _MINUTE:
        return "less than a minute left"
    minutes = int(seconds / _MINUTE)
    if minutes < _HOURS_FROM:
        return f"{minutes} minute{'s' if minutes > 1 else ''} left"
    return f"{span(seconds)} left"


def said(outcome: DeskV1) -> str:
    """Say what became of a batch, by whom and when."""
    at = when(outcome.decided_at)
    if outcome.by is None:
        return f"Its deadline passed at {when(outcome.until)}, and it was rejected"
    what = (
        "rejected it" if outcome.selected is None else f"released answer {outcome.selected}{_with(outcome)}"
    )
    return f"{outcome.by.removeprefix('account:')} {what}{', edited' if outcome.edited else ''}, at {at}"


def link(key: BatchKey) -> str:
    """The page of a batch."""
    return "/desk/item?" + urlencode({"gate": key.gate, "batch": key.batch_id, "attempt": key.attempt})


def _with(outcome: DeskV1) -> str:
    return f" with {', '.join(outcome.claims)} put back" if outcome.claims else ""


def _put(form: Mapping[str, str]) -> tuple[str, ...]:
    """The claims that a form puts back; of a field that is there several times the values are lines."""
    return tuple(form["put"].split("\n")) if form.get("put") else ()


def _key(fields: Mapping[str, str]) -> BatchKey:
    attempt = read_attempt(fields.get("attempt", "1"))
    if attempt is None:
        raise NoSuchItem("that is no attempt")
    return BatchKey(fields.get("gate", ""), fields.get("batch", ""), attempt)
