"""Scores that are made of log-probabilities in the event: decided, held with a reason, and derived again from the record."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from streamer import wiring
from streamer.cli import main
from streamer.settings.settings import load_settings
from tests.integration.audit.alone import verify_bundle
from tests.integration.audit.attacker import breaking_in, rebuild_outcomes
from tests.integration.audit.history import Scribe, export, verify
from tests.migrated import migrated

if TYPE_CHECKING:
    from pathlib import Path


def event(name: str, *logprobs: float | None) -> bytes:
    responses: list[dict[str, Any]] = [
        {"id": f"r{i}", "text": f"answer {i}" if i < 2 else " "} | ({} if one is None else {"logprob": one})
        for i, one in enumerate(logprobs)
    ]
    return json.dumps(
        {
            "schema": "streamer.responses.v1",
            "gate": "likely",
            "batch_id": name,
            "prompt": "Where?",
            "responses": responses,
        }
    ).encode()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMER_ENCODER_NAME", "none")
    monkeypatch.setenv("STREAMER_DATABASE_URL", "sqlite:///record.db")
    monkeypatch.setenv("COLUMNS", "500")
    monkeypatch.chdir(tmp_path)
    migrated(load_settings())
    assert main(["gate", "create", "likely", "--scorer", "logprob", "--audit-probability", "1"]) == 0
    return tmp_path


def test_a_gate_scores_by_log_probabilities_and_holds_without_them(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with wiring.open_store(load_settings()) as store:
        whole = event("whole", -0.25, -0.0, None)
        Scribe(store, load_settings()).deliver(
            [whole, event("missing", -0.25, None, None), whole, event("whole", -0.5, -0.0, None)]
        )
        with store._database.reading() as connection:
            found = connection.exec_driver_sql(
                "SELECT b.batch_id, d.reason, d.encoder, r.score, r.raw_energy FROM decisions d"
                " JOIN batches b ON b.id = d.batch JOIN responses r ON r.batch = d.batch ORDER BY b.id, r.position"
            ).all()
            kinds = [
                kind
                for (kind,) in connection.exec_driver_sql("SELECT kind FROM outcomes ORDER BY leaf_index")
            ]
        (audited,) = store.answers.audited(
            "likely", settings=store.gates.get("likely").settings, older_than=wiring.now()
        )
    assert found == [
        ("whole", "no_threshold", "event", round(math.exp(-0.25), 6), -0.25),
        ("whole", "no_threshold", "event", 1.0, 0.0),
        ("whole", "no_threshold", "event", 0.0, None),
        *[("missing", "no_logprob", "none", None, None)] * 3,
    ]
    assert kinds == ["decision", "decision", "duplicate", "conflict"], (
        "what it is made of is part of the content"
    )
    assert [one.blank for one in audited.responses] == [False, False, True]
    assert main(["audit", "show", "missing", "--gate", "likely"]) == 0
    assert "brought no log-probabilities" in capsys.readouterr().out

    export(load_settings(), here / "bundle")
    for report in (verify(load_settings()), verify_bundle(here / "bundle", [], None)):
        assert not report.faults
        assert report.counts["batches whose scores follow from recorded numbers"] == 1
    with breaking_in("sqlite:///record.db") as connection:
        connection.exec_driver_sql("UPDATE responses SET raw_energy = -0.75 WHERE batch = 1 AND position = 0")
        rebuild_outcomes(connection)
    assert [one.detail for one in verify(load_settings()).faults] == [
        "the score of response 'r0' does not follow from the number it is made of"
    ]


@pytest.mark.parametrize("logprob", [0.1, -10_001, "-1"])
def test_a_number_that_is_no_log_probability_is_refused(here: Path, logprob: Any) -> None:
    with wiring.open_store(load_settings()) as store:
        Scribe(store, load_settings()).deliver([event("odd", -1.0, logprob)])
        with store._database.reading() as connection:
            (letter,) = connection.exec_driver_sql("SELECT code, detail FROM dead_letters")
    assert letter.code == "invalid_field"
    assert "$.responses[1].logprob" in letter.detail


def test_doctor_and_tables_know_log_probabilities(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor"])
    assert "needs encoder" not in capsys.readouterr().out
    assert main(["gate", "set", "likely", "--encoder", "any@12345678"]) == 2
    assert "--encoder must be event with --scorer logprob" in capsys.readouterr().err
    (here / "answers.csv").write_text(
        "prompt,answer,logprob,severity\nWhere?,Here,-0.1,0\nWhere?,There,0.5,1\n", "utf-8"
    )
    assert main(["evaluate", "answers.csv"]) == 2
    assert "0.5 is not a mean of natural logarithms" in " ".join(capsys.readouterr().err.split()).replace(
        "'", ""
    )
