"""A candidate policy beside the decision: recorded, in time or as no score, and nothing of the decision depends on it."""

import threading
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from streamer.deciding.policy_book import PolicyBook
from streamer.errors import EncoderGivenUp, Unavailable
from streamer.gates.batch_key import BatchKey
from streamer.gates.policy import CandidateDecision, CandidatePolicy
from streamer.gates.policy_gate import PolicyGate
from streamer.gates.rule import INDICATOR, Chance, Cut, Rule
from streamer.gates.settings import GateSettings
from streamer.gates.uniforms import uniforms_for
from streamer.journal import BatchDecision
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.scoring.encoders.identity import EncoderIdentity
from streamer.scoring.scorer import AnswerBatch
from streamer.scoring.scorers.choice import Choice
from tests.made import a_decider
from tests.unit.deciding.test_decider import (
    HELD,
    IDENTITY,
    LIMITS,
    NOW,
    HashingEncoder,
    World,
    active,
    batch,
    raw,
    with_embeddings,
)

PATIENCE = 600.0
"""Seconds that a test waits for what takes no time: never in full."""


def candidate(
    gate: str = "bot", number: int = 1, *, level: float | None = 0.5, **changes: Any
) -> CandidatePolicy:
    settings: dict[str, Any] = {"scorer": "choice", "encoder": IDENTITY.id} | changes
    rule: Rule = settings.pop("rule", INDICATOR)
    return CandidatePolicy(
        number=number, gate=gate, settings=GateSettings(**settings),
        cut=None if level is None else Cut.at(level), rule=rule, by="ana", reason="try", at=NOW,
    )  # fmt: skip


class Beside(World):
    """The world of the decider's tests, whose gates have candidates."""

    def __init__(
        self, *candidates: CandidatePolicy, seconds: float = PATIENCE, other: HashingEncoder | None = None
    ) -> None:
        super().__init__()
        for one in candidates:
            self.sql[one.gate] = replace(self.sql[one.gate], candidate=one)
        self.decider = a_decider(
            self.book,
            encoder=CachedEncoder(self.encoder, capacity_texts=1000),
            clock=lambda: NOW,
            candidate_encoder=None if other is None else CachedEncoder(other),
            candidate_seconds=seconds,
        )


def made(outcome: Any) -> CandidateDecision:
    assert isinstance(outcome, BatchDecision)
    assert outcome.candidate is not None
    return outcome.candidate


TRAFFIC = [
    *HELD.values(),
    raw(batch(batch_id="b-2")),
    raw(batch("each", batch_id="b-3", texts=["a", "b", "a", " "])),
    raw(batch("all", batch_id="b-4")),
    with_embeddings([[1, 0, 0, 0, 0, 0, 0, 0], [0.9, 0.1, 0, 0, 0, 0, 0, 0]]),
    raw(batch(batch_id="b-5", texts=["one cannot be encoded", "b"])),
    b"rubbish",
]


@pytest.mark.parametrize("way", ["scores", "fails", "lies", "hangs", "no time"])
def test_every_outcome_is_the_same_to_the_bit_with_a_candidate_and_without(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    def score(_scorer: Choice, given: AnswerBatch) -> Any:
        if way == "fails":
            raise ZeroDivisionError("it fails")
        if way == "hangs":
            released.wait(PATIENCE)
        return np.full(len(given.texts), 7.0), None

    if way in ("fails", "lies", "hangs"):
        monkeypatch.setattr(Choice, "with_raw", score)
    candidates = [candidate(gate) for gate in World().sql if gate not in ("outer", "judge")]
    candidates = [replace(one, settings=replace(one.settings, unit=World().sql[one.gate].policy.settings.unit)) for one in candidates if one.settings]  # fmt: skip
    seconds = {"hangs": 0.05, "no time": 0.0}.get(way, PATIENCE)
    without = World().decide(*TRAFFIC)
    beside = Beside(*candidates, seconds=seconds).decide(*TRAFFIC)
    released.set()
    assert [
        msgspec.structs.replace(one, candidate=None) if isinstance(one, BatchDecision) else one
        for one in beside
    ] == without
    decided = [
        one for one in beside if isinstance(one, BatchDecision) and one.key.gate not in ("outer", "judge")
    ]
    assert all(one.candidate is not None for one in decided), "one outcome of the candidate for each decision"
    whys = {made(one).why for one in decided if one.reason == "scored" and one.key.gate != "accepts"}
    if way == "scores":
        assert whys == {None}
    elif way != "no time":
        assert whys == {"too_slow" if way == "hangs" else "scorer_failed"}


def test_it_decides_by_its_own_score_and_threshold() -> None:
    (one,) = Beside(candidate(level=0.999)).decide(raw(batch()))
    (again,) = Beside(candidate(level=None)).decide(raw(batch()))
    assert (one.outcome, one.selected) == ("ship", "r0")
    scores = made(one).scores
    assert scores is not None
    assert scores == made(again).scores != tuple(r.score for r in one.responses)
    assert made(one) == CandidateDecision(1, scores, (False,) * 3)
    assert made(again).shipped is None


def test_a_random_gate_draws_the_numbers_that_it_would_draw_in_force() -> None:
    rule = Chance("smooth", 0.3)
    world = Beside(candidate(level=0.2, shape="smooth", width=0.3, rule=rule))
    for number in range(20):
        (one,) = world.decide(raw(batch(batch_id=f"b{number}", texts=[f"{number}", "x", "y"])))
        scores = made(one).scores
        assert scores is not None
        uniforms = uniforms_for(
            world.sql["bot"].audit_salt, BatchKey("bot", f"b{number}", 1), ["r0", "r1", "r2"], "best"
        )
        gate = PolicyGate(unit="best", cut=Cut.at(0.2), rule=rule)
        assert made(one).shipped == gate.decide(scores, uniforms=uniforms).gate.shipped


def test_what_is_late_is_recorded_so_and_nothing_is_begun_while_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    released, first = threading.Event(), threading.Event()
    as_ever = Choice.with_raw

    def score(scorer: Choice, given: AnswerBatch) -> Any:
        asked.append(given.texts[0])
        if given.texts[0] == "slow":
            first.set()
            released.wait(PATIENCE)
        return as_ever(scorer, given)

    monkeypatch.setattr(Choice, "with_raw", score)
    world = Beside(candidate(), seconds=0.2)
    group = world.decide(
        raw(batch(batch_id="quick", texts=["quick", "b"])),
        raw(batch(batch_id="slow", texts=["slow", "b"])),
        raw(batch(batch_id="behind", texts=["behind", "b"])),
    )
    assert first.wait(PATIENCE)
    assert [made(one).why for one in group][1:] == ["too_slow", "too_slow"]
    (meanwhile,) = world.decide(raw(batch(batch_id="other", texts=["other", "b"])))
    assert made(meanwhile).why == "too_slow"
    released.set()
    for thread in threading.enumerate():
        if thread.name == "streamer-candidate":
            thread.join(PATIENCE)
    assert asked == ["quick", "slow"], "what was given up is not done later"
    (after,) = world.decide(raw(batch(batch_id="after", texts=["after", "b"])))
    assert made(after).why in (None, "too_slow")


def test_a_request_is_not_kept_from_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(Choice, "with_raw", lambda *_: released.wait(PATIENCE))
    deadline = int(NOW.timestamp() * 1000) + 500
    (one,) = Beside(candidate()).decide(raw(batch()), deadline_ms=deadline)
    assert not released.is_set(), "it waited for a tenth of half a second, and not for the candidate"
    released.set()
    assert (one.reason, made(one).why) == ("scored", "too_slow")


@pytest.mark.parametrize(
    ("gate", "tried", "event", "why"),
    [
        ("judge", {"scorer": "gram"}, batch("judge", responses=[{"id": "a", "text": "x", "score": 0.9}, {"id": "b", "text": "y", "score": 0.1}]), None),
        ("judge", {"scorer": "external", "encoder": "none"}, batch("judge"), "scorer_failed"),
        ("bot", {"scorer": "external", "encoder": "none"}, batch(responses=[{"id": "a", "text": "x", "score": 0.9}, {"id": "b", "text": "y", "score": 0.1}]), None),
        ("bot", {"encoder": "second@cdcdcdcd"}, batch(), None),
        ("bot", {"encoder": "third@12345678"}, batch(), "no_encoder"),
        ("bot", {"unit": "batch"}, batch(), "other_unit"),
        ("bot", {}, batch(texts=["alone"]), "too_few_responses"),
        ("new", {}, batch("new"), None),
    ],
)  # fmt: skip
def test_what_it_is_scored_by(
    gate: str, tried: dict[str, Any], event: dict[str, Any], why: str | None
) -> None:
    other = HashingEncoder()
    other.identity = EncoderIdentity("second", "1", "cd" * 32, 8)
    (one,) = Beside(candidate(gate, **tried), other=other).decide(raw(event))
    assert made(one).why == why
    assert (made(one).scores is None) == (why is not None)


def test_a_gate_of_the_second_encoder_is_decided_by_it() -> None:
    second = HashingEncoder()
    second.identity = EncoderIdentity("second", "1", "cd" * 32, 8)
    world = Beside(other=second)
    world.sql["moved"] = active("moved", encoder="second@cdcdcdcd")
    world.sql["elsewhere"] = active("elsewhere", encoder="third@12345678")
    texts = {"bot": ["a", "b"], "moved": ["c", "d"], "elsewhere": ["e", "f"]}
    found = world.decide(*(raw(batch(gate, batch_id=gate, texts=own)) for gate, own in texts.items()))
    wanted = [("scored", IDENTITY.id), ("scored", "second@cdcdcdcd"), ("encoder_mismatch", "none")]
    assert [(one.reason, one.encoder) for one in found if isinstance(one, BatchDecision)] == wanted
    assert (world.encoder.calls, second.calls) == ([["a", "b"]], [["c", "d"]])


@pytest.mark.parametrize("error", [Unavailable("it is away"), EncoderGivenUp("it was away too long")])
def test_an_endpoint_of_its_encoder_that_is_away_says_nothing_of_the_batch(error: Exception) -> None:
    class Away(HashingEncoder):
        identity = EncoderIdentity("second", "1", "cd" * 32, 8)

        def encode(self, _texts: object, *, progress: object = None) -> Any:
            raise error

    (one,) = Beside(candidate(encoder="second@cdcdcdcd"), other=Away()).decide(raw(batch()))
    assert (one.reason, made(one).why) == ("scored", "no_encoder")


def test_embeddings_of_the_event_are_read_where_the_candidate_accepts_them() -> None:
    event = with_embeddings([[1, 0, 0, 0, 0, 0, 0, 0], [0.9, 0.1, 0, 0, 0, 0, 0, 0]])
    (one,) = Beside(candidate("accepts", embeddings="accept", dimension=8)).decide(event)
    assert made(one).scores is not None
    (other,) = Beside(candidate("accepts")).decide(event)
    assert made(other).why == "encoder_mismatch"


def test_a_group_that_is_decided_again_keeps_what_the_same_candidate_made() -> None:
    world = Beside(candidate())
    (first,) = world.decide(raw(batch()))
    texts = len(world.encoder.calls)
    (again,) = world.decider.outcomes([first.record], [first])
    assert made(again) is first.candidate
    world.sql["bot"] = replace(world.sql["bot"], candidate=candidate(number=2, level=None))
    world.book.refresh()
    (later,) = world.decider.outcomes([first.record], [first])
    assert made(later) == CandidateDecision(2, made(first).scores)
    assert len(world.encoder.calls) == texts, "no text is encoded twice"


def test_two_copies_in_a_group_each_have_their_own() -> None:
    one, other = Beside(candidate()).decide(raw(batch()), raw(batch(texts=["no", "perhaps", "x"])))
    assert made(one).scores != made(other).scores


def test_the_book_takes_up_later_candidates_of_the_same_policy_and_the_end_of_one() -> None:
    held = World().sql["bot"]
    found = {"bot": held}
    book = PolicyBook(lambda _names: dict(found), limits=LIMITS)
    seen = []
    stopped = CandidatePolicy(number=3, gate="bot", settings=None, by="ana", reason="x", at=NOW)
    for one in (None, candidate(number=2), candidate(number=1), None, stopped, candidate(number=4)):
        found["bot"] = replace(held, candidate=one)
        book.refresh()
        now = book.get("bot")
        seen.append(now.candidate and (now.candidate.number, now.candidate.settings is not None))
    assert seen == [None, (2, True), (2, True), (2, True), (3, False), (4, True)]
    world = Beside(stopped)
    (decision,) = world.decide(raw(batch()))
    assert decision.candidate is None
