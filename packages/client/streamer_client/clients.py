"""`AsyncClient` asks; `Client` is the same for code without an event loop, by a loop in a thread of its own.

Only an event loop can bound everything: a blocking socket waits for a name, or for byte after byte, as long as it likes.
"""

from __future__ import annotations

import asyncio
import email.utils
import os
import random
import re
import ssl
import threading
import uuid
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeVar, Unpack

import httpx2

from streamer_client import door
from streamer_client.decisions import (
    Decision,
    DeskOutcome,
    Trouble,
    held,
    read_decision,
    read_object,
    read_outcome,
    with_desk,
)
from streamer_client.loopback import is_loopback
from streamer_client.requests import Answers, Batch, Label, gate_path, labels_event, pairs, responses_event

T = TypeVar("T")

DEADLINE_SECONDS = 2.0
MAX_ANSWER_BYTES = door.MOST_BYTES
_SHARE_FOR_THE_SERVICE = 0.9
"""Share of the time left that the service gets: a hold that it answers in time is on record."""
_LEAST_PAUSE, _MOST_PAUSE = 0.05, 1.0
_DESK_PAUSE = 0.5
_KEEP_ALIVE_SECONDS = 4.0  # less than the five after which uvicorn closes an idle connection
_JSON = {"Content-Type": "application/json"}
_PASSING = (429, 502, 503, 504)  # 500 is on record, and a repeat would get it again


class _Answer(NamedTuple):
    """A body, and the receipt of the decision in it."""

    body: bytes
    receipt: str | None


class AsyncClient:
    """Asks one service, in one event loop of asyncio. Close it, or use it in an ``async with`` block.

    Parameters
    ----------
    base_url : of the service, for example ``https://gates.example``.
    key : an API key (`streamer key create`); None where the service asks for none, on the loopback.
    deadline : seconds that a call may take in all, unless the call says otherwise.
    verify : how the service's certificate is verified; True by the authorities that this machine trusts.
    insecure : permit ``http`` to another machine.

    Raises
    ------
    ValueError : for an address without http or https, and for http to another machine.
    """

    def __init__(
        self,
        base_url: str,
        *,
        key: str | None = None,
        deadline: float = DEADLINE_SECONDS,
        verify: ssl.SSLContext | bool = True,
        insecure: bool = False,
    ) -> None:
        url = httpx2.URL(base_url)
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError(f"the service's address must begin with http:// or https://, not {base_url!r}")
        if url.scheme == "http" and not insecure and not is_loopback(url.host):
            raise ValueError(
                f"http to {url.host} shows texts and key to the network: use https, or insecure=True"
            )
        self._deadline = deadline
        self._http = httpx2.AsyncClient(
            base_url=url,
            verify=verify,
            **door.options(
                keep_alive=_KEEP_ALIVE_SECONDS,
                Accept="application/json, application/problem+json",
                **({} if key is None else {"Authorization": f"Bearer {key}"}),
            ),
        )

    async def decide(
        self,
        gate: str,
        prompt: str,
        answers: Answers,
        *,
        deadline: float | None = None,
        desk: float | None = None,
        raise_on_trouble: bool = False,
        **batch: Unpack[Batch],
    ) -> Decision:
        """Ask for the decision about answers to a prompt. Whatever goes wrong within the deadline is a hold.

        Parameters
        ----------
        answers : at least two texts, or ids and texts.
        deadline : seconds; the client's own when None.
        desk : seconds, beyond the deadline, to wait for a person where the batch is held for one; the decision's `desk` says what
            became of it. None: do not wait.
        raise_on_trouble : raise `Trouble` in place of a hold without an event.
        batch : further fields of the event. Without a `batch_id` one is drawn: only tries of this call repeat it.
        """
        name, attempt = _identity(batch)
        try:
            now = asyncio.get_running_loop().time
            end = None if desk is None else now() + desk
            sent = pairs(answers)
            answer = await self._ask(
                "POST",
                gate_path(gate, "decisions"),
                deadline,
                body=responses_event(gate, name, prompt, sent, batch),
                headers=_JSON | ({"Idempotency-Key": name} if _fits_a_header(name) else {}),
                desk=desk,
            )
            decision = read_decision(*answer, gate=gate, batch_id=name, attempt=attempt, answers=sent)
            if end is None or decision.desk_until is None or (decision.desk and not decision.desk.waits):
                return decision
            # A request waits five minutes at most, and less where many wait: the rest is asked for again.
            if (left := end - now()) > _DESK_PAUSE or decision.desk is None:
                found = await self.desk(gate, name, attempt=attempt, deadline=max(left, _DESK_PAUSE))
                return with_desk(decision, found)
            return decision
        except Exception as error:
            return _hold(error, gate, name, attempt, raise_on_trouble=raise_on_trouble)

    async def decision(
        self,
        gate: str,
        batch_id: str,
        *,
        attempt: int = 1,
        deadline: float | None = None,
        raise_on_trouble: bool = False,
    ) -> Decision:
        """Ask what is on record about a batch; a hold where that cannot be known. The service has no texts to return."""
        try:
            query = "" if attempt == 1 else f"?attempt={attempt}"
            answer = await self._ask("GET", gate_path(gate, "decisions", batch_id) + query, deadline)
            return read_decision(*answer, gate=gate, batch_id=batch_id, attempt=attempt, answers=None)
        except Exception as error:
            return _hold(error, gate, batch_id, attempt, raise_on_trouble=raise_on_trouble)

    async def desk(
        self,
        gate: str,
        batch_id: str,
        *,
        attempt: int = 1,
        deadline: float | None = None,
        raise_on_trouble: bool = False,
    ) -> DeskOutcome:
        """Ask what became of a held batch at the desk, and wait for it until the deadline; hold unless it is `released`."""
        found: DeskOutcome | None = None
        try:
            query = "" if attempt == 1 else f"?attempt={attempt}"
            path = gate_path(gate, "desk", batch_id) + query
            now = asyncio.get_running_loop().time
            end = now() + (self._deadline if deadline is None else deadline)
            for round_ in count():
                # At first as it stands; then the service waits, less long than it is asked to, or not at all.
                answer = await self._ask("GET", path, end - now(), most_wait=0.001 if round_ == 0 else None)
                found = read_outcome(answer.body, gate=gate, batch_id=batch_id, attempt=attempt)
                if not found.waits or end - now() <= _DESK_PAUSE:
                    break
                if round_ > 0:
                    await asyncio.sleep(_DESK_PAUSE)
        except Exception as error:
            if found is None or not isinstance(error, Trouble):
                return _hold_at_desk(error, gate, batch_id, attempt, raise_on_trouble=raise_on_trouble)
        assert found is not None  # or it was raised
        return found

    async def gate(self, gate: str, *, deadline: float | None = None) -> dict[str, Any]:
        """Ask for the policy in force, its promise and the verdict on it, as JSON values. Raises `Trouble`."""
        return read_object((await self._ask("GET", gate_path(gate), deadline)).body)

    async def label(
        self,
        gate: str,
        batch_id: str,
        response_id: str,
        severity: float | None,
        *,
        deadline: float | None = None,
        **label: Unpack[Label],
    ) -> None:
        """Send the severity of one answer, in [0, 1]: 0 is fine, 1 is worst; None: the largest of its fields' `severities`. Raises `Trouble` unless it is taken."""
        body = labels_event(gate, batch_id, response_id, severity, label, now=datetime.now(UTC))
        await self._ask("POST", gate_path(gate, "labels"), deadline, body=body, headers=_JSON)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _ask(
        self,
        method: str,
        path: str,
        deadline: float | None,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        most_wait: float | None = None,
        desk: float | None = None,
    ) -> _Answer:
        """Ask until there is an answer, a lasting trouble, or no time left. Raises `Trouble`.

        `most_wait` : seconds that the service is asked to wait at most; None: what the deadline leaves it.
        `desk` : seconds beyond the deadline that the service is asked to wait for a person; None: not at all.
        """
        seconds = self._deadline if deadline is None else deadline
        for name, given in (("deadline", seconds), ("desk", desk)):
            if given is not None and not 0 < given < float("inf"):
                raise Trouble("invalid_request", f"the {name} must be a positive number of seconds")
        now = asyncio.get_running_loop().time
        decided = now() + seconds
        end = decided + (desk or 0.0)
        before = ""
        try:
            async with asyncio.timeout_at(end):
                for tries in count():
                    wait = max((decided - now()) * _SHARE_FOR_THE_SERVICE, 0.001)
                    wait = wait if most_wait is None else min(wait, most_wait)
                    prefer = f"wait={wait:.3f}"
                    if desk is not None:
                        margin = seconds * (1 - _SHARE_FOR_THE_SERVICE)
                        prefer += f", desk={max(min(desk, end - now() - wait - margin), 0.001):.3f}"
                    request = self._http.build_request(
                        method, path, content=body, headers={**(headers or {}), "Prefer": prefer}
                    )
                    try:
                        return await self._answer(request)
                    except Trouble as trouble:
                        pause = max(_pause(tries), trouble.wait or 0.0)
                        if not trouble.passing or now() + pause >= end:
                            raise
                        before = f"; before that {trouble.detail}"
                    await asyncio.sleep(pause)
        except TimeoutError:
            pass
        raise Trouble("timed_out", f"no answer within {seconds + (desk or 0.0):g} s{before}")

    async def _answer(self, request: httpx2.Request) -> _Answer:
        """Send one request and read all of its answer. Raises `Trouble`."""
        try:
            response = await self._http.send(request, stream=True)
            try:
                content = await door.content_of(response, MAX_ANSWER_BYTES)
            except door.ReplyFailed as failed:
                raise Trouble(
                    "too_large" if failed.code == "too_large" else "unreadable", str(failed)
                ) from None
            finally:
                await response.aclose()
        except httpx2.TransportError as error:
            detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise Trouble("connection_failed", detail, passing=True) from error
        status, headers = response.status_code, response.headers
        if not 200 <= status < 300:
            raise Trouble(
                "overloaded" if status == 429 else "unavailable" if status >= 500 else "refused",
                f"status {status}{_problem(content)}",
                status=status,
                passing=status in _PASSING,
                wait=_retry_after(headers.get("Retry-After")),
            )
        kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if content and (
            kind != "application/json" or headers.get("Content-Encoding", "identity") != "identity"
        ):
            raise Trouble("unreadable", f"the answer is {kind or 'of no type'}, not plain application/json")
        return _Answer(content, headers.get("Streamer-Receipt"))


class Client:
    """`AsyncClient` for code without an event loop: the same arguments, the same methods, without ``await``.

    Calls may come from any thread, and go on in a process that was forked off. Close it, or use it in a ``with`` block.
    """

    def __init__(
        self,
        base_url: str,
        *,
        key: str | None = None,
        deadline: float = DEADLINE_SECONDS,
        verify: ssl.SSLContext | bool = True,
        insecure: bool = False,
    ) -> None:
        self._thread = _Thread(
            partial(AsyncClient, base_url, key=key, deadline=deadline, verify=verify, insecure=insecure)
        )

    def decide(
        self,
        gate: str,
        prompt: str,
        answers: Answers,
        *,
        deadline: float | None = None,
        desk: float | None = None,
        raise_on_trouble: bool = False,
        **batch: Unpack[Batch],
    ) -> Decision:
        """Ask for the decision about answers to a prompt; see `AsyncClient.decide`."""
        name, attempt = _identity(batch)
        batch["batch_id"] = name
        try:
            return self._thread.run(
                lambda client: client.decide(
                    gate, prompt, answers, deadline=deadline, desk=desk, raise_on_trouble=True, **batch
                )
            )
        except Exception as error:
            return _hold(error, gate, name, attempt, raise_on_trouble=raise_on_trouble)

    def decision(
        self,
        gate: str,
        batch_id: str,
        *,
        attempt: int = 1,
        deadline: float | None = None,
        raise_on_trouble: bool = False,
    ) -> Decision:
        """Ask what is on record about a batch; see `AsyncClient.decision`."""
        try:
            return self._thread.run(
                lambda client: client.decision(
                    gate, batch_id, attempt=attempt, deadline=deadline, raise_on_trouble=True
                )
            )
        except Exception as error:
            return _hold(error, gate, batch_id, attempt, raise_on_trouble=raise_on_trouble)

    def desk(
        self,
        gate: str,
        batch_id: str,
        *,
        attempt: int = 1,
        deadline: float | None = None,
        raise_on_trouble: bool = False,
    ) -> DeskOutcome:
        """Ask what became of a held batch at the desk; see `AsyncClient.desk`."""
        try:
            return self._thread.run(
                lambda client: client.desk(
                    gate, batch_id, attempt=attempt, deadline=deadline, raise_on_trouble=True
                )
            )
        except Exception as error:
            return _hold_at_desk(error, gate, batch_id, attempt, raise_on_trouble=raise_on_trouble)

    def gate(self, gate: str, *, deadline: float | None = None) -> dict[str, Any]:
        """Ask for the policy in force; see `AsyncClient.gate`. Raises `Trouble`."""
        return self._thread.run(lambda client: client.gate(gate, deadline=deadline))

    def label(
        self,
        gate: str,
        batch_id: str,
        response_id: str,
        severity: float | None,
        *,
        deadline: float | None = None,
        **label: Unpack[Label],
    ) -> None:
        """Send the severity of one answer; see `AsyncClient.label`. Raises `Trouble` unless it is taken."""
        self._thread.run(
            lambda client: client.label(gate, batch_id, response_id, severity, deadline=deadline, **label)
        )

    def close(self) -> None:
        """Close every connection. A call that is under way holds."""
        self._thread.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Thread:
    """An `AsyncClient` in an event loop of its own, from the first call on; another one in each process."""

    def __init__(self, make: Callable[[], AsyncClient]) -> None:
        self._make = make
        self._client = make()  # at once, for its errors
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()
        self._of_parents: list[object] = []
        self._lock = threading.Lock()
        self._closed = False
        # Cancelled first, as what they began ends with them: a task of a group that is cancelled
        # before its first step leaves a coroutine that nobody awaits.
        self._calls: set[asyncio.Task[object]] = set()

    def run(self, call: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> T:
        """Wait for one call. Raises what it raises, and `Trouble` when the client is closed meanwhile."""
        with self._lock:  # what is under way is begun before `close` begins
            if self._closed:
                raise Trouble("failed", "the client is closed")
            loop = self._running()
            future = asyncio.run_coroutine_threadsafe(self._call(call), loop)
        try:
            return future.result()
        except CancelledError:
            raise Trouble("failed", "the client was closed") from None
        finally:
            future.cancel()  # where the caller was interrupted

    def close(self) -> None:
        """Cancel what is under way, and end the thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            loop = self._loop if self._process == os.getpid() else None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._end(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            self._worker.join()
            loop.close()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._process != os.getpid():
            # Loop and connections are those of the process that this one was forked off: nobody may end them here.
            self._of_parents += [self._loop, self._client]
            self._process, self._loop, self._client = os.getpid(), None, self._make()
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._worker = threading.Thread(
                target=self._loop.run_forever, name="streamer-client", daemon=True
            )
            self._worker.start()
        return self._loop

    async def _call(self, call: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> T:
        if self._closed:
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            return await call(self._client)
        finally:
            self._calls.remove(task)

    async def _end(self) -> None:
        # What is cancelled may begin something once more, as a connection that tries the next address does.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            ending = others & self._calls or others
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)
        await self._client.aclose()
        await asyncio.get_running_loop().shutdown_asyncgens()


def _identity(batch: Batch) -> tuple[str, int]:
    """The batch's id, drawn where there is none, and its attempt."""
    name = batch.get("batch_id")
    return str(uuid.uuid4()) if name is None else name, batch.get("attempt", 1)


def _fits_a_header(name: str) -> bool:
    # Quotes are left out: a header may be read as a string that stands between two.
    return re.fullmatch(r"[!#-~]+", name) is not None


def _hold_at_desk(
    error: Exception, gate: str, batch_id: str, attempt: int, *, raise_on_trouble: bool
) -> DeskOutcome:
    """The same about a batch at the desk."""
    no = _hold(error, gate, batch_id, attempt, raise_on_trouble=raise_on_trouble)
    return DeskOutcome(
        gate=gate, batch_id=batch_id, attempt=attempt, action="hold", reason=no.reason, detail=no.detail
    )


def _hold(error: Exception, gate: str, batch_id: str, attempt: int, *, raise_on_trouble: bool) -> Decision:
    """Turn whatever went wrong into a hold, or into a `Trouble` on request."""
    trouble = (
        error
        if isinstance(error, Trouble)
        else Trouble(
            "invalid_request" if isinstance(error, TypeError) else "failed",
            f"{type(error).__name__}: {error}"[:200],
        )
    )
    if raise_on_trouble:
        raise trouble from error.__cause__
    return held(trouble, gate, batch_id, attempt)


def _problem(content: bytes) -> str:
    """What a problem document says of itself, bounded; nothing where there is none."""
    try:
        problem = read_object(content)
    except Trouble:
        return ""
    said = [str(problem[name])[:200] for name in ("code", "detail") if problem.get(name)]
    return "".join(f" {one}" for one in (": ".join(said),) if one)


def _pause(tries: int) -> float:
    """Seconds before the next try, half of them by chance, so that clients do not come back together."""
    return min(_LEAST_PAUSE * 2.0**tries, _MOST_PAUSE) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


def _retry_after(text: str | None) -> float | None:
    """Seconds to wait, of either form of the header; None where there is none or it cannot be read."""
    if text is None:
        return None
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text.strip()):
        return float(text)
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0)
