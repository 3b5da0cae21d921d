"""`streamer score` where there is nothing to propose, and where what is proposed is not for this gate; on SQLite."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from streamer import LabelledGroup, wiring
from streamer.calibration.calibrators.selective import calibrate_selective
from streamer.calibration.calibrators.selective_mean import calibrate_selective_mean
from streamer.cli import WRONG_USAGE, main
from streamer.gates.batch_key import BatchKey
from streamer.gates.policy import GateRevision
from streamer.gates.settings import GateSettings
from streamer.journal import LabelRevision
from streamer.labels.learning import DrawnAnswer, DrawnBatch, Lesson, learn, score_again
from streamer.scoring.encoders.identity import EncoderIdentity
from streamer.scoring.fitting import Worth
from streamer.scoring.learned import LearnedModel
from streamer.scoring.registry import SCORER_NAMES
from tests.integration.audit.history import Scribe, settings_for
from tests.migrated import migrated

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from streamer.scoring.encoders.encoder import Encoder
    from streamer.store import Store

MODEL = LearnedModel(
    features=("gram",), means=(0.5,), scales=(0.1,), coefficients=(1.0,), intercept=0.0, order="gram", prompts=130
)  # fmt: skip

IDENTITY = EncoderIdentity(name="made-up", revision="local", weight_hash="ab" * 32, dimension=8)


def embed(batches: Sequence[Sequence[str]]) -> list[NDArray[np.float32]]:
    """A direction for each text, by its words."""
    return [
        np.array(
            [np.random.default_rng(sum(map(ord, text))).normal(size=16) for text in texts], dtype=np.float32
        )
        for texts in batches
    ]


def drawn(count: int, *, kept: bool = True) -> list[DrawnBatch]:
    """Labelled batches whose labels have nothing to do with their answers."""
    made = []
    for number in range(count):
        draw = random.Random(number)
        words = [draw.choice(["one", "two", "three", "four"]) for _ in range(4)]
        made.append(
            DrawnBatch(
                row=number,
                batch_id=f"batch-{number}",
                encoded=True,
                answers=tuple(
                    DrawnAnswer(
                        id=f"r{i}",
                        text=word if kept else None,
                        drawn=i == 0,
                        severity=float(draw.random() < 0.3) if i == 0 else None,
                    )
                    for i, word in enumerate(words)
                ),
            )
        )
    return made


def revision(**settings: object) -> GateRevision:
    return GateRevision(
        gate="g", revision=1, settings=GateSettings(**{"encoder": "e@12345678", "alpha": 0.1} | settings), seed=1,
        audit_salt=bytes(32), created_at=wiring.now(), created_by="ana", reason="test",
    )  # fmt: skip


def test_a_score_is_refused_where_labels_have_nothing_to_do_with_answers() -> None:
    lesson = learn(revision(), drawn(300), embed)
    assert not lesson.worth.shown
    assert lesson.fit + lesson.calibrate == 300
    assert lesson.model.prompts == lesson.fit
    assert lesson.model.order == "gram"
    assert learn(revision(unit="response"), drawn(260), embed).model.order == "own"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"unit": "batch"}, "units best and response"),
        ({"scorer": "clusters"}, "begins with the scorer gram"),
        ({"label_floor": 0.5}, "label floor 0.5"),
        ({"encoder": "external:e", "embeddings": "accept", "dimension": 8}, "come with events"),
    ],
)
def test_a_gate_that_cannot_have_one_is_told_why(settings: dict[str, object], said: str) -> None:
    with pytest.raises(Exception, match=said):
        learn(revision(**settings), drawn(300), embed)


def test_texts_that_are_gone_teach_nothing_and_count_at_every_threshold() -> None:
    with pytest.raises(
        Exception, match="label 250 more; 260 more have labels, and their texts are not stored"
    ):
        learn(revision(), drawn(260, kept=False), embed)
    (scores,) = score_again(MODEL, drawn(3, kept=False), embed)
    assert scores == {row: dict.fromkeys(("r0", "r1", "r2", "r3"), 1.0) for row in range(3)}
    (scores,) = score_again(MODEL, drawn(3), embed)
    assert all(0 < score < 1 for found in scores.values() for score in found.values())


def test_answers_of_a_model_that_the_fit_has_not_seen_are_no_proof_of_what_ships() -> None:
    """In service they are held: were they counted as shipped, good ones would hide what is wrong with the others."""
    knows = replace(
        MODEL, features=("gram", "model=small"), means=(0.5, 0.5), scales=(0.1, 0.5), coefficients=(1.0, 0.0), models=("small",)
    )  # fmt: skip
    batches = [
        replace(
            one,
            answers=tuple(
                replace(
                    answer,
                    model="newer" if one.row % 3 else "small",
                    severity=float(one.row % 3 == 0 and one.row % 2 == 0) if answer.drawn else None,
                )
                for answer in one.answers
            ),
        )
        for one in drawn(300)
    ]
    scores = {row: found for some in score_again(knows, batches, embed) for row, found in some.items()}
    for one in batches:
        assert (max(scores[one.row].values()) > 0) == (one.answers[0].model == "small")
    groups = [
        LabelledGroup(
            one.batch_id,
            ("r0",),
            np.array([scores[one.row]["r0"]]),
            np.array([one.answers[0].severity], dtype=np.float64),
        )
        for one in batches
    ]
    wrong = np.concatenate([one.severities for one in groups if one.scores[0] > 0])
    assert wrong.mean() == 0.5
    assert calibrate_selective(groups, alpha=0.3, seed=1).state == "closed"
    cut = calibrate_selective_mean(groups, alpha=0.3, seed=1).value
    assert sum(float(one.scores[0]) > cut for one in groups) < 30, "200 are good, of a model that is held"


def test_a_proposal_that_is_not_for_this_gate_is_refused(
    real_encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith("STREAMER_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path / 'record.db'}"
    monkeypatch.setenv("STREAMER_DATABASE_URL", url)
    settings = settings_for(url, tmp_path)
    migrated(settings)
    with wiring.open_store(settings) as store:
        store.encoders.register(real_encoder.identity)
        Scribe(store, settings).gate(
            "g", encoder=real_encoder.identity.id, embeddings="refuse", dimension=None
        )
        store.labels.add(
            [
                LabelRevision(
                    key=BatchKey("g", "nobody", 1), response_id="r", severity=0.0, raw_severity=None,
                    kind="human", labeller="ana", labelled_at=wiring.now(),
                )
            ]
        )  # fmt: skip
    assert main(["score", "fit", "g", "--out", "p.json"]) == 2
    assert "label 250 more" in capsys.readouterr().err
    assert not (tmp_path / "p.json").exists()
    proposal = {
        "format": "streamer.score.v1", "gate": "g", "scorer": MODEL.name, "model": MODEL.text, "worth_having": True,
    }  # fmt: skip
    for change, said in (
        ({"gate": "other"}, "it is for the gate 'other'"),
        ({"format": "x"}, "it is no streamer.score.v1"),
        ({"worth_having": False}, "not worth having"),
        ({"model": MODEL.text.replace("0.1", "0.2")}, "its model is learned@"),
        ({"model": "{}"}, "a model must be an object"),
        ({"model": MODEL.text.replace("0.1", "1" + 400 * "0")}, "a model has parts of another type"),
    ):
        (tmp_path / "p.json").write_text(json.dumps(proposal | change))
        assert main(["score", "adopt", "g", "p.json"]) == 2
        assert said in capsys.readouterr().err
    (tmp_path / "p.json").write_text(100_000 * "[")
    assert main(["score", "adopt", "g", "p.json"]) == 2
    assert "p.json is no proposal for gate g" in " ".join(capsys.readouterr().err.split())
    assert main(["score", "adopt", "g", "nowhere.json"]) == 2
    assert main(["gate", "set", "g", "--scorer", "learned@0123456789abcdef"]) == 2
    assert "streamer score fit" in capsys.readouterr().err
    with wiring.open_store(settings) as store:
        assert store.policies.newest("g").version == 1


def test_a_fit_is_on_record_and_the_next_one_waits_for_half_as_many_labels_again(
    migrated_sqlite_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMER_DATABASE_URL", migrated_sqlite_url)
    settings = settings_for(migrated_sqlite_url, tmp_path)
    with wiring.open_store(settings) as store:
        store.encoders.register(IDENTITY)
        Scribe(store, settings).gate("g", encoder=IDENTITY.id, embeddings="refuse", dimension=None)
    assert main(["score", "show", "g"]) == 0
    assert "never by itself" in capsys.readouterr().out
    assert main(["gate", "set", "g", "--scorer", "learned", "--learn-score", "off"]) == 2
    assert main(["gate", "set", "g", "--scorer", "learned"]) == 0
    assert main(["gate", "set", "g", "--label-floor", "0.5"]) == 2
    assert "learn-score must be off: its label floor" in capsys.readouterr().err

    def shown() -> dict[str, object]:
        assert main(["score", "show", "g", "--json"]) == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    assert shown() == {
        "gate": "g", "scorer": "gram", "learn_score": "propose", "labelled": 0, "fits_at": 250, "proposed": None, "newest": None,
    }  # fmt: skip
    with wiring.open_store(settings) as store:
        gate = store.gates.get("g")
        useless, useful = lesson(gain=0.0), lesson(gain=0.1)
        assert (
            store.score_fits.record(gate, None, labelled=251, why="all labels say the same", by="r")
            == "refused"
        )
        assert (
            store.score_fits.record(gate, useless, labelled=300, why=useless.worth.said, by="r") == "refused"
        )
    found = shown()
    assert (found["fits_at"], found["proposed"]) == (450, None)
    assert main(["score", "adopt", "g"]) == 2
    assert "no score is proposed" in capsys.readouterr().err
    with wiring.open_store(settings) as store:
        assert (
            store.score_fits.record(gate, useful, labelled=450, why=useful.worth.said, by="r") == "proposed"
        )
        (status,) = store.recalibration_status.statuses(now=wiring.now())
        assert status.score_proposed
    assert shown()["proposed"] == MODEL.name
    for command in (["score", "show", "g"], ["threshold", "show", "g"]):
        assert main(command) == 0
        said = capsys.readouterr()
        assert "streamer score adopt g" in " ".join((said.out + said.err).split()), command
    assert main(["score", "reject", "g", "--reason", "too little", "--by", "ana"]) == 0
    assert main(["score", "reject", "g", "--reason", "too little", "--by", "ana"]) == 2
    capsys.readouterr()
    found = shown()
    assert (found["fits_at"], found["proposed"]) == (675, None)
    assert isinstance(newest := found["newest"], dict)
    assert (newest["outcome"], newest["reason"], newest["by"]) == ("rejected", "too little", "ana")
    # Labels of another kind: what was fitted says nothing of them.
    with wiring.open_store(settings) as store:
        store.score_fits.record(gate, useful, labelled=700, why=useful.worth.said, by="r")
        store.gates.revise("g", {"severity_kind": "lexical"}, by="ana", reason="test")
        assert store.score_fits.proposal("g") is None
        sealed = [line["row"]["outcome"] for line in lines(store) if line["kind"] == "score_fits"]
    assert sealed == ["refused", "refused", "proposed", "rejected", "proposed"]
    assert shown()["fits_at"] == 250
    assert main(["score", "adopt", "g"]) == 2
    assert "other settings" in capsys.readouterr().err


def lesson(*, gain: float) -> Lesson:
    return Lesson(model=MODEL, worth=Worth(gram=0.4, learned=0.4 + gain, error=0.01), fit=130, calibrate=130)


def test_a_proposal_that_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wiring, "fit_score", lambda *_: lesson(gain=0.1))
    assert main(["score", "fit", "g", "--out", str(tmp_path / "nowhere" / "p.json")]) == 2
    assert "cannot write" in capsys.readouterr().err


def lines(store: Store) -> list[dict[str, Any]]:
    with store.evidence.snapshot() as snapshot:
        return list(snapshot.control())


@pytest.mark.parametrize(
    ("misleads", "marked", "best"), [(True, False, None), (False, False, "gram"), (True, True, "logprob")]
)
def test_a_new_gate_gets_the_scorer_that_ships_clearly_most_on_a_file(
    misleads: bool,
    marked: bool,
    best: str | None,
    real_encoder: Encoder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in [name for name in os.environ if name.startswith("STREAMER_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMER_DATABASE_URL", f"sqlite:///{tmp_path / 'record.db'}")
    assert main(["db", "upgrade"]) == 0
    rng = np.random.default_rng(3)
    with (tmp_path / "labelled.jsonl").open("w") as file:
        for number in range(120):
            fine = number % 2 == 0
            # Answers that are fine say the same words; their embeddings agree, or disagree.
            spread = 2.0 if fine == misleads else 0.05
            centre = rng.normal(size=8)
            responses = [
                {
                    "text": "Paris" if fine and not marked else f"town {number} {i}",
                    "label": 0.0 if fine else 1.0,
                    "embedding": (centre + spread * rng.normal(size=8)).tolist(),
                }
                | ({"logprob": -0.01 if fine else -3.0, "meta": {"judge_score": 0.5}} if marked else {})
                for i in range(4)
            ]
            line = {"question_id": f"q{number}", "question": "?", "references": [], "responses": responses}
            file.write(json.dumps(line) + "\n")
    create = ["gate", "create", "g", "--alpha", "0.1", "--scorer", "best-of:labelled.jsonl"]
    assert main([*create, "--promise", "among-shipped-on-average"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    with wiring.open_store(settings_for(f"sqlite:///{tmp_path / 'record.db'}", tmp_path)) as store:
        scorer = store.gates.get("g").settings.scorer
    assert f"The scorer is {scorer}: " in said
    assert (scorer == "gram") is not misleads
    assert best is None or scorer == best
    assert f"{len(SCORER_NAMES) + marked} scorers were compared. " in said
    assert "unit best and method selective-mean: gram " in said
    assert ("The judge's marks in labelled.jsonl are left out: " in said) is marked
    assert "calibrate the gate on others" in said


def test_scores_without_texts_are_not_taken_for_gram_energies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMER_DATABASE_URL", f"sqlite:///{tmp_path / 'record.db'}")
    assert main(["db", "upgrade"]) == 0
    (tmp_path / "scores.csv").write_text(
        "prompt_id,score,severity\n" + "".join(f"{n},{n / 100},{n % 2}\n" for n in range(100))
    )
    assert main(["gate", "create", "g", "--scorer", "best-of:scores.csv"]) == WRONG_USAGE
    assert "scores.csv: its texts are not stored, so mean-cosine, " in " ".join(
        capsys.readouterr().err.split()
    )
    assert main(["gate", "create", "g", "--scorer", "best-of:"]) == WRONG_USAGE
    assert "best-of: needs a file" in " ".join(capsys.readouterr().err.split())
