"""What becomes of held batches at the desk, for those who asked: looked up, and waited for."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Final, TypeVar

import msgspec

from streamer.events.actions import ActionsV1, decode_action, text_to_show
from streamer.events.codec import encode
from streamer.events.desk import DeskV1
from streamer.events.responses import ResponsesV1
from streamer.gates.batch_key import BatchKey
from streamer.scoring.judged import form
from streamer.serving.problems import RETRY_SECONDS, Problem, reading
from streamer.store.desk.release_desk import ReleaseDesk
from streamer.store.desk.rows import DeskState

T = TypeVar("T")

LOOK_SECONDS: Final = 0.5
"""How often the outcomes that somebody waits for are looked up, all in one query."""

LONGEST_SECONDS: Final = 300.0
"""What one request may wait for the desk; whoever wants to wait longer asks again."""


def disputed(action: ActionsV1, texts: Mapping[str, str | None]) -> dict[str, float]:
    """Return the fields in which other answers differ from the best one of a held batch, from its texts by id; see `Form.disputed`.

    No action has them: keys of JSON may be words of an answer, and actions stay when texts are erased.
    """
    judged, scores = form(action.scorer.judged), [one.score for one in action.responses]
    if action.action == "ship" or not judged.structured or not scores or None in scores:
        return {}
    parts = judged.parts([texts.get(one.id) or "" for one in action.responses])
    return judged.disputed(parts, max(range(len(parts)), key=lambda place: scores[place] or 0.0))


def with_disputed(action: bytes, texts: Mapping[str, str | None]) -> bytes:
    """Add the member `disputed` to an action that is a JSON object, where there is one; the rest stays as it is on record."""
    if not (b'"judged":"json' in action or b'"judged":"call' in action):
        return action
    fields = disputed(decode_action(action), texts)
    return (
        action.rstrip().removesuffix(b"}") + b',"disputed":' + msgspec.json.encode(fields) + b"}"
        if fields
        else action
    )


def with_text(action: bytes, batch: ResponsesV1) -> bytes:
    """Add what may be shown as the member `text` to the action of a gate of claims.

    The record has its places alone.
    """
    if b'"unit":"claim"' not in action:
        return action
    text = msgspec.json.encode(text_to_show(batch, decode_action(action)))
    return action.rstrip().removesuffix(b"}") + b',"text":' + text + b"}"


class Releases:
    """Tells what becomes of held batches. For one event loop. Reading the database blocks in
    `executor`; past `most`, >= 1, requests that wait at once, others are answered at once."""

    def __init__(self, held: ReleaseDesk, *, executor: Executor, most: int) -> None:
        self._held = held
        self._executor = executor
        self._most = most
        self._waiting: dict[BatchKey, set[asyncio.Future[DeskV1]]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    async def state(self, key: BatchKey, seconds: float = 0.0) -> DeskState | None:
        """Whether a batch waits or what became of it, after at most `seconds` if it waits. Raises `Problem`."""
        found = await self._read(lambda: self._held.state(key))
        if found is None or found.outcome is not None or seconds <= 0 or self._ended.is_set():
            return found
        if sum(map(len, self._waiting.values())) >= self._most:
            return found
        if await self._outcome(key, min(seconds, LONGEST_SECONDS)) is None:
            return found
        return await self._read(lambda: self._held.state(key))

    async def with_desk(self, action: bytes, seconds: float) -> bytes:
        """Add what became of its batch at the desk to an action that is a JSON object, after at most `seconds`.

        The action stays as it is on record: what was held stays held, and a member `desk` says what a person has released. It is
        there wherever a person is asked, also where nothing is known of it.
        """
        held = decode_action(action)
        if held.desk_until is msgspec.UNSET:
            return action
        key = BatchKey(held.gate, held.batch_id, held.attempt)
        try:
            state = await self.state(key, seconds)
        except Problem:
            state = None  # the decision stands and is told, whatever else can be
        said = b"null" if state is None else told(key, state, by=False)
        return action.rstrip().removesuffix(b"}") + b',"desk":' + said + b"}"

    async def receipt(self, outcome: DeskV1) -> str | None:
        """The receipt of an outcome. Raises `Problem`."""
        return await self._read(lambda: self._held.receipt(outcome))

    def end(self) -> None:
        """Let nobody wait any more: they are told what stands."""
        self._ended.set()
        for waiting in self._waiting.values():
            for one in waiting:
                one.cancel()

    async def _outcome(self, key: BatchKey, seconds: float) -> DeskV1 | None:
        future: asyncio.Future[DeskV1] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, set()).add(future)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="serving-desk")
        try:
            done, _ = await asyncio.wait({future}, timeout=seconds)
            return future.result() if done and not future.cancelled() else None
        finally:
            self._waiting[key].discard(future)
            if not self._waiting[key]:
                del self._waiting[key]

    async def _look(self) -> None:
        """Look up what somebody waits for, until nobody does."""
        while self._waiting:
            keys = list(self._waiting)
            try:
                found = await self._read(lambda keys=keys: self._held.outcomes(keys))  # type: ignore[misc]
            except Problem:
                found = {}  # it may answer again before they stop to wait
            for key, outcome in found.items():
                for one in self._waiting.get(key, ()):
                    if not one.done():
                        one.set_result(outcome)
            await asyncio.sleep(LOOK_SECONDS)

    async def _read(self, read: Callable[[], T]) -> T:
        return await reading(self._executor, read, "the database does not answer; hold, and ask again")


def told(key: BatchKey, state: DeskState, *, by: bool = True) -> bytes:
    """What a request gets: the outcome as it is on the topic, or that the batch still waits. `by`: and who decided."""
    if state.outcome is not None:
        event = encode(state.outcome)
        if by:
            return event
        fields = msgspec.json.decode(event)
        fields.pop("by", None)
        return msgspec.json.encode(fields)
    return msgspec.json.encode(
        {
            "schema": "streamer.desk.v1",
            "gate": key.gate,
            "batch_id": key.batch_id,
            "attempt": key.attempt,
            "action": "waiting",
            "until": state.until,
        }
    )


def not_at_desk(key: BatchKey) -> Problem:
    """The answer about a batch that nobody was asked about."""
    return Problem(
        404,
        "not_at_desk",
        f"batch {key.batch_id!r}, attempt {key.attempt}, of gate {key.gate} does not wait for a person and never did",
    )


RETRY_AFTER: Final = {"retry-after": str(RETRY_SECONDS)}
