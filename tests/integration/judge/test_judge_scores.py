"""A judge's marks as a gate's scores: in time or held, within a budget, each word on record, and derived again."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from streamer import wiring
from streamer.audit.rescoring import Rescorer
from streamer.gates.batch_key import BatchKey
from streamer.journal import AnswersToMark
from streamer.labels.judge import JudgeClient, JudgeEndpoint, Judgement
from streamer.labels.judge.parsing import ASPECT_NAMES
from streamer.labels.judge.rubric import JudgeCase, judge_name
from streamer.labels.judge.scores import PAUSE_SECONDS, JudgeScores
from streamer.settings.settings import load_settings
from streamer.tracing import NO_TRACING, Tracing
from streamer_verify.bundle import Bundle
from streamer_verify.command import verify_bundle
from tests.faults.endpoint import GATE, Site, action
from tests.integration.audit.attacker import breaking_in, rebuild_outcomes
from tests.integration.audit.history import KEYS, export, verify
from tests.integration.judge.test_judge import material
from tests.services.openai_server import ChatReply, ChatRequest, OpenAIServer
from tests.unit.telemetry.test_traces import UNSAMPLED, Traced

PATIENCE = 240.0
SCORED_BY = f"judge:{judge_name('grader', None)}/00000000"
"""What a gate of the judge names in the place of an encoder."""


def marking(request: ChatRequest) -> ChatReply:
    """90 for what is sure, 20 for anything else."""
    share = 0.9 if "surely" in material(request)["candidate"] else 0.2
    points = {name: points * share for name, points in ASPECT_NAMES.items()}
    return ChatReply(json.dumps({"score": 100 * share, "subscores": points}))


class Model(OpenAIServer):
    """A judge that a test can tell to be slow, or silent."""

    def __init__(self) -> None:
        super().__init__(lambda request: self.reply(request))
        self.reply: Callable[[ChatRequest], ChatReply] = marking


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as started:
        yield started


def scores_at(
    model: Model, judge: JudgeClient, clock: Callable[[], float] = time.monotonic, **bounds: Any
) -> JudgeScores:
    return JudgeScores(
        judge, name=SCORED_BY, clock=clock, **{"seconds": PATIENCE, "per_minute": 100} | bounds
    )


def judge_at(model: Model, *, tracing: Tracing = NO_TRACING, **settings: Any) -> JudgeClient:
    settings = {"timeout": PATIENCE, "tries": 1} | settings
    return JudgeClient(JudgeEndpoint(base_url=model.url, model="grader", **settings), tracing=tracing)


def ask(*answers: str, prompt: str = "Where?") -> AnswersToMark:
    return AnswersToMark(prompt=prompt, answers=answers)


def test_an_answer_is_judged_once_in_a_process_and_on_record_with_each_batch(model: Model) -> None:
    with judge_at(model) as judge:
        scores = scores_at(model, judge)
        first, twin = scores.of([ask("surely here", "perhaps", " "), ask("surely here", "surely here")])
        (later,) = scores.of([ask("perhaps", "surely here", prompt="Where?")])
        (other,) = scores.of([ask("perhaps", "no", prompt="When?")])
    assert first.marks == (90.0, 20.0, None)
    assert twin.marks == (90.0, 90.0)
    assert later.marks == (20.0, 90.0)
    assert other.marks == (20.0, 20.0)
    assert len(model.requests) == 4, "two answers to each of two prompts"
    assert scores.counts == {"marked": 4, "remembered": 4}
    assert scores.tokens == 4 * 450
    remembered = [one.remembered for marks in (first, twin, later) for _, one in marks.asked]
    assert remembered == [False, False, True, True, True, True]
    (_, told), (_, kept) = first.asked[0], twin.asked[0]
    assert told.exchanges == kept.exchanges
    assert (told.input_tokens, kept.input_tokens, kept.cost) == (400, 0, 0.0)


def test_what_has_no_mark_at_the_deadline_has_none_and_what_was_asked_is_kept(model: Model) -> None:
    released = threading.Event()

    def slow(request: ChatRequest) -> ChatReply:
        if "perhaps" in material(request)["candidate"]:
            released.wait(PATIENCE)
        return marking(request)

    model.reply = slow
    with judge_at(model) as judge:
        scores = scores_at(model, judge, seconds=1.0)
        sure, unsure = scores.of([ask("surely here", "surely there"), ask("surely where", "perhaps")])
        released.set()
        assert sure.marks == (90.0, 90.0)
        assert unsure.marks == (90.0, None)
        (_, failed) = unsure.asked[1]
        assert (failed.mark, failed.failure, failed.requests) == (None, "timed_out", 1)
        assert "perhaps" in json.dumps(failed.exchanges)
        (again,) = scores.of([ask("surely where", "perhaps")])
    assert again.marks == (90.0, 20.0)


def test_a_request_to_the_judge_is_traced_inside_its_record_and_links_to_several(model: Model) -> None:
    world = Traced()
    records = [world.record(b"", offset=offset) for offset in range(4)]
    unkept = world.record(b"", trace=UNSAMPLED, offset=4)
    world.traces.begin([*records, unkept])
    with judge_at(model, tracing=world.traces) as judge:
        scores = scores_at(model, judge)
        for number, some in enumerate(([records[0]], [records[1], unkept], records[2:], [unkept])):
            with world.traces.scoring(some):
                scores.of([ask(f"{number}")])
    world.traces.dropped([*records, unkept])
    asked = [span for span in world.spans if span.name == "chat grader"]
    processed = [
        span.context.span_id for span in world.spans if span.name.startswith("process") and span.context
    ]
    parents = [span.parent and span.parent.span_id for span in asked]
    assert parents == [processed[0], processed[1], None], "what is not kept is not told of"
    assert [[link.context.span_id for link in span.links] for span in asked] == [[], [], processed[2:]]
    sent = [request.headers.get("traceparent", "") for request in model.requests]
    wanted = [f"{span.context.span_id:016x}" for span in asked if span.context]
    assert [one[36:52] for one in sent[:3]] == wanted
    assert sent[3].endswith("-00")


def test_a_judge_that_is_away_is_not_asked_for_a_while(model: Model) -> None:
    now, status = [0.0], []
    model.reply = lambda _request: ChatReply(status=503)
    with judge_at(model) as judge:
        scores = scores_at(model, judge, clock=lambda: now[0], report_status=status.append)
        assert scores.of([ask("surely", "no")])[0].marks == (None, None)
        model.reply = marking
        assert scores.of([ask("surely", "no")])[0].marks == (None, None)
        assert len(model.requests) == 2
        now[0] += PAUSE_SECONDS
        assert scores.of([ask("surely", "no")])[0].marks == (90.0, 20.0)
    assert status == [False, True]
    assert scores.counts == {"failed": 2, "not_asked": 2, "marked": 2}


def test_the_budget_is_spent_on_whole_batches(model: Model) -> None:
    now = [0.0]
    with judge_at(model) as judge:
        scores = scores_at(model, judge, clock=lambda: now[0], per_minute=3)
        first, second, third = scores.of([ask("a", "b"), ask("c", "d"), ask("a", "surely")])
        assert (first.marks, second.marks, third.marks) == ((20.0, 20.0), (None, None), (20.0, 90.0))
        assert scores.of([ask("c", "d")])[0].marks == (None, None)
        now[0] += 61.0
        assert scores.of([ask("c", "d")])[0].marks == (20.0, 20.0)


@pytest.mark.parametrize(
    ("reply", "failures"),
    [
        pytest.param(ChatReply("no mark"), {"malformed_reply"}, id="a reminder"),
        pytest.param(ChatReply(status=503), {"server_error"}, id="further tries"),
    ],
)
def test_the_budget_counts_each_request_that_is_sent(
    model: Model, reply: ChatReply, failures: set[str]
) -> None:
    now = [0.0]
    model.reply = lambda _request: reply
    with judge_at(model, tries=4, first_delay=0.001) as judge:
        scores = scores_at(model, judge, clock=lambda: now[0], per_minute=3)
        (marks,) = scores.of([ask("a", "b", "c")])
        assert marks.marks == (None, None, None)
        assert {one.failure for _, one in marks.asked} == failures
        assert sum(one.requests for _, one in marks.asked) == len(model.requests) == 3
        now[0] += PAUSE_SECONDS
        model.reply = marking
        assert scores.of([ask("a")])[0].marks == (None,)
        assert len(model.requests) == 3
        now[0] += 60.0
        assert scores.of([ask("a")])[0].marks == (20.0,)


@pytest.mark.expected_errors(r"judge\.failed")
def test_what_was_sent_before_a_fault_counts(model: Model) -> None:
    class Failing:
        id = "judge"

        def in_time(self, cases: Sequence[JudgeCase], **bounds: Any) -> list[Judgement | None]:
            judge.in_time(cases, **bounds)
            raise RuntimeError("after the requests")

    now = [0.0]
    with judge_at(model) as judge:
        scores = JudgeScores(Failing(), name="judge:a", seconds=PATIENCE, per_minute=3, clock=lambda: now[0])
        assert scores.of([ask("a", "b")])[0].marks == (None, None)
        now[0] += PAUSE_SECONDS
        assert scores.of([ask("a", "b")])[0].marks == (None, None)
    assert len(model.requests) == 2


def test_an_unreadable_reply_is_no_mark_and_no_reason_to_pause(model: Model) -> None:
    def odd(request: ChatRequest) -> ChatReply:
        whole = material_or_none(request)
        return ChatReply("90\0\ud800") if whole is None or "odd" in whole["candidate"] else marking(request)

    model.reply = odd
    with judge_at(model) as judge:
        scores = scores_at(model, judge)
        (marks,) = scores.of([ask("odd", "surely")])
        assert marks.marks == (None, 90.0)
        (_, failed) = marks.asked[0]
        assert (failed.failure, failed.requests) == ("malformed_reply", 2)
        (alone,) = scores.of([ask("odd", "odd")])
        assert scores.of([ask("surely not", "no")])[0].marks == (90.0, 20.0)
    assert alone.marks == (None, None)
    assert [(one.failure, one.remembered, one.input_tokens) for _, one in alone.asked] == [
        ("malformed_reply", False, 2 * 400),
        ("malformed_reply", True, 0),
    ], "the same words are paid for once"


def material_or_none(request: ChatRequest) -> dict[str, Any] | None:
    return None if len(request.body["messages"]) > 2 else material(request)


# -- a gate's scores, end to end


@pytest.fixture
def site(tmp_path: Path, migrated_sqlite_url: str, model: Model) -> Iterator[Site]:
    yield from judged_site(tmp_path, migrated_sqlite_url, model)


@pytest.fixture
def any_site(tmp_path: Path, migrated_database_url: str, model: Model) -> Iterator[Site]:
    """On SQLite and on PostgreSQL."""
    yield from judged_site(tmp_path, migrated_database_url, model)


def judged_site(folder: Path, url: str, model: Model) -> Iterator[Site]:
    settings = {
        "STREAMER_JUDGE_BASE_URL": model.url,
        "STREAMER_JUDGE_MODEL": "grader",
        "STREAMER_JUDGE_TRIES": "1",
        "STREAMER_JUDGE_SCORE_SECONDS": "30",
        "STREAMER_JUDGE_PRICE_PER_MILLION_INPUT": "1",
        "STREAMER_JUDGE_PRICE_PER_MILLION_OUTPUT": "2",
    }
    judge = {"base_url": model.url, "model": "grader"}
    made = Site(url, folder, settings)
    made.gate(scorer="judge", encoder=wiring.judge_scoring_id(load_settings(judge=judge)))
    yield made
    made.close()


def batch(name: str, *texts: str) -> dict[str, Any]:
    return {
        "batch_id": name,
        "prompt": "Where?",
        "responses": [{"id": str(i), "text": text} for i, text in enumerate(texts)],
    }


def test_a_gate_ships_by_a_judges_marks_and_holds_without_them(
    site: Site, model: Model, tmp_path: Path
) -> None:
    site.gate("plain")
    site.gate("other", scorer="judge", encoder="judge:grader/rubric-00000000/00000000")
    endpoint = site.serve()
    shipped = action(endpoint.ask(batch("one", "perhaps", "surely here", " ")))
    assert (shipped["action"], shipped["selected"], shipped["reason"]) == ("ship", "1", "scored")
    assert [one["score"] for one in shipped["responses"]] == [0.2, 0.9, 0.0]
    assert shipped["scorer"]["encoder"].startswith("judge:grader/rubric-")
    assert action(endpoint.ask(batch("one", "perhaps", "surely here", " "))) == shipped
    assert len(model.requests) == 2, "a repeat is not paid for"
    unknown = action(endpoint.ask(batch("one", "no", "yes"), gate="other"))
    assert (unknown["action"], unknown["reason"]) == ("abstain", "encoder_mismatch")

    model.reply = lambda _request: ChatReply(status=503)
    held = action(endpoint.ask(batch("two", "surely", "no")))
    assert (held["action"], held["reason"], held["scorer"]["encoder"]) == ("abstain", "no_mark", "none")
    metrics = endpoint.metrics()
    assert metrics['streamer_judge_answers_total{result="marked"}'] == 2
    assert metrics['streamer_judge_answers_total{result="failed"}'] == 2
    assert metrics['streamer_part_reachable{part="judge"}'] == 0

    kept = site.store.judgements.of(BatchKey(GATE, "one", 1), "1")
    there = [(one.mark, one.for_score, one.remembered, one.label, one.intact) for one in kept]
    assert there == [(90.0, True, False, None, True)]
    assert kept[0].cost == pytest.approx((400 + 2 * 50) / 1e6)
    assert "surely here" in kept[0].exchanges[0].messages[1].content
    failed = site.store.judgements.of(BatchKey(GATE, "two", 1))
    assert [one.failure for one in failed] == ["server_error"] * 2

    site.check()
    settings = load_settings(database={"url": site.url})
    export(settings, tmp_path / "bundle")
    for report in (verify(settings), verify_bundle(Bundle(tmp_path / "bundle"), KEYS, None)):
        assert not [one for one in report.faults if one.check != "policy"], (
            "thresholds that a test writes have no run"
        )
        assert report.counts["batches whose scores follow from recorded numbers"] == 1
    again = Rescorer({})  # a judge's words need no encoder
    report = verify(settings, rescorer=again)
    assert not [one for one in report.faults if one.check == "score"]
    assert report.counts["marks read again"] == 2
    for change, said in (
        ("mark = 20.5 WHERE response_id = '0' AND mark = 20", "says 20, and its mark is 20.5"),
        ("exchanges = replace(exchanges, '20', '30') WHERE response_id = '0'", "was changed"),
        ("response_id = '1' WHERE mark = 20", "asked about another prompt or answer"),
        ("response_id = '2' WHERE mark = 90", "what the judge said of it is not on record"),
        ("exchanges = NULL, salt = NULL, erased_at = judged_at WHERE mark IS NOT NULL", ""),
    ):
        with breaking_in(site.url) as connection:
            before = connection.exec_driver_sql("SELECT * FROM judgements").mappings().all()
            connection.exec_driver_sql(f"UPDATE judgements SET {change}")
        report = verify(settings, rescorer=again)
        found = [one.detail for one in report.faults if one.check in ("score", "seal")]
        assert any(said in one for one in found) if said else report.counts["marks not read again"] == 2, (
            found
        )
        with breaking_in(site.url) as connection:
            connection.exec_driver_sql("DELETE FROM judgements")
            for row in before:
                names = ", ".join(f'"{name}"' for name in row)
                marks = ", ".join(f":{name}" for name in row)
                connection.execute(sa.text(f"INSERT INTO judgements ({names}) VALUES ({marks})"), dict(row))
    with breaking_in(site.url) as connection:
        connection.exec_driver_sql("UPDATE responses SET raw_energy = 99 WHERE raw_energy = 90")
        rebuild_outcomes(connection)
    assert any("does not follow from the number" in one.detail for one in verify(settings).faults)


def test_a_crash_between_mark_and_commit_leaves_one_decision_with_its_mark(
    any_site: Site, model: Model
) -> None:
    """The judge is asked again, and may say something else: what is recorded is what was decided by."""
    site = any_site
    numbers = iter(range(100))

    def moody(request: ChatRequest) -> ChatReply:
        share = 0.9 if next(numbers) < 2 else 0.6
        points = {name: points * share for name, points in ASPECT_NAMES.items()}
        return ChatReply(json.dumps({"score": 100 * share, "subscores": points}))

    model.reply = moody
    endpoint = site.serve(STREAMER_FAILPOINTS="before_commit=kill")
    with pytest.raises(Exception, match=r"disconnected|reset|closed"):
        endpoint.ask(batch("one", "a", "b"))
    assert len(model.requests) == 2
    assert site.recorded() == {}
    again = site.serve()
    decided = action(again.ask(batch("one", "a", "b")))
    assert [one["score"] for one in decided["responses"]] == [0.6, 0.6]
    assert len(model.requests) == 4
    assert [one.mark for one in site.store.judgements.of(BatchKey(GATE, "one", 1))] == [60.0, 60.0]
    assert site.outcomes() == ["decision"]
    site.check()
