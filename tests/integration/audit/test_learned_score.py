"""A gate that changes to a learned score, from its first batch to a verified bundle; on SQLite, with the real encoder."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamer import wiring
from streamer.audit.rescoring import Rescorer
from streamer.audit.standalone import verify_bundle
from streamer.cli import main
from streamer.gates.batch_key import BatchKey
from streamer.gates.folds import fold_of
from streamer.journal import LabelRevision
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.scoring.learned import LearnedModel
from streamer.settings.settings import load_settings
from streamer.wiring.learning import ScoreLearner
from tests.integration.audit.alone import in_javascript, need_node, what_is_missing
from tests.integration.audit.attacker import batch_of, breaking_in, rebuild_control, rebuild_outcomes
from tests.integration.audit.history import KEYS, PRIVATE, PUBLIC, Scribe, export, settings_for, verify
from tests.migrated import migrated
from tests.services.requirements import in_ci

pytestmark = pytest.mark.usefixtures("encoder_loaded_once")

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamer.scoring.encoders.encoder import Encoder
    from streamer.settings.settings import Settings

LABELLED = 260
SORRY = (
    "I am sorry, but I do not have enough information to answer this question with any confidence.",
    "I am sorry, but I do not have enough information to answer this question with confidence.",
    "I am sorry, I do not have enough information to answer this question with any confidence.",
)
TOWNS = ("Paris", "Lyon", "Rome", "Oslo", "Bern", "Riga", "Kyiv", "Cairo", "Lima", "Quito")


def is_bad(number: int) -> bool:
    """Whether the answers of a batch are worthless: they agree best of all, which misleads Gram energy."""
    return random.Random(number).random() < 0.4


def batch(number: int, model: str = "") -> bytes:
    draw = random.Random(number)
    draw.random()
    town = draw.choice(TOWNS)
    texts = (
        draw.sample(SORRY, 3)
        if is_bad(number)
        else draw.sample([f"{town}.", f"It is {town}.", f"The answer: {town}", f"{town}, I think"], 3)
    )
    return json.dumps(
        {
            "schema": "streamer.responses.v1",
            "gate": "towns",
            "batch_id": f"batch-{number}",
            "prompt": f"question {number}",
            "responses": [
                {"id": f"r{i}", "text": text, "model": model or ("small", "large")[(number + i) % 2]}
                for i, text in enumerate(texts)
            ],
        }
    ).encode()


def labels(numbers: range) -> list[LabelRevision]:
    """Of every answer, as a person would label them; one in fifty is labelled wrongly."""
    return [
        LabelRevision(
            key=BatchKey("towns", f"batch-{number}", 1),
            response_id=f"r{i}",
            severity=float(is_bad(number) != (number % 50 == 7)),
            raw_severity=None,
            kind="human",
            labeller="ana",
            labelled_at=wiring.now(),
        )
        for number in numbers
        for i in range(3)
    ]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An empty database."""
    return f"sqlite:///{tmp_path / 'record.db'}"


@pytest.fixture
def gate(
    url: str, real_encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Settings, CachedEncoder]:
    """A gate with labels, calibrated by Gram energy; the command line finds its record and its keys."""
    for name in [name for name in os.environ if name.startswith("STREAMER_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    settings = settings_for(url, tmp_path)
    (tmp_path / "key.pem").write_text(PRIVATE)
    (tmp_path / "key.pub").write_text(PUBLIC)
    monkeypatch.setenv("STREAMER_DATABASE_URL", url)
    monkeypatch.setenv("STREAMER_AUDIT_PRIVATE_KEY_FILE", "key.pem")
    monkeypatch.setenv("STREAMER_AUDIT_CHECKPOINT_FILE", "checkpoints.jsonl")
    monkeypatch.setenv("STREAMER_ENCODER_NAME", real_encoder.identity.id.partition("@")[0])
    migrated(settings)
    encoder = CachedEncoder(real_encoder)
    with wiring.open_store(settings) as store:
        store.encoders.register(encoder.identity)
        scribe = Scribe(store, settings, encoder)
        scribe.gate(
            "towns",
            encoder=encoder.identity.id,
            embeddings="refuse",
            dimension=None,
            unit="best",
            alpha=0.1,
            pending="worst",
        )
        scribe.deliver(map(batch, range(LABELLED)))
        store.labels.add(labels(range(LABELLED - 40)))
    return settings, encoder


def test_a_proposal_in_a_file_is_adopted_as_the_record_fits_it_and_no_other(
    gate: tuple[Settings, CachedEncoder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, encoder = gate
    with wiring.open_store(settings) as store:
        store.labels.add(labels(range(LABELLED - 40, LABELLED)))
    assert main(["score", "fit", "towns", "--out", "proposal.json"]) == 0
    proposal = json.loads((tmp_path / "proposal.json").read_text())
    model = LearnedModel.of_text(proposal["model"])
    changed = replace(model, intercept=model.intercept + 1.0)
    edited = proposal | {"scorer": changed.name, "model": changed.text}
    (tmp_path / "edited.json").write_text(json.dumps(edited))
    capsys.readouterr()
    assert main(["score", "adopt", "towns", "edited.json"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"the record's labels fit {model.name}, and the proposal is {changed.name}" in said
    with wiring.open_store(settings) as store:
        assert store.gates.get("towns").settings.scorer == "gram"
        assert store.score_fits.newest("towns") is None
    for _ in range(2):  # the same call again continues where one was ended
        assert main(["score", "adopt", "towns", "proposal.json", "--by", "ana"]) == 0
    with wiring.open_store(settings) as store:
        assert store.gates.get("towns").settings.scorer == model.name
        fitted = store.score_fits.newest("towns")
        assert fitted is not None
        assert (fitted.outcome, fitted.model, fitted.by) == ("proposed", model, "ana")
        assert (fitted.labelled, fitted.after) == (LABELLED, proposal["after"])
        Scribe(store, settings, encoder).checkpoint()
    assert verify(settings).faults == ()


def test_a_promise_among_what_ships_is_refused_for_a_score_that_found_texts_gone(
    gate: tuple[Settings, CachedEncoder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, _ = gate
    with wiring.open_store(settings) as store:
        store.labels.add(labels(range(LABELLED - 40, LABELLED)))
        salt = store.gates.get("towns").audit_salt
    assert main(["score", "fit", "towns", "--out", "proposal.json"]) == 0
    gone = next(n for n in range(LABELLED) if fold_of(salt, "towns", f"batch-{n}") == "calibrate")
    with breaking_in(settings.database.url) as connection:
        row = batch_of(connection, "towns", gone)
        connection.exec_driver_sql(f"UPDATE responses SET text = NULL WHERE batch = {row}")
    assert main(["score", "adopt", "towns", "proposal.json", "--by", "ana"]) == 0
    assert main(["gate", "set", "towns", "--promise", "among-shipped"]) == 0
    capsys.readouterr()
    assert main(["recalibrate", "towns"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "1 batches of its audit sample cannot be scored again" in said
    assert "the promise of method selective has no safe side" in said
    assert main(["gate", "set", "towns", "--promise", "per-prompt"]) == 0
    assert main(["recalibrate", "towns"]) == 0


def test_a_gate_changes_to_a_learned_score(
    gate: tuple[Settings, CachedEncoder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, encoder = gate
    assert main(["score", "fit", "towns"]) == 2
    assert "label 30 more" in capsys.readouterr().err
    assert main(["gate", "set", "towns", "--scorer", "learned"]) == 0
    stopping = [False]
    learner = ScoreLearner(load_settings(), stopping=lambda: stopping[0])
    with wiring.open_store(settings) as store:
        store.labels.add(labels(range(LABELLED - 40, LABELLED)))
        scribe = Scribe(store, settings, encoder)
        scribe.recalibrate("towns")
        by_gram = store.policies.newest("towns")
        scribe.deliver(map(batch, range(1000, 1060)))
        assert _shipped(settings, 1000) <= 6  # what agrees best is worthless
        store.labels.add(labels(range(1000, 1030)))
        stopping[0] = True
        assert learner.after_run(store, "towns") is None
        stopping[0] = False
        assert learner.after_run(store, "towns") == "proposed"
        assert learner.after_run(store, "towns") is None  # before there are half as many labels again
        fitted = store.score_fits.proposal("towns")
        assert fitted is not None
        assert fitted.labelled == LABELLED + 30
        assert fitted.model is not None
        assert store.policies.newest("towns").version == by_gram.version  # nothing changes by itself

    assert main(["score", "fit", "towns", "--out", "proposal.json"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "adopt towns proposal.json" in said
    assert "large, small; a batch with an answer of another one is held" in said
    proposal = json.loads((tmp_path / "proposal.json").read_text())
    assert proposal["after"] > proposal["before"] + 0.2
    assert fitted.model.models == ("large", "small")
    assert (proposal["scorer"], proposal["after"]) == (fitted.model.name, fitted.after)
    with wiring.open_store(settings) as store:
        store.labels.add(labels(range(1030, 1060)))
    assert main(["score", "adopt", "towns", "--json", "--by", "ana"]) == 0
    adopted = json.loads(capsys.readouterr().out)
    assert adopted["scorer"] == proposal["scorer"]

    with wiring.open_store(settings) as store:
        newest, salt = store.policies.newest("towns"), store.gates.get("towns").audit_salt
        assert newest.settings.scorer == proposal["scorer"]
        assert newest.calibration_run is not None
        assert newest.version == by_gram.version + 2
        read = store.calibration.inputs(newest.calibration_run)
        assert {fold_of(salt, "towns", group.key.batch_id) for group in read} == {"calibrate"}
        drawn = [f"batch-{n}" for n in (*range(LABELLED), *range(1000, 1060))]
        assert len(read) == sum(fold_of(salt, "towns", one) == "calibrate" for one in drawn)
        scribe = Scribe(store, settings, encoder)
        scribe.deliver(map(batch, range(2000, 2060)))
        fine = sum(not is_bad(number) for number in range(2000, 2060))
        assert _shipped(settings, 2000) >= fine - 3
        scribe.deliver([batch(3000, "newer")])
        store.labels.add(labels(range(2000, 2060)))
        (status,) = store.recalibration_status.statuses(now=wiring.now())
        assert status.new_groups == 60  # of both folds
        scribe.recalibrate("towns")  # by decisions of both scores
        again = store.policies.newest("towns")
        assert again.calibration_run is not None
        assert len(store.calibration.inputs(again.calibration_run)) > len(read)
        scribe.checkpoint()

    def rescorer() -> Rescorer:
        return Rescorer({encoder.identity.id: encoder.embed})

    report = verify(settings, rescorer=rescorer())
    assert report.faults == ()
    # Every decision, and once more each that was decided by Gram energy.
    assert report.counts["batches scored again"] == 2 * (LABELLED + 60) + 60
    assert main(["audit", "show", "batch-3000"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "was not fitted on (newer; it was on those of large, small)" in told
    assert "r0 by newer: not scored" in told
    for command in (
        ["score", "show", "towns"],
        ["risk", "towns"],
        ["gate", "show", "towns"],
        ["threshold", "show", "towns"],
        ["score", "fit", "towns"],
    ):
        assert main(command) in (0, 1), command
    assert '"coefficients"' not in capsys.readouterr().out
    assert main(["audit", "export", "--out", "bundle.zip"]) == 0
    (tmp_path / "verify_bundle.py").write_bytes(Path(verify_bundle.__file__).read_bytes())
    done = subprocess.run(
        [sys.executable, "-I", "-S", "verify_bundle.py", "bundle.zip", "--public-key", "key.pub"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # With embeddings the one file makes every score again: those of decisions, and those that came later.
    assert main(["audit", "embed", "bundle.zip", "--out", "embeddings.jsonl"]) == 0
    assert main(["audit", "embed", "bundle.zip", "--out", "embeddings.jsonl"]) == 2
    embeddings = (tmp_path / "embeddings.jsonl").read_bytes()
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-I",
                "-S",
                "verify_bundle.py",
                "bundle.zip",
                "--public-key",
                "key.pub",
                "--json",
            ),
            *("--embeddings", "embeddings.jsonl"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    alone = json.loads(done.stdout)
    assert (alone["faults"], done.returncode) == ([], 0)
    assert alone["counts"]["batches scored again"] == report.counts["batches scored again"]
    assert "batches not scored again" not in alone["counts"]
    faults, notes = _scored_alone(tmp_path / "bundle.zip", embeddings.splitlines()[1:])
    assert faults == []
    assert any("has no embedding of one of their texts" in one for one in notes)
    if what_is_missing() is None or in_ci():
        need_node()
        second = in_javascript(tmp_path / "bundle.zip", None, keys=(tmp_path / "key.pub").read_text())
        assert second["faults"] == []
        assert second["counts"]["models of learned scores"] > 0

    # Somebody rewrites the whole record: a coefficient, or a score, and every hash and name that depends on it.
    adopted_model = fitted_in_force(settings)
    forged = replace(
        adopted_model, coefficients=(adopted_model.coefficients[0] + 2.0, *adopted_model.coefficients[1:])
    )
    for number, (changes, said) in enumerate(
        (
            (("UPDATE gate_revisions SET model = replace(model, '0.', '0.1') WHERE model IS NOT NULL",), "its model is not learned@"),
            (
                (
                    *(
                        f"UPDATE {table} SET scorer = '{forged.name}' WHERE scorer = '{adopted_model.name}'"
                        for table in ("gate_revisions", "decisions", "learned_scores")
                    ),
                    f"UPDATE gate_revisions SET model = '{forged.text}' WHERE scorer = '{forged.name}'",
                ),
                "from its text follows",
            ),
            (("UPDATE responses SET score = 0.123456 WHERE batch = {later} AND position = 1",), "is 0.123456, and from its text follows"),
            (("UPDATE learned_scores SET score = 0.123456 WHERE batch = {first}",), "is 0.123456, and from its text follows"),
        )
    ):  # fmt: skip
        bundle = _forged(settings, tmp_path / f"forged-{number}", changes)
        faults, _ = _scored_alone(bundle, embeddings.splitlines())
        assert any(said in one["detail"] for one in faults), (said, faults[:3])

    fit = next(n for n in range(LABELLED) if fold_of(salt, "towns", f"batch-{n}") == "fit")
    calibrate = next(n for n in range(LABELLED) if fold_of(salt, "towns", f"batch-{n}") == "calibrate")
    for change, said in (
        ("UPDATE score_fits SET after = 1", "it is not what was recorded"),
        ("UPDATE learned_scores SET score = 0 WHERE batch = {calibrate}", "its decision has another score"),
        ("UPDATE learned_scores SET score = 0 WHERE batch = {calibrate}", "differs by"),
        (
            "UPDATE calibration_inputs SET batch = {fit} WHERE batch = {calibrate} AND run > 1",
            "whose labels may fit a learned score and never calibrate it",
        ),
        (
            "UPDATE gate_revisions SET model = replace(model, '0.', '0.1') WHERE revision = 3",
            "model must be that of learned@",
        ),
    ):
        with breaking_in(settings.database.url) as connection:
            rows = {
                "fit": batch_of(connection, "towns", fit),
                "calibrate": batch_of(connection, "towns", calibrate),
            }
            connection.exec_driver_sql(change.format_map(rows))
        found = verify(settings, rescorer=rescorer() if said == "differs by" else None)
        assert any(said in fault.detail for fault in found.faults), found.faults


def fitted_in_force(settings: Settings) -> LearnedModel:
    """The model of the gate's newest revision."""
    with wiring.open_store(settings) as store:
        text = store.gates.get("towns").settings.model
    assert text is not None
    return LearnedModel.of_text(text)


def _scored_alone(bundle: Path, embeddings: Iterable[bytes]) -> tuple[list[dict[str, str]], list[str]]:
    """What the one file finds in a bundle: faults of models and scores, and its notes."""
    opened, scores = verify_bundle.Bundle(bundle), verify_bundle.Verifier([])
    verify_bundle.check_scores(opened, scores, embeddings)
    others = verify_bundle.verify_bundle(opened, KEYS, None).faults  # no more than a hundred
    return [*scores.faults, *(one for one in others if one["check"] == "policy")], list(scores.notes.values())


def _forged(settings: Settings, folder: Path, changes: Iterable[str]) -> Path:
    """A bundle of a copy of the record that somebody changed who can write everything."""
    folder.mkdir()
    with breaking_in(settings.database.url) as connection:
        rows = {"{first}": batch_of(connection, "towns", 0), "{later}": batch_of(connection, "towns", 2001)}
    database = sqlite3.connect(settings.database.url.removeprefix("sqlite:///"))
    database.execute("VACUUM INTO ?", (str(folder / "record.db"),))
    database.close()
    copy = settings_for(f"sqlite:///{folder / 'record.db'}", folder)
    with breaking_in(copy.database.url) as connection:
        for change in changes:
            for name, row in rows.items():
                change = change.replace(name, str(row))
            connection.exec_driver_sql(change)
        rebuild_control(connection)
        rebuild_outcomes(connection)
    export(copy, folder / "bundle.zip")
    return folder / "bundle.zip"


def _shipped(settings: Settings, first: int) -> int:
    """How many of the 60 batches from a number on were shipped."""
    names = ", ".join(f"'batch-{number}'" for number in range(first, first + 60))
    with breaking_in(settings.database.url) as connection:
        return int(
            connection.exec_driver_sql(
                "SELECT count(*) FROM decisions JOIN batches ON batches.id = decisions.batch"
                f" WHERE outcome = 'ship' AND batch_id IN ({names})"
            ).scalar_one()
        )
