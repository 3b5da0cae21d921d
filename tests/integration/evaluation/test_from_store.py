"""The same tables from the record as from the file: decided by the real decider, labelled by the labels topic."""

import csv
import io
import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import streamer
from streamer import wiring
from streamer.cli import main
from streamer.clouds.cloud import Cloud, cloud_labels, cloud_message
from streamer.clouds.cloud_files import read_clouds
from streamer.clouds.simulation import simulate_clouds
from streamer.console.what_if import Questions
from streamer.errors import UsageError
from streamer.events.labels import encode_label
from streamer.frames.results import spread_text
from streamer.research.evaluation import (
    DataSet,
    Evaluation,
    Options,
    evaluate,
    evaluated,
    read_data_set,
    scored_data_sets,
)
from streamer.research.evaluation.outputs import responses_csv
from streamer.research.evaluation.stored import stored_data_set
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.scoring.signals.signal_list import SignalList
from streamer.settings.settings import Settings, load_settings
from tests.integration.audit.history import Scribe
from tests.migrated import migrated
from tests.told import Told

ASKED = {"alphas": (0.1, 0.3), "splits": 5}
QUESTIONS, ANSWERS = 30, 5


@pytest.fixture(scope="module")
def clouds_file(tmp_path_factory) -> Path:
    """Simulated clouds with blank answers here and there, and one question that has nothing else."""
    path = tmp_path_factory.mktemp("clouds") / "support.jsonl"
    lines = []
    for q, cloud in enumerate(simulate_clouds(seed=5, clouds=QUESTIONS, responses=ANSWERS)):
        responses = [
            {
                "text": " " if q == 3 or (q + i) % 13 == 0 else r.text,
                "label": r.severity,
                "meta": {"label_kind": "human"},
            }
            for i, r in enumerate(cloud.responses)
        ]
        lines.append(
            json.dumps({"question_id": cloud.question_id, "question": cloud.question, "responses": responses})
        )
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def of_the_file(clouds_file, tmp_path_factory) -> tuple[DataSet, Evaluation, Path]:
    """The file, its figures under every score, and the cache that was made for them."""
    cache = tmp_path_factory.mktemp("figures") / "cache"
    (read,) = scored_data_sets([read_data_set(clouds_file)], cache=cache)
    return read, evaluate(clouds_file, cache=cache, scorers="all", **ASKED), cache


def stream(settings: Settings, file: Path, encoder: CachedEncoder, **gate: object) -> list[Cloud]:
    """Publish the clouds to a gate that audits everything, and their labels behind them."""
    migrated(settings)
    clouds = list(read_clouds(file))
    with wiring.open_store(settings) as store:
        scribe = Scribe(store, settings, encoder=encoder)
        chosen = {"encoder": encoder.identity.id, "unit": "response", "audit_draws": ANSWERS} | gate
        scribe.gate("bot", severity_kind="human", **chosen)
        scribe.deliver(cloud_message(cloud, "bot", wiring.limits(settings)) for cloud in clouds)
        labels = [label for cloud in clouds for label in cloud_labels(cloud, "bot", "file", wiring.now())]
        scribe.deliver([encode_label(label) for label in labels], topic="labels")
    return clouds


def cuts(result):
    """The gates that cut one score, which the record has; all signals need the texts."""
    return tuple(row for row in result.gates if row.method != "full")


def from_store(settings: Settings):
    with wiring.open_store(settings) as store:
        chosen = store.gates.get("bot").settings
        later = wiring.now() + timedelta(seconds=1)
        batches = store.answers.audited("bot", settings=chosen, older_than=later)
        return stored_data_set(batches, "bot", settings=chosen)


def test_the_record_and_the_file_have_the_same_figures_to_the_last_bit(
    database_url, clouds_file, of_the_file, tmp_path, real_encoder, monkeypatch, capsys
):
    settings = load_settings(database={"url": database_url})
    stream(settings, clouds_file, CachedEncoder(real_encoder))

    read, of_file, cache = of_the_file
    shutil.copytree(cache, tmp_path / "cache")
    data = from_store(settings)
    of_store = evaluated([data], Options(alphas=ASKED["alphas"], splits=ASKED["splits"]))
    assert data.digest == of_file.data_sets[0].digest, "the same questions, answers and severities"

    one, other = of_file.data_sets[0], of_store.data_sets[0]
    assert other.gates == cuts(one)
    assert other.stability == one.stability
    assert other.ranking == tuple(row for row in one.ranking if row.scorer == "gram")
    assert other.compared == tuple(row for row in one.compared if row.scorer == "gram")
    assert other.mean_severity["response"] == one.mean_severity["response"]
    assert (other.questions, other.blank) == (QUESTIONS, one.blank)
    assert one.blank > ANSWERS
    for notes in (one.notes, other.notes):
        assert any(
            note.startswith("23 % of your prompts have answers that the encoder cannot read; ")
            for note in notes
        )
    assert any(0 < row.ship_rate.mean < 1 for row in one.gates), "there is something to agree about"

    answers = [
        {row["question_id"] + row["response_id"]: row for row in csv.DictReader(io.StringIO(text))}
        for text in (responses_csv(of_file, [read]), responses_csv(of_store, [data]))
    ]
    assert answers[0].keys() == answers[1].keys()
    for name in ("severity", "gram_energy", "gram_energy_raw", "queue_median", "blank"):
        assert [row[name] for row in answers[0].values()] == [row[name] for row in answers[1].values()], name

    # the command does the same, and computes what the record does not hold from the texts that it does
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMER_DATABASE_URL", database_url)
    words = ["evaluate", "--from-store", "bot", "--alpha", "0.1", "--alpha", "0.3", "--splits", "5"]
    assert main([*words, "--scorers", "all", "--cache", "cache", "--processes", "1", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["data_sets"]
    assert told["source"] == "gate bot"
    assert [row["exposure"]["mean"] for row in told["gates"]] == [row.exposure.mean for row in one.gates]
    wanted = [row.ship_rate.mean for row in one.compared]
    assert [row["ship_rate"]["mean"] for row in told["compared"]] == wanted


def test_a_gate_that_keeps_hashes_only_is_evaluated_on_its_scores(
    sqlite_database_url, clouds_file, tmp_path, real_encoder, monkeypatch, told: Told
):
    settings = load_settings(database={"url": sqlite_database_url})
    stream(settings, clouds_file, CachedEncoder(real_encoder), keep_texts=False)
    of_file = evaluate(clouds_file, cache=tmp_path / "cache", **ASKED)
    data = from_store(settings)
    found = evaluated([data], Options(alphas=ASKED["alphas"], splits=ASKED["splits"]))
    assert found.data_sets[0].gates == cuts(of_file.data_sets[0])
    assert "right" not in json.dumps([cloud.texts for cloud in data.clouds])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMER_DATABASE_URL", sqlite_database_url)
    assert "texts are not stored" in told("evaluate", "--from-store", "bot", "--scorers", "all", status=2).err


def test_the_unit_best_has_labels_of_best_answers_alone(
    sqlite_database_url, clouds_file, tmp_path, real_encoder
):
    settings = load_settings(database={"url": sqlite_database_url})
    stream(settings, clouds_file, CachedEncoder(real_encoder), unit="best")
    of_file = evaluate(clouds_file, cache=None, units=["best"], **ASKED)
    found = evaluated([from_store(settings)], Options(alphas=ASKED["alphas"], splits=5))
    (result,) = found.data_sets
    assert list(result.mean_severity) == ["best"]
    assert any("Unit response is left out" in note for note in result.notes)
    exposures = [row.exposure for row in cuts(of_file.data_sets[0])]
    assert [row.exposure for row in result.gates] == exposures, "labels that nobody asked for play no part"


def test_a_gate_without_an_audit_has_nothing_to_evaluate(sqlite_database_url, clouds_file, real_encoder):
    settings = load_settings(database={"url": sqlite_database_url})
    stream(settings, clouds_file, CachedEncoder(real_encoder), audit_probability=0.0)
    with pytest.raises(UsageError, match=r"0 audited batches .*audit probability is 0"):
        from_store(settings)
    with wiring.open_store(settings) as store, pytest.raises(UsageError, match="no gate"):
        store.gates.get("nobody")


def test_one_file_has_one_answer_through_every_door(
    sqlite_database_url, tmp_path, real_encoder, monkeypatch, told: Told
):
    """From the file and from the record of a gate that decided and audited all of it."""
    cached, file = CachedEncoder(real_encoder), tmp_path / "answers.jsonl"
    file.write_text(
        "".join(
            json.dumps(
                {
                    "question_id": cloud.question_id,
                    "question": cloud.question,
                    "responses": [
                        {"text": one.text, "label": one.severity, "meta": {"label_kind": "human"}}
                        for one in cloud.responses
                    ],
                }
            )
            + "\n"
            for cloud in simulate_clouds(seed=8, clouds=90, responses=ANSWERS)
        )
    )
    settings = load_settings(database={"url": sqlite_database_url})
    signals = {"signals": SignalList().text, "method": "full", "scorer": "choice", "dimension": 384}
    stream(settings, file, cached, unit="best", alpha=0.1, **signals)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMER_DATABASE_URL", sqlite_database_url)

    def said(*words: str) -> dict[str, Any]:
        return json.loads(told(*words, "--json").out)

    def means(at: dict[str, Any]) -> list[float]:
        return [at[name]["mean"] for name in ("ship_rate", "exposure", "selective")]

    def full(found: dict[str, Any]) -> list[float]:
        (row,) = (one for one in found["data_sets"][0]["gates"] if one["method"] == "full")
        return [row[name]["mean"] for name in ("ship_rate", "promised", "shipped_severity")]

    expected = means(said("try", "answers.jsonl", "--alpha", "20%")["at"])
    assert 0 < expected[0] < 1
    asked = ("--alpha", "0.2", "--unit", "best", "--processes", "1")
    report = streamer.Gate(alpha=0.2, encoder=real_encoder).fit(file).report()
    what_if = said("what-if", "bot", "--alpha", "20%")
    with wiring.open_store(settings) as store:
        page = Questions(store, clock=wiring.now).answer("bot", {"about": "budget", "budget": "20"})
    doors = {
        "evaluate": full(said("evaluate", "answers.jsonl", *asked)),
        "evaluate --from-store": full(said("evaluate", "--from-store", "bot", *asked)),
        "report()": [one.mean for one in (report.at.ship_rate, report.at.exposure, report.at.selective)],
        "what-if": means(what_if["at"]),
    }
    for door, found in doors.items():
        assert found == pytest.approx(expected, rel=1e-9), door
    (half,) = (
        one
        for one in said("plan", "--data", "answers.jsonl", "--alpha", "0.2")["ladder"]
        if one["labels"] == 45
    )
    assert means({"ship_rate": half["served"], **half}) == pytest.approx(expected, rel=1e-9), "plan"
    own = means(said("try", "answers.jsonl", "--alpha", "10%")["at"])
    assert means(what_if["present"]) == pytest.approx(own, rel=1e-9)
    assert [row[2] for row in page["rows"][1:]] == [
        spread_text(getattr(report.at, name)) for name in ("ship_rate", "selective", "exposure")
    ]
