"""A gate of method full on Kafka and PostgreSQL: publish, label, calibrate, ship, and the same p for every item offline."""

import json
import math
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from streamer import wiring
from streamer.calibration.full_fit import allowed, fit_full
from streamer.events.actions import decode_action
from streamer.store.db.schema import batches, decisions, responses
from streamer_verify.bundle import Bundle
from streamer_verify.command import verify_bundle
from tests.e2e.test_gates_in_service import publish, taken_up
from tests.faults.site import Site, empty_site, wait_until
from tests.faults.test_recalibration_killed import label
from tests.made import a_batch
from tests.services.kafka import KafkaBroker

NAME = "full"
BEFORE, AFTER, ALPHA = 60, 40, 0.2
TOWNS = ["Bern", "Wien", "Rom", "Oslo", "Riga", "Prag", "Turin", "Lyon", "Genf", "Basel"]


def is_bad(number: int) -> bool:
    return number % 4 == 0


def session(number: int) -> int:
    """Each prompt of the second lot is in a session with one of the first lot."""
    return number if number < BEFORE else number - BEFORE + 1


def event(number: int) -> bytes:
    """Good prompts have answers that mostly agree; what retrieval says helps."""
    town = TOWNS[number % len(TOWNS)]
    if is_bad(number):
        texts = [
            f"Perhaps {TOWNS[(number + i) % 10]}, I am not sure about case {number + i}" for i in range(4)
        ]
    else:
        texts = [f"It is {town}.", f"It is {town}, surely.", f"{town}", f"Is it {TOWNS[(number + 3) % 10]}?"]
    base = 0.3 if is_bad(number) else 0.8
    answers: list[dict[str, Any]] = []
    for i, text in enumerate(texts):
        angle = (1.2 * i if is_bad(number) else 0.25 * i) + 0.01 * number
        vector = [math.cos(angle), math.sin(angle), 0.1 * math.cos(number)]
        signals = {"retrieval": round(base + 0.02 * i - 0.001 * (number % 7), 4)}
        answers.append({"id": f"r{i}", "text": text, "embedding": vector, "signals": signals})
    more = {"metadata": {"session": session(number)}, "embedding_encoder": "made-up", "responses": answers}
    return a_batch(NAME, number, (), prompt=f"Which town is it in case {number}?", **more)


def recorded(one: Site) -> dict[int, Any]:
    """Every decision of the gate by the number of its batch, with the position that was drawn."""
    best = sa.select(responses.c.response_id).where(responses.c.batch == decisions.c.batch, responses.c.drawn)
    query = sa.select(
        batches.c.batch_id, *decisions.c["outcome", "signals", "budget_count", "budget_groups", "action_value"],
        best.scalar_subquery().label("drawn"),
    ).join(decisions, decisions.c.batch == batches.c.id)  # fmt: skip
    with one.store._database.reading() as connection:
        return {int(row.batch_id.split("-")[1]): row for row in connection.execute(query)}


def row_of(found: Any) -> np.ndarray:
    return np.frombuffer(found.signals, "<f4")


@pytest.mark.slow
def test_from_its_creation_to_decisions_that_follow_from_the_labels(
    kafka_broker: KafkaBroker, migrated_postgres_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    with (
        ExitStack() as stack,
        empty_site(kafka_broker, migrated_postgres_url, topic_prefix, tmp_path, stack) as site,
    ):
        site.command(
            *("gate", "create", NAME, "--method", "full", "--alpha", str(ALPHA), "--signal", "retrieval=0..1"),
            *("--encoder", "external:made-up", "--embeddings", "accept", "--dimension", "3"),
            *("--mode", "enforce", "--audit-probability", "1", "--recalibrate", "propose"),
            *("--group-by", "session"),
        )  # fmt: skip
        assert site.store.gates.get(NAME).settings.method == "full"
        worker = site.start_worker()
        publish(site, NAME, event, range(BEFORE))
        first = recorded(site)
        assert all(found.budget_count is None and found.signals for found in first.values())

        with wiring.publisher(site.settings) as publisher:
            for number, found in first.items():
                key, value = label(number, int(found.drawn[1:]), float(is_bad(number)), gate=NAME)
                publisher.send(wiring.topics(site.settings).labels, value, key=key)
        wait_until(lambda: site.recorded() == 2 * BEFORE, "every label has an outcome")
        said = site.command("recalibrate", NAME, "--by", "ana", "--reason", "labels came")
        policy = site.store.policies.newest(NAME)
        assert (policy.state, policy.threshold) == ("full", None), said.stdout + said.stderr
        taken_up(site, worker, NAME)
        publish(site, NAME, event, range(BEFORE, BEFORE + AFTER))

        found = recorded(site)
        numbers = sorted(range(BEFORE), key=lambda n: n)
        rows = np.array([row_of(found[n]) for n in numbers])
        offline = fit_full(rows, [is_bad(n) for n in numbers])
        k = allowed(ALPHA, BEFORE)
        shipped = held = 0
        for number in range(BEFORE, BEFORE + AFTER):
            one = found[number]
            count = offline.count(row_of(one))
            assert (one.budget_count, one.budget_groups) == (count, BEFORE)
            ships, action = count <= k and not is_bad(session(number)), decode_action(one.action_value)
            assert (one.outcome == "ship") == ships, "nothing ships of a session with a bad label"
            assert action.reason == ("bad_burst" if is_bad(session(number)) else "scored")
            shipped += ships
            held += count <= k and not ships
            assert (action.policy.state, action.policy.threshold) == ("full", None)
            needed = [r.budget_needed for r in action.responses if isinstance(r.budget_needed, float)]
            assert needed == [count / (BEFORE + 1)]
        assert shipped >= AFTER // 3
        assert held > 2
        said = site.command("what-if", NAME, "--threshold", "closed", "--json").stdout
        assert json.loads(said)["replay"]["as_recorded"], said

        shown = site.command("threshold", "show", NAME).stdout
        assert "of 60 labelled prompts" in shown
        assert "carried by" in shown
        assert "of calibrations on 60 prompts expose more than" in shown
        site.command("audit", "verify")
        bundle = site.directory / "bundle"
        site.command("audit", "export", "--salts", "--out", str(bundle))
        assert verify_bundle(Bundle(bundle), [], None).faults == []
        site.check()
