"""A console on a real socket, over a small record: a gate with a history, one with a proposal, and texts that mean harm."""

from __future__ import annotations

import http.client
import itertools
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode

import numpy as np
import pytest
from msgspec.structs import replace

from streamer.console.app import console_app
from streamer.console.doors import Doors
from streamer.console.forms import Forms
from streamer.console.oidc import Issuer
from streamer.events.alerts import alert
from streamer.events.desk import DeskV1
from streamer.gates.batch_key import BatchKey
from streamer.recalibration.one_gate import recalibrate_by_hand
from streamer.review.access import Access
from streamer.review.app import review_app
from streamer.risk.rounds.watch import RiskWatch
from streamer.settings.settings import load_settings
from streamer.signing.policies import NO_KEYS
from streamer.store import Store
from streamer.web.guard import Served
from streamer.wiring.console_changes import Changes
from streamer.wiring.trying import try_upload
from tests.integration.review.conftest import Serving
from tests.integration.store.conftest import START, World
from tests.integration.store.labelled_gate import GATE, LabelledGate, bad_below
from tests.integration.watching.conftest import Shown

HARM = (
    "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
    "\u202egnihton\u202c {{ 7*7 }} ' \" & </p></main>"
)
BIG = "words and more words " * 50_000  # a megabyte
WAITING = 5
"""Answers that were drawn and that nobody has labelled."""

PASSWORD = "correct horse battery"
ROLES = ("viewer", "labeller", "releaser", "approver", "administrator")


def outcome_of(store: Store, key: BatchKey) -> DeskV1 | None:
    """What became of a batch that came to the desk; None while it waits."""
    state = store.desk.state(key)
    assert state is not None, key
    return state.outcome


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str


class Client:
    """Somebody with a socket: whatever a browser would forbid, this one does."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.cookie = ""

    def get(self, path: str, **headers: str) -> Answer:
        return self._send("GET", path, None, headers)

    def post(self, path: str, form: Mapping[str, Any], **headers: str) -> Answer:
        return self._send("POST", path, urlencode(form, doseq=True).encode(), headers)

    def _send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.site.port, timeout=240)
        sent = {"cookie": self.cookie, "content-type": "application/x-www-form-urlencoded"}
        connection.request(
            method, path, body, {**sent, **{k.replace("_", "-"): v for k, v in headers.items()}}
        )
        answer = connection.getresponse()
        found_headers = {k.lower(): v for k, v in answer.getheaders()}
        if "set-cookie" in found_headers:  # of several the first is the session's
            found_headers["set-cookie"] = answer.msg.get_all("set-cookie")[0]
        found = Answer(answer.status, found_headers, answer.read().decode())
        connection.close()
        return found

    def sign_in(self, name: str, password: str = PASSWORD) -> Answer:
        return self._let_in(self.post("/login", {"name": name, "password": password}))

    def enter(self, token: str) -> Answer:
        return self._let_in(self.post("/enter", {"token": token}))

    def _let_in(self, answer: Answer) -> Answer:
        if answer.status == 303:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer

    @property
    def key(self) -> str:
        """What every form has."""
        found = re.search(r'name="key" value="([^"]+)"', self.get("/you").body)
        return found[1]

    def act(self, path: str, **form: Any) -> Answer:
        return self.post(path, {"key": self.key} | form)


class Site(Serving):
    """One server of the console."""

    def __init__(
        self,
        world: World,
        *,
        public: str | None = None,
        proxies: int | None = None,
        port: int = 0,
        issuer: Callable[[str], Issuer] | None = None,
    ) -> None:
        super().__init__("127.0.0.1", port)
        self.store = world.open()
        self.clock = world.clock
        self.announced = 0
        self.moment = 0.0
        self.access = Access()
        self.doors = Doors(self.store.accounts, monotonic=lambda: self.moment)
        served = Served("127.0.0.1", self.port, public, proxies)
        review = review_app(
            self.store.reviews,
            self.access,
            served,
            gates=lambda: [one.gate for one in self.store.gates.list()],
            recalibrating=dict,
            clock=self.clock,
        )
        settings = load_settings(database={"url": world.url})
        forms = Forms(
            store=self.store,
            doors=self.doors,
            access=self.access,
            changes=Changes(settings, self.store),
            announce=self._announce,
            clock=self.clock,
            issuer=None if issuer is None else issuer(f"{self.base}oidc/callback"),
        )
        tried = partial(try_upload, settings)
        self.app = console_app(forms, served, review=review, keys=NO_KEYS, tried=tried)
        self.serve(self.app)

    def _announce(self) -> None:
        self.announced += 1

    def client(self, name: str | None = None) -> Client:
        """Somebody, who has signed in if they are named."""
        client = Client(self)
        if name is not None:
            assert client.sign_in(name).status == 303
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def add(self, name: str, *roles: str) -> None:
        self.store.accounts.add(name, roles=roles, password=PASSWORD, by="root")


def watched(world: World, now: datetime) -> None:
    """Watch every gate for three rounds."""
    moments = itertools.count()
    watch = RiskWatch(
        world.store.monitoring,
        alerts=world.store.alerts,
        observer=Shown(),
        monotonic=lambda: next(moments) / 1000,
    )
    for _ in range(3):
        watch.round(world.store.gates.list(), now=now)


def fill(world: World) -> None:
    """Make the record: a gate that serves and is watched, with a looser threshold proposed; an alert; and texts that mean harm."""
    gate = LabelledGate(world, recalibrate="propose", audit_probability=0.7)
    rng = np.random.default_rng(7)
    serve(gate, 200, rng, START)
    gate.open()
    serve(gate, 600, rng, START + timedelta(days=1))
    watched(world, START + timedelta(days=2))
    gate.now = START + timedelta(days=2)
    propose(gate)
    world.store.alerts.raise_(
        alert(
            GATE,
            "policy_refused",
            "version 2",
            message=f"a worker refuses policy 2 {HARM}",
            details={"policy": 2, "note": HARM},
            policy_version=2,
            raised_at=START + timedelta(days=2),
        )
    )


def serve(gate: LabelledGate, count: int, rng: np.random.Generator, start: datetime) -> None:
    """Decide as the policy in force says, and label what was drawn, but for the last; one text means harm, one is large."""
    policy, first = gate.policy, gate.count
    decisions = []
    for n in range(first, first + count):
        score = gate.score(n)
        ships = policy.threshold is not None and score > policy.threshold
        made = gate.world.decision(
            n,
            f"order-{n}",
            scores=(score,),
            actions=("ship" if ships else "abstain",),
            drawn=(0,),
            policy=policy,
            at=start + timedelta(minutes=n - first),
            prompt=HARM if n == first else f"Question {n}?",
            sampled=bool(rng.random() < 0.7),
            sampling_probability=0.7,
            content=f"c{n}",
            reason="scored" if policy.calibrated else "no_threshold",
        )
        text = HARM if n == first else BIG if n == first + 1 else f"Answer {n}."
        decisions.append(replace(made, responses=(replace(made.responses[0], text=text),)))
    gate.count += count
    gate.world.commit(gate.world.slice(gate.lease, *decisions, expected=first))
    severity = bad_below(0.36 if first else 0.4)
    drawn = [one for one in decisions if one.sampled]
    # The held ones: nothing that is said of the risk waits for them.
    waiting = [one for one in drawn if one.outcome != "ship"][-WAITING:] if first else []
    gate.store.labels.add(
        [
            gate.world.label(
                severity(one.responses[0].score or 0.0) if rng.random() < 0.97 else 1.0,
                one.key.batch_id,
                response_id="a",
                at=start + timedelta(hours=20),
            )
            for one in drawn
            if one not in waiting
        ]
    )


def propose(gate: LabelledGate) -> None:
    """Have a person propose what the labels allow now."""
    recalibrate_by_hand(
        gate.store.calibration,
        gate.store.policies,
        gate.store.gates.get(GATE),
        clock=gate.clock,
        by="ben",
        reason="more labels",
        propose=True,
    )


@pytest.fixture(scope="session")
def filled_file(migrated_sqlite_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of `fill`, made once."""
    path = tmp_path_factory.mktemp("console") / "filled.db"
    shutil.copy(migrated_sqlite_file, path)
    world = World(f"sqlite:///{path}")
    fill(world)
    world.close()
    return path


@pytest.fixture(scope="session")
def peopled_file(filled_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with one person of each role, named by it: each password takes its time."""
    path = tmp_path_factory.mktemp("console") / "peopled.db"
    shutil.copy(filled_file, path)
    world = World(f"sqlite:///{path}")
    for role in ROLES:
        world.store.accounts.add(role, roles=[role], password=PASSWORD, by="root")
    world.close()
    return path


@pytest.fixture
def world(filled_file: Path, tmp_path: Path) -> Iterator[World]:
    """A copy of it, over SQLite: what differs between databases is tried in the store's own tests."""
    yield from _opened(filled_file, tmp_path)


@pytest.fixture
def peopled_world(peopled_file: Path, tmp_path: Path) -> Iterator[World]:
    """The same with people."""
    yield from _opened(peopled_file, tmp_path)


def _opened(file: Path, tmp_path: Path) -> Iterator[World]:
    shutil.copy(file, tmp_path / "console.db")
    made = World(f"sqlite:///{tmp_path / 'console.db'}")
    made.clock.now = START + timedelta(days=2, hours=1)
    yield made
    made.close()


@pytest.fixture
def site(world: World) -> Iterator[Site]:
    with Site(world) as made:
        yield made


@pytest.fixture
def people(peopled_world: World) -> Iterator[Site]:
    """A console with one person of each role, named by it."""
    with Site(peopled_world) as made:
        yield made
