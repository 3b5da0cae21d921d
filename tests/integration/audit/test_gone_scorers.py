"""A gate on record whose scorer is a signal now: it holds everything, and says which command moves it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamer import wiring
from streamer.cli import main
from streamer.gates.settings import GateSettings
from streamer.scoring.registry import GONE
from streamer.settings.settings import load_settings
from tests.integration.audit.alone import verify_bundle
from tests.integration.audit.history import Scribe, export, verify
from tests.migrated import migrated


@pytest.mark.parametrize("unit", ["best", "response"])
@pytest.mark.parametrize("scorer", ["logprob", "rouge-1"])
def test_a_gate_of_a_scorer_that_went_holds_until_it_is_moved(
    scorer: str,
    unit: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("STREAMER_DATABASE_URL", "sqlite:///record.db")
    monkeypatch.setenv("COLUMNS", "500")
    monkeypatch.chdir(tmp_path)
    assert scorer in GONE
    migrated(load_settings())
    assert main(["gate", "create", "old", "--scorer", scorer]) == 2, "no new gate has it"
    capsys.readouterr()
    encoder = "event" if scorer == "logprob" else "all-MiniLM-L6-v2@53aa5117"
    settings = GateSettings(scorer=scorer, encoder=encoder, unit=unit)
    event = {
        "schema": "streamer.responses.v1",
        "gate": "old",
        "batch_id": "x",
        "prompt": "Where?",
        "responses": [{"id": "a", "text": "Here.", "logprob": -0.1}, {"id": "b", "text": "There."}],
    }
    with wiring.open_store(load_settings()) as store:
        store.gates.create("old", settings, by="ana", reason="it was so")
        Scribe(store, load_settings()).deliver([json.dumps(event).encode()])
        with store._database.reading() as connection:
            (held,) = connection.exec_driver_sql("SELECT outcome, reason FROM decisions")
    assert tuple(held) == ("abstain", "scorer_failed")
    export(load_settings(), tmp_path / "bundle")
    for report in (verify(load_settings()), verify_bundle(tmp_path / "bundle", [], None)):
        assert not report.faults

    moved = ["gate", "set", "old", *(("--method", "full") if unit == "best" else ("--scorer", "gram"))]
    for command in (["gate", "show", "old"], ["threshold", "show", "old"], ["doctor"]):
        main(command)
        said = " ".join(capsys.readouterr().out.split())
        assert f"no gate is scored by {scorer} any more" in said
        assert f"`streamer {' '.join(moved)}` moves it" in said
    assert main(moved) == 0, capsys.readouterr().err
    with wiring.open_store(load_settings()) as store:
        now = store.policies.newest("old").settings
        assert (now.scorer, now.encoder == "event") == ("choice" if unit == "best" else "gram", False)
