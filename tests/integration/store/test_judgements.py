"""What a judge said is kept beside the label that came of it, cannot be changed, and loses its texts when asked to."""

from datetime import timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
import sqlalchemy as sa

from streamer.errors import UnfitText
from streamer.gates.batch_key import BatchKey
from streamer.labels.filling import Attempted
from streamer.labels.judge.parsing import ASPECT_NAMES, JudgeVerdict
from streamer.labels.judge.record import JudgeFailure, Judgement
from streamer.labels.judge.rubric import JudgeCase
from streamer.labels.llm.record import Exchange, Message, TokenUsage
from streamer.labels.severity import LabelTask, Severity
from streamer.store import prune
from tests.integration.store.conftest import World

ASKED = (Message("system", "Grade."), Message("user", "Straße \x00 巴黎 \U0001f5fc"))
PARAMETERS = MappingProxyType({"model": "grader", "temperature": 0.2, "seed": 7})
GIVERS = {"kind": "judge", "labeller": "grader/rubric-1", "source": "judge"}


def exchange(reply: str | None, **changes: Any) -> Exchange:
    fields: dict[str, Any] = {
        "messages": ASKED, "parameters": PARAMETERS, "reply": reply, "model": "grader-2026",
        "fingerprint": "fp_1", "finish_reason": "stop", "usage": TokenUsage(400, 50),
        "seconds": 0.25,
    }  # fmt: skip
    return Exchange(**(fields | changes))


def attempted(batch_id: str, *, mark: float | None = 88.6, response_id: str = "b") -> Attempted:
    task = LabelTask(
        key=BatchKey("support-bot", batch_id, 1), response_id=response_id, kind="judge", prompt="q",
        response="a",
    )  # fmt: skip
    tried = exchange(None, usage=None, problem="rate_limited", detail="429: later")
    again = (*ASKED, Message("assistant", "hm"), Message("user", "Once more."))
    judgement = Judgement(
        case=JudgeCase("q", "a"),
        judge="grader/rubric-1",
        verdict=None if mark is None else JudgeVerdict(mark, dict.fromkeys(ASPECT_NAMES, 1.5)),
        failure=JudgeFailure("malformed_reply", "it is none") if mark is None else None,
        exchanges=(tried, exchange("hm \x00 \ud800"), exchange('{"score": 88.6}', messages=again)),
        cost=Decimal("0.00018"),
    )
    value = judgement.severity
    return Attempted(
        task=task,
        severity=None if value is None else Severity(value, value),
        failure="malformed_reply: it is none" if value is None else None,
        judgement=judgement,
    )


@pytest.fixture
def judged(world: World) -> World:
    world.store.gates.revise("support-bot", {"severity_kind": "judge"}, by="ana", reason="")
    world.policy = world.store.policies.newest("support-bot")
    batches = (world.decision(n, batch_id) for n, batch_id in enumerate("abc"))
    world.keep(*batches)
    return world


def test_a_label_and_its_judgement_come_together(judged: World) -> None:
    assert judged.store.judgements.keep([attempted("a"), attempted("b", mark=None)], **GIVERS) == 1
    assert [task.key.batch_id for task in judged.store.labels.queue()] == ["b", "c"]
    labels = judged.rows("SELECT id, severity, raw_severity, kind, labeller, source FROM label_revisions")
    assert [tuple(row)[1:] for row in labels] == [(0.114, 0.114, "judge", "grader/rubric-1", "judge")]
    (kept,) = judged.store.judgements.of(BatchKey("support-bot", "a", 1), "b")
    assert (kept.label, kept.mark, kept.failure, kept.judge) == (labels[0][0], 88.6, None, "grader/rubric-1")
    assert (kept.requests, kept.input_tokens, kept.output_tokens, kept.cost) == (3, 800, 100, 0.00018)
    assert kept.subscores == dict.fromkeys(ASPECT_NAMES, 1.5)
    assert kept.intact
    assert kept.exchanges is not None
    wanted = attempted("a").judgement
    assert wanted is not None
    # Only what no JSON text can hold is written otherwise, and visibly.
    assert kept.exchanges[1].reply == "hm \x00 \\ud800"
    assert (kept.exchanges[0], kept.exchanges[2]) == (wanted.exchanges[0], wanted.exchanges[2])
    (failed,) = judged.store.judgements.of(BatchKey("support-bot", "b", 1))
    expected = (None, None, None, "malformed_reply")
    assert (failed.label, failed.mark, failed.subscores, failed.failure) == expected


def test_who_was_labelled_meanwhile_gets_no_second_label(judged: World) -> None:
    judged.store.labels.add([judged.label(0.5, "a", kind="judge"), judged.label(0.5, "b", kind="human")])
    assert judged.store.judgements.keep([attempted("a"), attempted("b"), attempted("c")], **GIVERS) == 2
    assert judged.store.judgements.keep([attempted("c", mark=1.0)], **GIVERS) == 0
    labels = judged.rows("SELECT batch_id, kind, severity FROM label_revisions ORDER BY id")
    assert [tuple(row) for row in labels] == [
        ("a", "judge", 0.5),
        ("b", "human", 0.5),
        ("b", "judge", 0.114),
        ("c", "judge", 0.114),
    ]
    (skipped,) = judged.store.judgements.of(BatchKey("support-bot", "a", 1))
    assert (skipped.label, skipped.mark) == (None, 88.6)


def test_nothing_is_kept_of_what_cannot_be_kept_whole(judged: World) -> None:
    stray = attempted("x" * 201)
    with pytest.raises(UnfitText, match="batch_id has 1 to 200 characters"):
        judged.store.judgements.keep([attempted("a"), stray], **GIVERS)
    assert judged.store.labels.counts() == {}
    assert judged.store.judgements.of(BatchKey("support-bot", "a", 1)) == []


def test_a_judgement_cannot_be_changed_or_not_unseen(judged: World) -> None:
    judged.store.judgements.keep([attempted("a")], **GIVERS)
    for change in (
        "UPDATE judgements SET mark = 1",
        "UPDATE judgements SET exchanges = '{}'",
        "UPDATE judgements SET exchanges = NULL, salt = NULL, erased_at = '2026-12-01 00:00:00', mark = 1",
    ):
        with pytest.raises(sa.exc.IntegrityError, match="append-only"):
            judged.store._database.writing(lambda connection, sql=change: connection.execute(sa.text(sql)))
    (kept,) = judged.store.judgements.of(BatchKey("support-bot", "a", 1))
    assert kept.intact is True
    changed = "replace(CAST(exchanges AS TEXT), '88.6', '99.9')"
    cast = "" if judged.store._database.sqlite else "::json"
    judged.tamper(f"UPDATE judgements SET exchanges = {changed}{cast}")
    (kept,) = judged.store.judgements.of(BatchKey("support-bot", "a", 1))
    assert kept.intact is False


def test_texts_are_erased_for_good_and_the_rest_stays(judged: World) -> None:
    judged.store.judgements.keep([attempted("a")], **GIVERS)
    judged.clock.now += timedelta(days=200)
    judged.store.judgements.keep([attempted("b")], **GIVERS)
    key = BatchKey("support-bot", "a", 1)
    seal = judged.rows("SELECT content_mac FROM judgements WHERE batch_id = 'a'")
    assert prune(judged.url, older_than=timedelta(days=190), now=judged.clock()).judgements == 1
    (erased,) = judged.store.judgements.of(key)
    assert (erased.exchanges, erased.intact) == (None, None)
    assert (erased.mark, erased.requests, erased.input_tokens) == (88.6, 3, 800)
    assert erased.erased_at is not None
    stored = judged.rows("SELECT exchanges, salt, content_mac FROM judgements WHERE batch_id = 'a'")
    assert [tuple(row) for row in stored] == [(None, None, seal[0][0])]
    (other,) = judged.store.judgements.of(BatchKey("support-bot", "b", 1))
    assert other.intact
    with pytest.raises(sa.exc.IntegrityError, match="append-only"):
        judged.store._database.writing(
            lambda connection: connection.execute(
                sa.text("UPDATE judgements SET erased_at = '2027-01-01 00:00:00' WHERE batch_id = 'a'")
            )
        )
