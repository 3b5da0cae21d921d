"""Embeddings that events bring, in the record: whose they are said to be, why they were not taken, and what to do."""

import base64
import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamer import wiring
from streamer.audit.rescoring import Rescorer
from streamer.cli import main
from streamer.settings.settings import load_settings
from tests.integration.audit.alone import verify_bundle
from tests.integration.audit.attacker import breaking_in, rebuild_outcomes
from tests.integration.audit.history import KEYS, Scribe, event, export, verify
from tests.migrated import migrated
from tests.told import Told


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a record in which publishers brought embeddings."""
    monkeypatch.setenv("STREAMER_ENCODER_NAME", "none")
    monkeypatch.setenv("STREAMER_DATABASE_URL", "sqlite:///record.db")
    monkeypatch.setenv("COLUMNS", "500")
    monkeypatch.chdir(tmp_path)
    migrated(load_settings())
    with wiring.open_store(load_settings()) as store:
        scribe = Scribe(store, load_settings())
        scribe.gate("trusting")
        scribe.gate("usual", encoder="any@12345678", embeddings="refuse")
        changes: list[dict[str, Any]] = [{}, {"embedding_encoder": "another"}, {"embedding_encoder": None}]
        scribe.deliver(event("trusting", number, **one) for number, one in enumerate(changes))
        scribe.deliver(event("usual", number) for number in range(3))
    return tmp_path


def test_a_decision_says_whose_embeddings_it_is_from(here: Path, told: Told):
    for batch, gate, words in (
        (0, "trusting", "the embeddings came with the event, as those of external:made-up: no worker ran it"),
        (1, "trusting", "were not said to be of external:made-up, or are not of dimension 8"),
        (2, "trusting", "were not said to be of external:made-up, or are not of dimension 8"),
        (1, "usual", "it brought embeddings, and the gate refuses those that it does not make"),
    ):
        found = " ".join(told("audit", "show", f"batch-{batch}", "--gate", gate).out.split())
        assert words in found, (batch, gate)
    report = verify(load_settings())
    assert report.faults == ()
    assert report.counts["decisions"] == 6
    with breaking_in("sqlite:///record.db") as connection:
        connection.exec_driver_sql("UPDATE decisions SET embedding_source = 'encoder' WHERE batch = 1")
        rebuild_outcomes(connection)
    (fault,) = verify(load_settings()).faults
    wanted = "the published event does not have the recorded scorer"
    assert fault.detail == wanted, "it says that the embeddings came with it"


def test_embeddings_in_base64_are_recorded_like_lists(here: Path):
    """A repeat is one in either form, other numbers are a conflict, and what was recorded verifies."""
    listed = json.loads(event("trusting", 7))
    for response in listed["responses"]:
        response["embedding"] = np.asarray(response["embedding"], "<f4").tolist()
    packed = copy.deepcopy(listed)
    for response in packed["responses"]:
        response["embedding"] = base64.b64encode(np.asarray(response["embedding"], "<f4").tobytes()).decode()
    first, again = json.dumps(packed).encode(), json.dumps(listed).encode()
    rounded = event("trusting", 7)  # its numbers have four decimals, which float32 does not hold exactly
    cut_off = json.dumps(packed).replace(packed["responses"][1]["embedding"], "AAAA").encode()
    with wiring.open_store(load_settings()) as store:
        Scribe(store, load_settings()).deliver([first, first, again, rounded, cut_off])
        with store._database.reading() as connection:
            said = connection.exec_driver_sql("SELECT kind FROM outcomes ORDER BY leaf_index").scalars().all()
            source = connection.exec_driver_sql(
                "SELECT embedding_source, reason FROM v_decisions WHERE batch_id = 'batch-7'"
            ).one()
            letters = connection.exec_driver_sql("SELECT code, detail FROM dead_letters ORDER BY code").all()
    assert said[-5:] == ["decision", "duplicate", "duplicate", "conflict", "dead_letter"]
    assert source == ("event", "no_threshold")
    assert [letter.code for letter in letters] == ["bad_embedding", "conflicting_content"]
    assert "'r1' has 3 bytes, not a multiple of 4; base64 must hold" in letters[0].detail
    assert verify(load_settings()).faults == ()
    rescorer = Rescorer({"external:made-up": lambda _: []})
    again_scored = verify(load_settings(), rescorer=rescorer)
    assert again_scored.faults == ()
    assert "batches scored again" not in again_scored.counts, "the record has no embeddings"
    export(load_settings(), here / "bundle.zip")
    alone = verify_bundle(here / "bundle.zip", KEYS, None)
    assert (alone.faults, alone.counts["decisions"]) == ([], 7)


def test_doctor_says_what_to_do_about_embeddings_that_are_not_taken(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    with wiring.open_store(load_settings()) as store:
        assert store.reports.brought_embeddings("trusting") == (3, 2)
        assert store.reports.brought_embeddings("usual", newest=2) == (2, 2)
        assert store.reports.brought_embeddings("nobody") == (0, 0)
    main(["doctor"])
    told = " ".join(capsys.readouterr().out.split())
    assert "gate usual: needs encoder any@12345678, workers with these settings run none" in told
    assert "set STREAMER_ENCODER_NAME=any@12345678, or streamer gate set usual --embeddings accept" in told
    assert "gate usual: 3 recent batches brought embeddings, which it refuses" in told
    assert "gate trusting: 2 of 3 recent batches that brought embeddings were held" in told
    assert "publish embedding_encoder 'external:made-up' with embeddings of dimension 8" in told
    assert "gate trusting: needs encoder" not in told, "no worker needs one"


def test_a_batch_that_nothing_embedded_names_no_encoder(here: Path):
    """Records of earlier versions name the gate's, which is no fault; other encoders are, and so is none with scores."""
    blank = [{"id": "a", "text": " "}, {"id": "b", "text": ""}]
    with wiring.open_store(load_settings()) as store:
        Scribe(store, load_settings()).deliver([event("usual", 7, responses=blank, embedding_encoder=None)])
        named = "SELECT encoder, embedding_source FROM v_decisions WHERE batch_id = 'batch-7'"
        with store._database.reading() as connection:
            assert connection.exec_driver_sql(named).one() == ("none", "none")
    assert verify(load_settings()).faults == ()
    for batch, encoder, fault in (
        ("batch-7", "any@12345678", False),
        ("batch-7", "another@12345678", True),
        ("batch-0", "none", True),
    ):
        with breaking_in("sqlite:///record.db") as connection:
            stored = connection.exec_driver_sql(
                "SELECT d.batch, d.encoder, d.action_value FROM decisions d JOIN batches b ON b.id = d.batch"
                " WHERE b.batch_id = ? AND b.gate = ?",
                (batch, "usual" if batch == "batch-7" else "trusting"),
            ).one()
            told = json.loads(stored.action_value)
            told["scorer"]["encoder"] = encoder
            change = "UPDATE decisions SET encoder = ?, action_value = ? WHERE batch = ?"
            connection.exec_driver_sql(change, (encoder, json.dumps(told).encode(), stored.batch))
            rebuild_outcomes(connection)
        found = [one.detail for one in verify(load_settings()).faults]
        assert found == (["its encoder is not that of policy 1"] if fault else []), (batch, encoder)
        with breaking_in("sqlite:///record.db") as connection:
            connection.exec_driver_sql(change, (stored.encoder, stored.action_value, stored.batch))
            rebuild_outcomes(connection)
