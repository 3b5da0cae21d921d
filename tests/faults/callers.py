"""Callers of an endpoint that is being broken: they ask, ask again, contradict, give up, and remember what they were told.

What must hold of it afterwards:

H1 an answer that is a decision is the decision on record, whoever got it, and whenever.
H2 a batch of which everybody was told "hold" in place of a decision (503, 429) has no ship on record.
H3 no batch was decided twice, and no contradiction was decided at all.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple

import httpx

from streamer_client import Client, Decision
from tests.faults.endpoint import GATE, PATIENCE, Endpoint, Site
from tests.faults.forms import BATCH, agrees, ask, body_of

REFUSED = (503, 429)
"""What the service says in place of a decision. Whoever asked holds, and may ask again."""

_AGAIN, _CONTRADICTS, _STAYS = 0.2, 0.05, 0.7
_PAUSE_SECONDS = 0.05


class Said(NamedTuple):
    """What came of one call.

    Attributes
    ----------
    status : of HTTP; None where no answer came, or a client of ours does not say: who holds then does so by its own word.
    event : the answer as JSON values, with status 200: the decision, or what has it as the member `streamer`.
    body : its bytes; None where a client of ours has read them.
    own : why a client of ours holds without a decision.
    """

    batch: str
    status: int | None
    event: dict[str, Any] | None = None
    body: bytes | None = None
    own: str | None = None


def heard(name: str, response: httpx.Response) -> Said:
    """What an answer of the service says about a batch."""
    decided = response.status_code == 200
    return Said(
        name,
        response.status_code,
        json.loads(response.content) if decided else None,
        response.content if decided else None,
    )


def _of_our_client(decision: Decision) -> Said:
    if decision.event is None:
        return Said(decision.batch_id, None, own=decision.reason)
    return Said(decision.batch_id, 200, decision.event)


class Callers:
    """Threads that ask until they are stopped; also a context manager, which raises what a thread has raised.

    Of ten callers of a batch that gets no decision seven ask again until it has one. Of a hundred that have it twenty ask once
    more, and five send other content under its name.

    Parameters
    ----------
    bases : addresses of the instances; whoever is told nothing, or to hold, goes on to the next one.
    plain, ours : how many callers use plain HTTP, and `streamer_client`.
    waits : seconds that a request may take, drawn from these; None: as long as the service likes.
    patience : seconds after which a plain caller goes away.
    forms : in which plain callers ask, one after the other.
    pause : seconds between two batches of one caller.

    Attributes
    ----------
    said : all that was told.
    asked : every batch that was asked about.
    decided : how many of the answers were decisions.
    forms : in which plain callers ask.
    """

    def __init__(
        self,
        bases: Sequence[str],
        *,
        seed: int = 0,
        plain: int = 6,
        ours: int = 0,
        waits: Sequence[float | None] = (None,),
        patience: float = PATIENCE,
        pause: float = 0.0,
        forms: Sequence[str] = (BATCH,),
    ) -> None:
        self.said: list[Said] = []
        self.asked: set[str] = set()
        self.decided = 0
        self._bases, self._seed, self._waits = bases, seed, waits
        self._patience, self._pause, self.forms = patience, pause, forms
        self._stopping = threading.Event()
        self._errors: list[BaseException] = []
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(work, number), name=f"caller-{number}", daemon=True)
            for number, work in enumerate([self._by_http] * plain + [self._by_our_client] * ours)
        ]

    def _run(self, work: Callable[[int, random.Random], None], number: int) -> None:
        try:
            work(number, random.Random(f"{self._seed}/{number}"))
        except BaseException as error:
            self._errors.append(error)

    def _hear(self, said: Said) -> Said:
        with self._lock:
            self.said.append(said)
            self.decided += said.status == 200
        return said

    def _by_http(self, number: int, rng: random.Random) -> None:
        with ExitStack() as stack:
            sessions = [
                stack.enter_context(httpx.Client(base_url=base, timeout=self._patience))
                for base in self._bases
            ]
            for place in itertools.count():
                form = self.forms[place % len(self.forms)]
                name = f"{form}-{self._seed}-{number}-{place}"
                self.asked.add(name)
                stays = rng.random() < _STAYS
                for session in itertools.islice(itertools.cycle(sessions), place % len(sessions), None):
                    if self._stopping.is_set():
                        return
                    answer = self._post(session, name, rng)
                    said = self._hear(Said(name, None) if answer is None else heard(name, answer))
                    if said.status == 200 or not stays:
                        break
                    time.sleep(_PAUSE_SECONDS)
                chance = rng.random()
                if said.status == 200 and chance < _AGAIN:
                    again = self._post(session, name, rng)
                    self._hear(Said(name, None) if again is None else heard(name, again))
                elif said.status == 200 and chance < _AGAIN + _CONTRADICTS:
                    other = self._post(session, name, rng, other=True)
                    assert other is None or other.status_code in (409, *REFUSED), (
                        "H3: decided a contradiction"
                    )
                time.sleep(self._pause)

    def _post(
        self, session: httpx.Client, name: str, rng: random.Random, *, other: bool = False
    ) -> httpx.Response | None:
        wait = rng.choice(self._waits)
        try:
            return ask(session, name, other=other, **({} if wait is None else {"prefer": f"wait={wait:g}"}))
        except httpx.TransportError:
            return None

    def _by_our_client(self, number: int, rng: random.Random) -> None:
        with ExitStack() as stack:
            clients = [stack.enter_context(Client(base)) for base in self._bases]
            for place in itertools.count():
                name = f"b-{self._seed}-{number}-{place}"
                self.asked.add(name)
                stays = rng.random() < _STAYS
                asked = body_of(name)
                answers = {one["id"]: one["text"] for one in asked["responses"]}
                scores = [one["score"] for one in asked["responses"]]
                for client in itertools.islice(itertools.cycle(clients), place % len(clients), None):
                    if self._stopping.is_set():
                        return
                    decision = client.decide(
                        GATE, asked["prompt"], answers, scores=scores, batch_id=name,
                        deadline=rng.choice(self._waits),
                    )  # fmt: skip
                    said = self._hear(_of_our_client(decision))
                    if said.status == 200 or not stays:
                        break
                    time.sleep(_PAUSE_SECONDS)
                if said.status == 200 and rng.random() < _AGAIN:
                    self._hear(_of_our_client(client.decision(GATE, name)))
                time.sleep(self._pause)

    def stop(self) -> None:
        """Ask nothing more, and wait for what is under way."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        if self._errors:
            raise self._errors[0]

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        if kind is None:
            self.stop()


@dataclass(frozen=True)
class Told:
    """How many answers were decisions, ships among them, refusals (503, 429); how many calls by plain HTTP got no answer; and
    why clients of ours held of their own accord."""

    decisions: int
    ships: int
    refused: int
    nothing: int
    own: Counter[str]


def agree(site: Site, said: Iterable[Said], *, unsure: Collection[str] = ()) -> Told:
    """Assert H1, H2 and H3. `unsure`: batches whose commit the database had when its reply was lost."""
    recorded = site.recorded()
    calls = list(said)
    by_batch: dict[str, list[Said]] = defaultdict(list)
    for one in calls:
        by_batch[one.batch].append(one)
        if one.status == 200:
            assert one.batch in recorded, f"H1: {one.batch} was answered and is not on record"
            assert one.event is not None
            assert agrees(one.event, recorded[one.batch]), f"H1: {one.batch} was answered otherwise"
            first = (
                next(other.body for other in by_batch[one.batch] if other.status == 200)
                if "streamer" in one.event
                else recorded[one.batch]
            )
            assert one.body in (None, first), f"H1: {one.batch} was answered in other bytes"
    for name, told in by_batch.items():
        if all(one.status in REFUSED for one in told) and name in recorded and name not in unsure:
            assert json.loads(recorded[name])["action"] != "ship", f"H2: {name} was told to hold, and ships"
    decided = "SELECT batch FROM outcomes WHERE kind = 'decision'"
    twice = site.rows(f"SELECT batch FROM ({decided}) AS d GROUP BY batch HAVING count(*) > 1")
    assert twice == [], "H3: decided twice"
    ((outcomes, decisions, batches),) = site.rows(
        f"SELECT (SELECT count(*) FROM ({decided}) AS d), (SELECT count(*) FROM decisions), (SELECT count(*) FROM batches)"
    )
    assert outcomes == decisions == batches, "H3"
    site.check()
    return Told(
        decisions=sum(one.status == 200 for one in calls),
        ships=sum(_decision(one.event or {}).get("action") == "ship" for one in calls),
        refused=sum(one.status in REFUSED for one in calls),
        nothing=sum(one.status is None and one.own is None for one in calls),
        own=Counter(one.own for one in calls if one.own is not None),
    )


def ask_all_again(endpoint: Endpoint, callers: Callers, *, most: int | None = None) -> None:
    """Ask about every batch, or so many of them, once more: each is decided, and as it was told."""
    told = {one.batch: one.event for one in callers.said if one.event is not None}
    names = sorted(callers.asked)
    for name in names[:: 1 if most is None else max(1, len(names) // most)]:
        answer = ask_patiently(endpoint, name)
        assert answer == told.get(name, answer)
        decided = _decision(answer)
        allowed = {"deadline_passed", "closed"} | ({"too_few_responses"} if "streamer" in answer else set())
        assert (
            decided["action"] == "ship"
            or decided["reason"] in allowed
            or int(name.rpartition("-")[2]) % 3 == 0
        )


def ask_patiently(endpoint: Endpoint, name: str) -> dict[str, Any]:
    """Ask until it is more than "hold, and ask again", which is right while keys or database are still out of reach."""
    until = time.monotonic() + 60
    while (answer := ask(endpoint.client, name)).status_code in REFUSED and time.monotonic() < until:
        time.sleep(0.5)
    assert answer.status_code == 200, answer.text
    return answer.json()


def _decision(answer: dict[str, Any]) -> dict[str, Any]:
    return answer.get("streamer", answer)
