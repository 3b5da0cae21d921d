"""Gates that judge a part of each answer: what ships, what the action says of it, and what all three verifiers make of the record."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamer import wiring
from streamer.audit.rescoring import Rescorer
from streamer.audit.story import story_of
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.scoring.judged import form
from streamer.scoring.signals.signal_list import signal_list
from tests.integration.audit.alone import verify_bundle
from tests.integration.audit.history import (
    KEYS,
    Scribe,
    event,
    export,
    label,
    label_event,
    settings_for,
    verify,
)
from tests.migrated import migrated
from tests.unit.deciding.test_decider import HashingEncoder

ENCODER = HashingEncoder()
PROMPTS, AFTER = 50, 12
GATES: dict[str, dict[str, Any]] = {
    "each": {"unit": "response", "scorer": "gram"},
    "raw": {"scorer": "gram", "judged": "raw"},
    "sums": {"judged": "number"},
    "says": {"judged": "final", "method": "full", "signals": ("final",)},
    "bills": {"judged": "json /note", "method": "full", "signals": ("json /note", "number")},
    "calls": {"judged": "call", "desk_deadline_seconds": 3600.0, "hold_action": "escalate"},
}


def answers(gate: str, number: int) -> bytes:
    """Answers that think aloud, and that agree less the higher the number's digit."""
    rng = np.random.default_rng(number)
    content = json.loads(event(gate, number))
    del content["embedding_encoder"]
    for i, one in enumerate(content["responses"]):
        del one["embedding"]
        total = 12.5 if rng.uniform() > number % 7 / 7 else i
        said = f"It is {total}." if gate != "bills" else json.dumps({"total": total, "note": f"sent {i}"})
        if gate == "calls":
            said = json.dumps({"name": "pay", "arguments": {"sum": total}})
        thought = f"<think>Is it {i}, or {number}?"
        one["text"] = [said, f"{thought}</think>\n {said} ", f"{thought} {said}", said][(i + number) % 4]
    return json.dumps(content).encode()


def of_fields(gate: str, number: int) -> dict[str, Any]:
    fields = {"/total": float(number % 7 > 3), "/note": 0.25}
    return {"severities": fields} if gate == "bills" and number % 2 else {}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("judged")
    settings = settings_for(f"sqlite:///{folder / 'record.db'}", folder)
    migrated(settings)
    with wiring.open_store(settings) as store:
        scribe = Scribe(store, settings, encoder=CachedEncoder(ENCODER))
        for name, given in GATES.items():
            chosen = {"method": "mean", "scorer": "choice", "alpha": 0.3, "pending": "worst"} | given
            if "signals" in given:
                chosen["signals"] = signal_list(given["signals"]).text
            scribe.gate(name, **chosen, encoder=ENCODER.identity.id, embeddings="refuse", dimension=None)
            scribe.deliver(answers(name, n) for n in range(PROMPTS))
            scribe.deliver(
                (
                    label_event(name, n, response=f"r{i}", severity=float(n % 7 > 3), **of_fields(name, n))
                    for n in range(PROMPTS)
                    for i in range(4)
                ),
                topic="labels",
            )
            by_hand = replace(label(name, 0), severities=(("/note", 0.0), ("/total", 1e-07)))
            store.labels.add([by_hand], source="review")
            scribe.recalibrate(name)
            scribe.deliver(answers(name, n) for n in range(PROMPTS, PROMPTS + AFTER))
        scribe.checkpoint()
    return folder


def test_reasoning_is_neither_scored_nor_shipped(record: Path) -> None:
    settings = settings_for(f"sqlite:///{record / 'record.db'}", record)
    with wiring.open_store(settings) as store, store._database.reading() as connection:
        rows = connection.exec_driver_sql(
            "SELECT d.gate, d.action_value, r.response_id, r.text, r.score, r.action FROM decisions d JOIN responses r ON r.batch = d.batch"
        ).all()
    shipped = dict.fromkeys(GATES, 0)
    for row in rows:
        action = json.loads(row.action_value)
        judged = form(GATES[row.gate].get("judged", "whole"))
        (own,) = (one for one in action["responses"] if one["id"] == row.response_id)
        assert action["scorer"].get("judged", "whole@1") == judged.text
        if not judged.part(row.text):
            assert (row.score, row.action) == (0, "abstain" if row.gate != "calls" else "escalate")
        if row.action == "ship":
            shipped[row.gate] += 1
            begin, end = own.get("span", (0, len(row.text)))
            assert row.gate == "calls" or row.text[begin:end] == judged.ships(row.text)
            assert row.gate == "raw" or "<think>" not in row.text[begin:end] or row.gate == "calls"
        else:
            assert "span" not in own
    assert all(shipped[gate] for gate in GATES), shipped


def test_the_story_names_the_fields_in_which_the_answers_differ(record: Path) -> None:
    settings = settings_for(f"sqlite:///{record / 'record.db'}", record)
    told = []
    with wiring.open_store(settings) as store, store.evidence.snapshot() as snapshot:
        for number in range(PROMPTS):
            (found,) = snapshot.decisions_of(f"batch-{number}", gate="bills")
            story = dict(story_of(found))
            told += [str(story[name]) for name in ("disputed",) if name in story]
            (plain,) = snapshot.decisions_of(f"batch-{number}", gate="each")
            assert "disputed" not in dict(story_of(plain))
    assert all("/note (39 % of the others say the same)" in one for one in told)
    assert any("/total (67 % of the others say the same)" in one for one in told)


def test_every_verifier_follows(record: Path, tmp_path: Path) -> None:
    settings = settings_for(f"sqlite:///{record / 'record.db'}", record)
    export(settings, tmp_path / "bundle")
    again = Rescorer({ENCODER.identity.id: CachedEncoder(ENCODER).embed})
    report = verify(settings, outside=[], rescorer=again)
    assert not report.faults
    assert report.counts["batches scored again"] >= len(GATES) * PROMPTS - 20
    assert report.counts["rows of signals measured again"] >= 2 * PROMPTS - 20
    assert not verify_bundle(tmp_path / "bundle", KEYS, []).faults
    for file, before, after in (
        ("outcomes", '"severities":{"/note":0.25,"/total":1.0}', '"severities":{"/note":0.25,"/total":0.0}'),
        ("control", '"severities":{"/note":0.0,"/total":1e-07}', '"severities":{"/note":0.0}'),
    ):
        told = (tmp_path / "bundle" / f"{file}.jsonl").read_text("utf-8")
        assert before in told
        (tmp_path / "bundle" / f"{file}.jsonl").write_text(told.replace(before, after), "utf-8")
        assert verify_bundle(tmp_path / "bundle", KEYS, []).faults
        (tmp_path / "bundle" / f"{file}.jsonl").write_text(told, "utf-8")


def test_severities_of_fields_are_kept_and_shown(record: Path) -> None:
    settings = settings_for(f"sqlite:///{record / 'record.db'}", record)
    with wiring.open_store(settings) as store, store.evidence.snapshot() as snapshot:
        (found,) = snapshot.decisions_of("batch-5", gate="bills")
        assert "r0: severity 1.0 (/note 0.25, /total 1) (human) by bob" in str(story_of(found))
        (found,) = snapshot.decisions_of("batch-0", gate="bills")
        assert "(/note 0, /total 1e-07) (human) by ana" in str(story_of(found))
        (row,) = (one for one in found["labels"] if one["labeller"] == "ana")
        assert row["severities"] == {"/note": 0.0, "/total": 1e-07}


def test_whoever_has_a_part_for_another_is_found_out(record: Path, tmp_path: Path) -> None:
    settings = settings_for(f"sqlite:///{record / 'record.db'}", record)
    export(settings, tmp_path / "bundle")
    revisions = tmp_path / "bundle" / "control.jsonl"
    told = revisions.read_text("utf-8")
    assert told.count('"judged":"number@1"') >= 1
    revisions.write_text(told.replace('"judged":"number@1"', '"judged":"whole@1"'), "utf-8")
    assert verify_bundle(tmp_path / "bundle", KEYS, []).faults


def test_a_released_answer_goes_out_without_its_reasoning(record: Path) -> None:
    settings = settings_for(f"sqlite:///{record / 'record.db'}", record)
    with wiring.open_store(settings) as store:
        waiting = [one.key for one in store.desk.waiting()]
        found = [one for key in waiting for one in store.desk.batch(key).answers]
    assert any(one.came is not None for one in found)
    assert all("<think>" not in (one.text or "") for one in found)
