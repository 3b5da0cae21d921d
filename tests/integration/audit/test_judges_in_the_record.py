"""What a judge was asked and said is sealed: with the decision whose score it made, or in the control log beside its label."""

import json
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from streamer import wiring
from streamer.audit.rescoring import Rescorer
from streamer.settings.settings import Settings
from streamer.store import prune
from streamer.store.log import leaves
from streamer_verify.command import complete_lines
from tests.integration.audit.alone import verify_bundle
from tests.integration.audit.attacker import breaking_in, rebuild_outcomes
from tests.integration.audit.history import KEYS, Scribe, event, export, settings_for, verify
from tests.integration.audit.judged import BY_A_JUDGE, attempts_of
from tests.integration.judge.test_judge_scores import Model, judge_at, scores_at
from tests.migrated import migrated
from tests.run_folder import made_once


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The record of `judged_record` on SQLite, to be changed; written once a run."""

    def make(folder: Path) -> None:
        folder.mkdir()
        settings = settings_for(f"sqlite:///{folder / 'record.db'}", folder)
        migrated(settings)
        judged_record(settings)

    shutil.copytree(made_once("judged", make), tmp_path, dirs_exist_ok=True)
    return settings_for(f"sqlite:///{tmp_path / 'record.db'}", tmp_path)


def judged_record(settings: Settings) -> None:
    """Write a record of two gates that a judge scores, one of which keeps no texts, with a judge's labels beside."""
    with Model() as model, judge_at(model) as judge, wiring.open_store(settings) as store:
        scribe = Scribe(store, settings, judge=scores_at(model, judge))
        scribe.gate("judged", unit="best", severity_kind="judge", **BY_A_JUDGE)
        scribe.gate("forgetful", unit="best", keep_texts=False, **BY_A_JUDGE)
        scribe.checkpoint()
        for name in ("judged", "forgetful"):
            scribe.deliver(event(name, n) for n in range(3))
        attempts = attempts_of(judge, "judged", range(3))
        assert store.judgements.keep(attempts, kind="judge", labeller=judge.id, source="judge") == 3
        scribe.checkpoint()


def found(settings: Settings, directory: Path, name: str = "bundle") -> list[tuple[str, str]]:
    """What `audit verify` names; both verifiers of bundles have to name as much, or nothing either."""
    report = verify(settings)
    export(settings, directory / name)
    outside = complete_lines((directory / "checkpoints.jsonl").read_bytes())
    alone = verify_bundle(directory / name, KEYS, outside)
    assert bool(alone.faults) == bool(report.faults)
    return [(one.place, one.detail) for one in report.faults]


def change(settings: Settings, statement: str) -> None:
    with breaking_in(settings.database.url) as connection:
        assert connection.exec_driver_sql(statement).rowcount, statement


def test_each_judgement_is_in_a_chain_and_its_words_fit_their_seal(
    migrated_database_url: str, tmp_path: Path
):
    settings = settings_for(migrated_database_url, tmp_path)
    judged_record(settings)
    assert found(settings, tmp_path) == []
    report = verify(settings)
    with wiring.open_store(settings) as store, store._database.reading() as connection:
        scored, labelled = (
            connection.exec_driver_sql(
                f"SELECT count(*) FROM judgements WHERE gate = 'judged' AND {which} for_score"
            ).scalar_one()
            for which in ("", "NOT")
        )
        assert store.evidence.log_faults() == []
    assert (scored > 8, labelled) == (True, 3)
    assert report.counts["judgements"] == scored + labelled
    assert report.notes == ()
    export(settings, tmp_path / "without", texts=False)
    alone = verify_bundle(tmp_path / "without", KEYS, None)
    assert (alone.faults, alone.counts["judgements"]) == ([], 0)


@pytest.mark.parametrize(
    ("statement", "where", "said"),
    [
        ("UPDATE judgements SET {changed} WHERE {one}", "scored", "what its judge was asked or said was changed"),
        ("UPDATE judgements SET {changed} WHERE {one}", "labelled", "what its judge was asked or said was changed"),
        ("UPDATE judgements SET mark = 12.5 WHERE {one}", "scored", "the decision is not what was recorded"),
        ("UPDATE judgements SET mark = 12.5 WHERE {one}", "labelled", "it is not what was recorded"),
        ("UPDATE judgements SET judge = 'kind/rubric-00000000' WHERE {one}", "scored", "not what was recorded"),
        ("DELETE FROM judgements WHERE {one}", "scored", "the decision is not what was recorded"),
        ("DELETE FROM judgements WHERE {one}", "labelled", "the row that was sealed here is gone"),
        ("UPDATE judgements SET batch_id = 'batch-1' WHERE {one}", "scored", "the decision is not what was recorded"),
        ("UPDATE judgements SET response_id = 'no' WHERE {one}", "scored", "the decision is not what was recorded"),
        ("UPDATE judgements SET batch_id = 'none' WHERE {one}", "scored", "belongs to no log"),
        ("UPDATE judgements SET label = 1 WHERE {one}", "scored", "belongs to no log"),
        (
            "UPDATE judgements SET exchanges = NULL, salt = NULL, erased_at = judged_at WHERE {one}",
            "scored",
            "its texts are erased, and no erasure on record allows it",
        ),
        (
            "UPDATE judgements SET exchanges = NULL, salt = NULL, erased_at = judged_at WHERE {one}",
            "labelled",
            "its texts are erased, and no erasure on record allows it",
        ),
    ],
)  # fmt: skip
def test_whatever_is_changed_of_a_judgement_is_named(
    settings: Settings, tmp_path: Path, statement: str, where: str, said: str
):
    which = "for_score" if where == "scored" else "NOT for_score"
    one = f"id = (SELECT min(id) FROM judgements WHERE gate = 'judged' AND batch_id = 'batch-0' AND {which})"
    changed = "exchanges = replace(exchanges, 'score', 'Score')"
    change(settings, statement.format(one=one, changed=changed))
    named = found(settings, tmp_path)
    assert any(said in detail for _, detail in named), named


def test_marks_that_were_sealed_anew_still_have_to_make_the_score(settings: Settings, tmp_path: Path):
    """Without a checkpoint: somebody rewrites what the judge said, and computes the chain anew."""
    change(
        settings,
        "UPDATE judgements SET mark = 99 WHERE for_score AND gate = 'judged' AND batch_id = 'batch-0'",
    )
    with breaking_in(settings.database.url) as connection:
        rebuild_outcomes(connection)
    assert any("is not its judge's mark" in detail for _, detail in found(settings, tmp_path))


def test_words_that_a_gate_never_kept_cannot_be_invented(settings: Settings, tmp_path: Path):
    change(
        settings,
        "UPDATE judgements SET exchanges = '{}', salt = zeroblob(32), erased_at = NULL WHERE gate = 'forgetful'",
    )
    named = found(settings, tmp_path)
    assert named
    assert {detail for _, detail in named} == {"what its judge was asked or said was changed"}


def test_a_rubric_that_was_sealed_anew_is_not_that_of_its_name(settings: Settings):
    with breaking_in(settings.database.url) as connection:
        row = (
            connection.exec_driver_sql(
                "SELECT id, exchanges, salt FROM judgements WHERE for_score AND gate = 'judged' AND mark > 0"
            )
            .mappings()
            .first()
        )
        words = json.loads(row["exchanges"])
        words["messages"][0]["content"] = "Whatever it says, it is good."
        connection.execute(
            sa.text("UPDATE judgements SET exchanges = :w, content_mac = :m WHERE id = :i"),
            {"w": json.dumps(words), "m": leaves.judgement_mac(row["salt"], words), "i": row["id"]},
        )
        rebuild_outcomes(connection)
    assert [one.detail for one in verify(settings, rescorer=Rescorer({})).faults if one.check == "score"] == [
        "the judge was asked by another rubric than it names"
    ]


def test_another_rubric_is_not_the_gates(settings: Settings, tmp_path: Path):
    change(
        settings, "UPDATE judgements SET judge = 'grader/rubric-00000000' WHERE for_score AND gate = 'judged'"
    )
    with breaking_in(settings.database.url) as connection:
        rebuild_outcomes(connection)
    assert any("its judge is not the one that it names" in detail for _, detail in found(settings, tmp_path))


def test_words_that_an_erasure_on_record_erased_are_no_fault(settings: Settings, tmp_path: Path):
    later = wiring.now() + timedelta(days=200)
    assert prune(settings.database.url, older_than=timedelta(days=190), now=later).judgements > 10
    assert found(settings, tmp_path) == []
    assert verify(settings).counts["judgements erased"] > 10
    change(settings, "UPDATE judgements SET erased_at = '2027-01-02 03:04:05.000006' WHERE for_score")
    assert any(place.startswith("judgements") for place, _ in found(settings, tmp_path, "again"))


def test_a_judgement_of_a_decision_that_no_judge_scored_belongs_to_no_chain(
    settings: Settings, tmp_path: Path
):
    with wiring.open_store(settings) as store:
        scribe = Scribe(store, settings)
        scribe.gate("gram")
        scribe.deliver([event("gram", 0)])
    names = "judge, judged_at, mark, subscores, requests, input_tokens, output_tokens, exchanges, salt, content_mac, for_score"
    change(
        settings,
        f"INSERT INTO judgements (gate, batch_id, attempt, response_id, {names}) SELECT 'gram', 'batch-0', 1, 'r0', {names}"
        " FROM judgements WHERE for_score AND mark > 0 AND salt IS NOT NULL LIMIT 1",
    )
    assert any(place.startswith("judgements") for place, _ in found(settings, tmp_path))
