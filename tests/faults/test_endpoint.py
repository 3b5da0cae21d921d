"""Cases 27 and 28: `streamer serve` killed, frozen, without its database, its broker or its model, while callers ask in every form."""

import json
import random
import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamer import wiring
from streamer.events.actions import decode_action
from streamer.failpoints import POINTS, RUN_POINTS
from streamer.settings.settings import load_settings
from streamer.stream.ending import WorkerExit
from tests.faults.callers import REFUSED, Callers, Told, agree, ask_all_again, ask_patiently
from tests.faults.endpoint import Endpoint, Site
from tests.faults.forms import FORMS
from tests.faults.matrix import Matrix
from tests.faults.oracle import Findings, read_all
from tests.faults.site import wait_until
from tests.integration.serving.model_server import Model
from tests.services.kafka import KafkaBroker
from tests.services.openai_server import ChatReply
from tests.services.ports import free_port
from tests.services.postgres import PostgresServer
from tests.services.service_forks import FORKS

STEPS = [point for point in POINTS if point not in RUN_POINTS]
KILLS = 50
WAITS = (0.02, 0.3, 2.0)
"""Some deadlines that pass before a decision is committed, some that are met."""


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as started:
        yield started


@pytest.fixture
def requests_site(migrated_postgres_url: str, tmp_path: Path, model: Model) -> Iterator[Site]:
    """Instances over the shared PostgreSQL, which answer in every form."""
    site = Site(migrated_postgres_url, tmp_path)
    site.gate()
    model.answer_forms(site)
    yield site
    site.close()


def conclude(
    site: Site, callers: Callers, last: Endpoint, *, prefix: str | None = None, unsure: Collection[str] = ()
) -> tuple[Findings, Told]:
    """Assert what must hold of all that was told, of the record and of the actions topic, and count it."""
    told = agree(site, callers.said, unsure=unsure)
    ask_all_again(last, callers, most=300)  # what was told to hold in place of a decision may be decided now
    for form in callers.forms:
        answer = ask_patiently(last, f"{form}-last-4")
        assert answer.get("streamer", answer)["action"] == "ship", form
    assert _verify(site)["counts"]["decisions"] == len(site.recorded())
    kinds = dict(
        site.rows("SELECT kind, count(*) FROM outcomes WHERE log_id = 'http' GROUP BY kind ORDER BY kind")
    )
    published = [] if prefix is None else _published(site, prefix)
    if prefix is not None:
        assert set(published) == set(site.recorded().values())
    found = Findings(
        events=sum(kinds.values()), lost=0, conflicting=0, decisions=kinds["decision"],
        dead_letters=kinds.get("conflict", 0) + kinds.get("dead_letter", 0),
        duplicates=kinds.get("duplicate", 0), labels=0, actions_published=len(published),
        republished=len(published) - len(set(published)),
    )  # fmt: skip
    print(f"\n{told}\n{found}")
    return found, told


def _verify(site: Site) -> Any:
    """What `streamer audit verify` says; it names the threshold that the site put in force without labels, and no more."""
    done = FORKS.run(
        ["audit", "verify", "--json"], environment=site.environment(), folder=site.folder, seconds=240
    )
    report = json.loads(done.stdout)
    said = [fault["detail"].partition(":")[0] for fault in report["faults"]]
    assert set(said) == {"its inputs cannot be calibrated"}, (said, done.stderr)
    return report


def _published(site: Site, prefix: str) -> list[bytes]:
    waiting = "SELECT count(*) FROM pending_messages WHERE source_log_id = 'http'"
    wait_until(lambda: site.rows(waiting) == [(0,)], "every action is published")
    settings = load_settings(
        kafka={
            "bootstrap_servers": site.settings["STREAMER_KAFKA_BOOTSTRAP_SERVERS"],
            "topic_prefix": prefix,
            "properties": {"bootstrap_timeout_ms": "120000"},
        }
    )
    records = read_all(wiring.connection(settings), wiring.topics(settings).actions)
    names = {decode_action(record.value).action_id: record.value for record in records}
    values = [record.value for record in records if record.value is not None]
    assert len(names) == len(set(values)), "copies of an action differ"
    return values


def _answered(callers: Callers, more: int = 1) -> float:
    """Wait until so many more decisions were told; the seconds that it took."""
    began, before = time.monotonic(), callers.decided
    wait_until(lambda: callers.decided >= before + more, "decisions are told")
    return time.monotonic() - began


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_killed_at_every_step_and_at_random_moments(
    kafka_broker: KafkaBroker, topic_prefix: str, requests_site: Site, matrix: Matrix
) -> None:
    site, rng, port = requests_site, random.Random(1), str(free_port())
    site.with_kafka(kafka_broker, topic_prefix)
    plan: list[str | None] = [*STEPS * 2, *[None] * (KILLS - 2 * len(STEPS))]
    rng.shuffle(plan)
    slowest = 0.0
    with Callers(
        [f"http://127.0.0.1:{port}"],
        seed=1,
        plain=4,
        ours=2,
        waits=WAITS,
        patience=10,
        pause=0.02,
        forms=FORMS,
    ) as callers:
        for step in plan:
            passing = 1 if step == "after_lease" else rng.randint(1, 20)
            armed = {} if step is None else {"STREAMER_FAILPOINTS": f"{step}=kill@{passing}"}
            began = time.monotonic()
            endpoint = site.serve("--port", port, kafka=True, ready=False, **armed)
            if step is None:
                _answered(callers)
                slowest = max(slowest, time.monotonic() - began)
                time.sleep(rng.uniform(0, 1.5))
                endpoint.kill()
            else:
                endpoint.wait_until_killed()
        last = site.serve("--port", port, kafka=True)
        _answered(callers)
    found, _ = conclude(site, callers, last, prefix=topic_prefix)
    assert last.terminate() == 0
    assert len([one for one in site.started if one.process.returncode == -signal.SIGKILL]) == KILLS
    matrix.add(
        f"27 by HTTP: killed {KILLS} times, at each of {len(STEPS)} failpoints too", found, seconds=slowest
    )


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "step",
    [
        pytest.param("while_scoring", marks=pytest.mark.long),
        "before_commit",
        pytest.param("in_transaction", marks=pytest.mark.long),
    ],
)
def test_frozen_beside_a_second_instance(requests_site: Site, matrix: Matrix, step: str) -> None:
    site = requests_site
    frozen = site.serve(STREAMER_FAILPOINTS=f"{step}=sleep:1@20")
    other = site.serve()
    with Callers(
        [frozen.base, other.base], seed=2, plain=4, ours=2, waits=WAITS, patience=2.5, pause=0.02, forms=FORMS
    ) as callers:
        frozen.wait_for_log("failpoint.reached")
        frozen.process.send_signal(signal.SIGSTOP)
        seconds = _answered(callers, 50)  # who waits for the one that is frozen goes on to the other
        time.sleep(3)
        frozen.process.send_signal(signal.SIGCONT)
        began, before = time.monotonic(), len(site.outcomes())
        wait_until(lambda: frozen.client.get("/v1/gates/bot").status_code == 200, "it answers again")
        seconds = max(seconds, time.monotonic() - began)
        _answered(callers, 50)
        assert len(site.outcomes()) > before
    found, _ = conclude(site, callers, other)
    assert frozen.terminate() == other.terminate() == 0
    matrix.add(
        f"27 by HTTP: frozen {step.replace('_', ' ')} beside a second instance", found, seconds=seconds
    )


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("step", ["while_scoring", "in_transaction"])
def test_frozen_and_replaced_in_its_slot(requests_site: Site, matrix: Matrix, step: str) -> None:
    """In a transaction it holds its partition, until PostgreSQL ends its session after half a minute."""
    site = requests_site
    frozen = site.serve(STREAMER_FAILPOINTS=f"{step}=sleep:1@20")
    port = free_port()
    with Callers(
        [frozen.base, f"http://127.0.0.1:{port}"],
        seed=3,
        plain=4,
        ours=2,
        waits=WAITS,
        patience=2.5,
        pause=0.02,
        forms=FORMS,
    ) as callers:
        frozen.wait_for_log("failpoint.reached")
        frozen.process.send_signal(signal.SIGSTOP)
        site.end_slot(0)
        began = time.monotonic()
        other = site.serve("--port", str(port))
        _answered(callers, 50)
        seconds = time.monotonic() - began
        frozen.process.send_signal(signal.SIGCONT)
        assert frozen.process.wait(240) == WorkerExit.FENCED, frozen.log_tail()
        _answered(callers, 50)
    found, _ = conclude(site, callers, other)
    assert other.terminate() == 0
    matrix.add(f"27 by HTTP: frozen {step.replace('_', ' ')}, another in its slot", found, seconds=seconds)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("how", "away"), [("immediate", 0), ("immediate", 12), ("fast", 12)])
def test_its_database_away(
    own_postgres_server: PostgresServer, tmp_path: Path, model: Model, matrix: Matrix, how: str, away: int
) -> None:
    rounds = 3
    url = own_postgres_server.create_migrated_database()
    site = Site(url, tmp_path)
    site.gate()
    model.answer_forms(site)
    slowest = 0.0
    try:
        endpoint = site.serve()
        with Callers(
            [endpoint.base], seed=4, plain=4, ours=2, waits=WAITS, patience=30, forms=FORMS
        ) as callers:
            for _ in range(rounds):
                _answered(callers, 100)
                before = len(callers.said)
                own_postgres_server.stop(how)
                if away:
                    wait_until(
                        lambda before=before: any(one.status in REFUSED for one in callers.said[before:]),  # type: ignore[misc]
                        "it says hold",
                    )
                time.sleep(away)
                own_postgres_server.start()
                slowest = max(slowest, _answered(callers))
        site.engine.dispose()
        found, told = conclude(site, callers, endpoint, unsure=unsure_commits(site, callers, rounds))
        assert told.nothing == 0 or not away
        assert (told.refused > 0) >= (away > 0)
        assert endpoint.terminate() == 0
    finally:
        site.close()
    said = "stopped" if how == "fast" else "crashed"
    matrix.add(f"28 by HTTP: PostgreSQL {said} {rounds} times for {away} s", found, seconds=slowest)


def unsure_commits(site: Site, callers: Callers, crashes: int) -> set[str]:
    """Ships whose callers were all told to hold: the database had the commit, and its reply was lost. One commit a crash."""
    told: dict[str, set[int | None]] = {}
    for one in callers.said:
        told.setdefault(one.batch, set()).add(one.status)
    ships = site.rows(
        "SELECT b.batch_id, d.xmin::text FROM batches b JOIN decisions d ON d.batch = b.id WHERE d.outcome = 'ship'"
    )
    found = {name: commit for name, commit in ships if told.get(name) and told[name] <= set(REFUSED)}
    print(f"\nships whose callers were told to hold, their commits' replies lost: {sorted(found.items())}")
    assert len(set(found.values())) <= crashes, found
    return set(found)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("away", [1, pytest.param(20, marks=pytest.mark.long)])
def test_its_broker_away(
    own_kafka_broker: KafkaBroker, requests_site: Site, matrix: Matrix, away: int
) -> None:
    """Whoever asks notices nothing, and what the topic lacks is published later."""
    site = requests_site
    site.with_kafka(own_kafka_broker, "own.")
    endpoint = site.serve(kafka=True)
    with Callers(
        [endpoint.base], seed=5, plain=4, ours=2, waits=WAITS, patience=30, pause=0.02, forms=FORMS
    ) as callers:
        _answered(callers, 50)
        own_kafka_broker.kill()
        time.sleep(away)
        seconds = _answered(callers, 50)
        own_kafka_broker.start()
        _answered(callers, 50)
    found, told = conclude(site, callers, endpoint, prefix="own.")
    assert (told.refused, told.nothing) == (0, 0)
    assert endpoint.terminate() == 0
    matrix.add(f"28 by HTTP: broker killed and away for {away} s", found, seconds=seconds)


@pytest.mark.timeout(400)
def test_its_model_away(requests_site: Site, model: Model, matrix: Matrix) -> None:
    """What it does not answer whole is held, on record, and stays held once it answers again."""
    site = requests_site
    endpoint, answers = site.serve(), model.reply
    broken = (
        ChatReply(hang_up=True),
        ChatReply(status=500),
        ChatReply(raw=b'{"choices": [{"mess'),
        ChatReply("", after=1),
    )
    with Callers([endpoint.base], seed=6, plain=6, waits=WAITS, patience=30, forms=FORMS[1:]) as callers:
        _answered(callers, 50)
        model.reply = lambda request: broken[request.number % len(broken)]
        wait_until(lambda: _failed(site) >= 50, "answers fail")
        model.reply = answers
        seconds = _answered(callers, 50)
    found, told = conclude(site, callers, endpoint)
    assert (told.refused, told.nothing) == (0, 0)
    assert endpoint.terminate() == 0
    matrix.add("28 by HTTP: its model breaks off, fails and hangs", found, seconds=seconds)


def _failed(site: Site) -> int:
    ((count,),) = site.rows("SELECT count(*) FROM decisions WHERE reason = 'too_few_responses'")
    return int(count)
