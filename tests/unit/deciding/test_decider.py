"""What becomes of each record: decided, held and why, or dead-lettered and why. One row, one outcome."""

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from streamer.deciding.policy_book import PolicyBook
from streamer.errors import EncoderGivenUp, Unavailable
from streamer.events.actions import decode_action
from streamer.events.codec import encode
from streamer.events.limits import Limits
from streamer.events.responses import content_hash, decode_responses
from streamer.events.thresholds import threshold_event
from streamer.events.topics import Topics
from streamer.gates.batch_key import BatchKey
from streamer.gates.gate import gate_batch
from streamer.gates.policy import ActivePolicy, Policy
from streamer.gates.settings import GateSettings
from streamer.journal import BatchDecision, DeadLetter, LabelRevision, Partition, Record, Redelivery
from streamer.labels.answer_forms import answer_batch
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.scoring.encoders.identity import EncoderIdentity
from streamer.scoring.gram import gram_energy
from streamer.scoring.registry import EVERY, SCORER_NAMES
from streamer.scoring.signals.signal_list import MEASURED, signal_list
from streamer.scoring.unread_answers import CUT, UNREAD
from tests.made import a_decider, a_label, a_policy, an_event

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
TOPICS = Topics()
LIMITS = Limits()
IDENTITY = EncoderIdentity("hashing", "1", "ab" * 32, 8)


class HashingEncoder:
    """Deterministic unit vectors from a text's hash; a text that says so cannot be encoded or is too long, a snowman is unread."""

    identity = IDENTITY

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def encode(
        self, texts: Sequence[str], *, progress: Callable[[int], None] | None = None
    ) -> NDArray[np.float32]:
        self.calls.append(list(texts))
        if any("cannot be encoded" in text for text in texts):
            raise RuntimeError("the encoder failed")
        rows = [
            np.frombuffer(hashlib.sha256(text.encode()).digest()[:16], dtype=np.uint16).astype(np.float64)
            for text in texts
        ]
        vectors = np.array(rows).reshape(len(texts), IDENTITY.dimension)
        vectors[["☃" in text for text in texts]] = UNREAD
        vectors[["too long" in text for text in texts]] = CUT
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors.astype(np.float32)


def active(
    gate: str, *, state: str = "cut", threshold: float | None = 0.5, version: int = 3, **settings: Any
) -> ActivePolicy:
    chosen: dict[str, Any] = {"encoder": IDENTITY.id, "mode": "enforce", "audit_probability": 1.0} | settings
    made = a_policy(
        GateSettings(**chosen), gate=gate, version=version, state=state, threshold=threshold,
        calibrated=version > 1, seed=7, valid_from=NOW,
    )  # fmt: skip
    return ActivePolicy(made, b"s" * 32)


POLICIES = {
    a.policy.gate: a
    for a in (
        active("bot"),
        active("open", state="open", threshold=None),
        active("closed", state="closed", threshold=None),
        active("new", state="closed", threshold=None, version=1),
        active("each", unit="response", threshold=0.9),
        active("all", unit="batch", state="open", threshold=None),
        active("judge", scorer="external", encoder="none", threshold=0.5),
        active("other-encoder", encoder="other@12345678"),
        active("accepts", embeddings="accept", dimension=8),
        active("accepts-other", encoder="other@12345678", embeddings="accept", dimension=8),
        active("outer", encoder="external:text-embedding-3-small", embeddings="accept", dimension=4),
        active("pinned", upstream="small@0badcafe"),
        active("hasty", decision_deadline_seconds=60.0),
        active("twice", max_attempts=2, state="open", threshold=None),
        active("shy", mode="shadow", audit_probability=0.0, hold_action="escalate"),
    )
}


class World:
    def __init__(self, known: dict[BatchKey, bytes] | None = None, *, encodes: bool = True) -> None:
        self.sql = dict(POLICIES)
        self.reads: list[Any] = []
        self.rejected: list[str] = []
        self.encoder = HashingEncoder()
        self.book = PolicyBook(self.load, limits=LIMITS, on_rejected=self.rejected.append)
        self.decider = a_decider(
            self.book,
            lambda keys: {k: h for k, h in (known or {}).items() if k in keys},
            encoder=CachedEncoder(self.encoder, capacity_texts=1000) if encodes else None,
            clock=lambda: NOW,
        )

    def load(self, gates: Sequence[str] | None) -> dict[str, ActivePolicy]:
        self.reads.append(gates)
        return {g: a for g, a in self.sql.items() if gates is None or g in gates}

    def decide(
        self,
        *values: bytes | None,
        topic: str = TOPICS.responses,
        timestamp_ms: int = 0,
        deadline_ms: int | None = None,
    ) -> list[Any]:
        partition = Partition("log", topic, 0)
        records = [
            Record(partition, i, b"key", value, (), timestamp_ms, deadline_ms)
            for i, value in enumerate(values)
        ]
        return self.decider.outcomes(records)


@pytest.fixture
def world() -> World:
    return World()


def batch(gate: str = "bot", texts: Sequence[str] = ("yes", "yes", "no"), **fields: Any) -> dict[str, Any]:
    return an_event(gate, "b-1", texts, **{"prompt": "why?"} | fields)


def raw(event: dict[str, Any]) -> bytes:
    return json.dumps(event).encode()


def with_embeddings(
    vectors: Sequence[Sequence[float]],
    gate: str = "accepts",
    encoder: str | None = IDENTITY.id,
    *,
    packed: bool = False,
) -> bytes:
    event = batch(gate, texts=[f"text {i}" for i in range(len(vectors))])
    if encoder is not None:
        event["embedding_encoder"] = encoder
    for response, vector in zip(event["responses"], vectors, strict=True):
        response["embedding"] = (
            base64.b64encode(np.asarray(vector, "<f4").tobytes()).decode() if packed else list(vector)
        )
    return raw(event)


def decision_of(world: World, gate: str, texts: Sequence[str], **fields: Any) -> BatchDecision:
    event = batch(gate, texts)
    for response in event["responses"]:
        response |= fields
    (found,) = world.decide(raw(event))
    assert isinstance(found, BatchDecision)
    return found


HELD = {
    "no_threshold": raw(batch("new")),
    "closed": raw(batch("closed")),
    "too_few_responses": raw(batch(texts=["alone"])),
    "empty_text": raw(batch("open", texts=["", " \n", "\t"])),
    "encoder_mismatch": raw(batch("other-encoder")),
    "scorer_failed": raw(batch("judge")),
    "upstream_mismatch": raw(batch("pinned", metadata={"upstream": "small@1badcafe"})),
    "attempts_exhausted": raw(batch(attempt=2)),
    "deadline_passed": raw(batch("hasty", created_at=(NOW - timedelta(seconds=61)).isoformat())),
}


@pytest.mark.parametrize("reason", HELD)
def test_a_valid_batch_that_cannot_be_decided_is_held_with_an_action(world: World, reason: str):
    (decision,) = world.decide(HELD[reason])
    assert isinstance(decision, BatchDecision)
    assert (decision.reason, decision.outcome, decision.selected) == (reason, "abstain", None)
    event = decode_action(decision.action.value)
    assert (event.action, event.reason, event.selected) == ("abstain", reason, None)
    assert all(r.action == "abstain" for r in event.responses)
    scored = reason in {"no_threshold", "closed"}
    assert all((r.score is not None) == scored for r in event.responses)
    assert event.audit.sampled == scored
    assert bool(event.audit.label) == scored
    named = (IDENTITY.id, "encoder") if scored else ("none", "none")  # where nothing was embedded
    assert (decision.encoder, decision.embedding_source) == named
    assert (event.scorer.encoder, event.scorer.embedding_source) == named


@pytest.mark.parametrize("metadata", [{}, {"upstream": ["small@0badcafe"]}, {"upstream": "large@0badcafe"}])
def test_a_gate_of_one_upstream_decides_about_its_answers_alone(world: World, metadata: dict[str, Any]):
    own = {"upstream": "small@0badcafe"}
    (other,) = world.decide(raw(batch("pinned", metadata=metadata)))
    assert (other.reason, other.outcome, other.sampled) == ("upstream_mismatch", "abstain", False)
    assert world.encoder.calls == []
    (decision,) = world.decide(raw(batch("pinned", metadata=own)))
    assert (decision.reason, decision.outcome) == ("scored", "ship")
    # Without answers, too, the batch says why none could have shipped.
    (empty,) = world.decide(raw(batch("pinned", texts=[], metadata=metadata)))
    assert empty.reason == "upstream_mismatch"


REFUSED = {
    "not JSON": (b"no json at all", "not_json"),
    "tombstone": (None, "tombstone"),
    "an unknown gate": (raw(batch("nobody")), "unknown_gate"),
    "2 MiB of text": (raw(batch(texts=["x" * 2**21, "y"])), "too_large"),
    "NaN in base64": (with_embeddings([[1, float("nan")], [1, 0]], packed=True), "not_finite"),
    "zeros in base64": (with_embeddings([[0, 0], [1, 0]], packed=True), "bad_embedding"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_message_is_dead_lettered_with_its_bytes_and_its_code(world: World, name: str):
    value, code = REFUSED[name]
    (letter,) = world.decide(value)
    assert isinstance(letter, DeadLetter)
    assert letter.code == code
    assert letter.message.topic == TOPICS.dead_letters
    assert dict(letter.message.headers)["streamer_error_code"] == code.encode()
    if name != "2 MiB of text":  # beyond every limit: cut, with the original's length and hash in a header
        assert letter.message.value == value


def test_a_bad_message_does_not_touch_its_neighbours(world: World):
    outcomes = world.decide(raw(batch(batch_id="a")), b"\xff", raw(batch(batch_id="b")))
    assert [type(o) for o in outcomes] == [BatchDecision, DeadLetter, BatchDecision]
    assert outcomes[0].responses == outcomes[2].responses


def test_scores_are_the_gram_energy_of_the_vectors_rounded_once(world: World):
    (decision,) = world.decide(raw(batch(texts=["yes", "yes", "no", "maybe"])))
    vectors = world.encoder.encode(["yes", "yes", "no", "maybe"])
    expected = np.round(gram_energy(vectors.astype(np.float64)), 6)
    np.testing.assert_array_equal([r.score for r in decision.responses], expected)
    np.testing.assert_allclose(
        [r.raw_energy for r in decision.responses], gram_energy(vectors, raw=True), rtol=1e-6
    )


@pytest.mark.parametrize("gate", ["bot", "open", "each", "all"])
def test_what_ships_is_what_the_gate_says(world: World, gate: str):
    (decision,) = world.decide(raw(batch(gate, texts=["yes", "no", "yes", "well"])))
    policy = POLICIES[gate].policy
    gated = gate_batch(
        [r.score for r in decision.responses],
        unit=policy.settings.unit,
        state=policy.state,
        threshold=policy.threshold,
    )
    assert tuple(r.action == "ship" for r in decision.responses) == gated.shipped
    chosen = None if gated.selected is None else decision.responses[gated.selected].id
    assert decision.selected == chosen
    some, every = any(gated.shipped), all(gated.shipped)
    unit = policy.settings.unit
    expected = "ship" if every or (unit == "best" and some) else "mixed" if some else "abstain"
    assert decision.outcome == expected
    assert decision.reason == "scored"


@pytest.mark.parametrize("text", ["", "\u200b\u2060\ufeff", "\u3164", "\u2800 \u00ad", "\u202e\u0301"])
def test_an_answer_of_which_nothing_can_be_seen_never_ships_even_through_an_open_gate(
    world: World, text: str
):
    (decision,) = world.decide(raw(batch("open", texts=[text, "yes", "yes"])))
    assert decision.selected == "r1"
    assert decision.responses[0].score == 0
    (whole,) = world.decide(raw(batch("all", texts=[text, "yes", "yes"])))
    assert (whole.outcome, whole.reason) == ("abstain", "empty_text")
    (nothing,) = world.decide(raw(batch("each", texts=[text, text])))
    assert (nothing.outcome, nothing.reason) == ("abstain", "empty_text")
    judged = batch("judge", texts=[text, "b"])
    judged["responses"][0]["score"], judged["responses"][1]["score"] = 1.0, 0.2
    (external,) = world.decide(raw(judged))
    assert external.responses[0].score == 0
    assert external.selected != "r0"


MS = int(NOW.timestamp() * 1000)
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("created", "timestamp", "late"),
    [
        (-61, MS, True),
        (-60, MS - HOUR, False),  # what the publisher says comes first
        (None, MS - 60_000, False),
        (None, MS - 60_001, True),
        (None, MS - HOUR, True),
        (None, 0, True),
        (None, MS + 59_000, False),  # clocks differ
        (60, MS - HOUR, False),
        # A date further ahead than the deadline is long counts as none.
        (None, MS + HOUR, True),
        (61, MS, False),
        (61, MS - HOUR, True),
        (3600, MS + HOUR, True),
        # None at all: nobody can tell that the batch is younger.
        (None, -1, True),
        (None, -(2**63), True),
        (None, 2**63 - 1, True),
        (-1, -1, False),
    ],
)
def test_the_deadline_counts_from_the_event_or_else_from_its_record(
    world: World, created: int | None, timestamp: int, late: bool
):
    event = batch("hasty")
    if created is not None:
        event["created_at"] = (NOW + timedelta(seconds=created)).isoformat()
    (decision,) = world.decide(raw(event), timestamp_ms=timestamp)
    assert (decision.reason == "deadline_passed") == late


def test_without_a_deadline_a_batch_needs_no_date(world: World):
    (decision,) = world.decide(raw(batch("open")), timestamp_ms=-1)
    assert decision.reason == "scored"


@pytest.mark.parametrize(
    ("deadline_ms", "reason"), [(MS + 1, "scored"), (MS, "deadline_passed"), (0, "deadline_passed")]
)
def test_a_record_may_bring_a_deadline_of_its_own(world: World, deadline_ms: int, reason: str):
    (decision,) = world.decide(raw(batch("open")), deadline_ms=deadline_ms)
    assert decision.reason == reason


def test_an_external_score_is_used_as_it_came(world: World):
    event = batch("judge", texts=["a", "b"])
    event["responses"][0]["score"] = 0.7500004
    event["responses"][1]["score"] = 0.2
    (decision,) = world.decide(raw(event))
    assert [r.score for r in decision.responses] == [0.75, 0.2]
    assert (decision.selected, decision.encoder, decision.embedding_source) == ("r0", "none", "none")
    assert world.encoder.calls == []


def test_embeddings_in_the_event_skip_the_encoder(world: World):
    vectors = np.eye(8)[[0, 0, 1]] * 3
    (decision,) = world.decide(with_embeddings(vectors.tolist()))
    assert world.encoder.calls == []
    assert (decision.encoder, decision.embedding_source) == (IDENTITY.id, "event")
    expected = np.round(gram_energy(vectors), 6).tolist()
    assert [r.score for r in decision.responses] == expected


def test_embeddings_in_base64_decide_as_the_same_numbers_in_lists(world: World):
    vectors = np.random.default_rng(1).normal(size=(5, 8)).astype(np.float32).tolist()
    listed, packed = (world.decide(with_embeddings(vectors, packed=packed))[0] for packed in (False, True))
    assert (packed.reason, packed.embedding_source) == ("scored", "event")
    assert packed.responses == listed.responses
    assert (packed.content_hash, packed.cloud) == (listed.content_hash, listed.cloud)
    assert packed.action == listed.action
    assert world.encoder.calls == []


ALIKE_8, ALIKE_4 = [[1.0] * 8] * 4, [[1.0] * 4] * 4
TAKEN = {
    "named as the gate's": with_embeddings(ALIKE_8),
    "of another encoder than the worker's": with_embeddings(ALIKE_8, "accepts-other", "other@12345678"),
    "external": with_embeddings(ALIKE_4, "outer", "text-embedding-3-small"),
    "in base64": with_embeddings(ALIKE_8, packed=True),
    "external, in base64": with_embeddings(ALIKE_4, "outer", "text-embedding-3-small", packed=True),
    "external, by its full name": with_embeddings(ALIKE_4, "outer", "external:text-embedding-3-small"),
}
NOT_TAKEN = {
    "refused": with_embeddings(ALIKE_8, "bot"),
    "refused, and not named": with_embeddings(ALIKE_8, "bot", None),
    "not named": with_embeddings(ALIKE_8, "accepts", None),
    "of another encoder": with_embeddings(ALIKE_8, "accepts", "other@12345678"),
    "of the encoder with other weights": with_embeddings(ALIKE_8, "accepts", "hashing@cdcdcdcd"),
    "named without the hash of the weights": with_embeddings(ALIKE_8, "accepts", "hashing"),
    "of another dimension": with_embeddings(ALIKE_4, "accepts"),
    "of another dimension, of no encoder here": with_embeddings(ALIKE_4, "accepts-other", "other@12345678"),
    "of the worker's encoder, for another": with_embeddings(ALIKE_8, "accepts-other"),
    "of another dimension, in base64": with_embeddings(ALIKE_4, "accepts", packed=True),
    "not named, in base64": with_embeddings(ALIKE_8, "accepts", None, packed=True),
    "external, and not named": with_embeddings(ALIKE_4, "outer", None),
    "external, of another encoder": with_embeddings(ALIKE_4, "outer", "text-embedding-3-large"),
    "external, of another dimension": with_embeddings(ALIKE_8, "outer", "text-embedding-3-small"),
}


@pytest.mark.parametrize("encodes", [True, False], ids=["with an encoder", "without"])
@pytest.mark.parametrize("name", TAKEN)
def test_embeddings_are_taken_where_the_gate_accepts_them(name: str, encodes: bool):
    world = World(encodes=encodes)
    (decision,) = world.decide(TAKEN[name])
    assert (decision.reason, decision.outcome, decision.embedding_source) == ("scored", "ship", "event")
    said = decode_action(decision.action.value).scorer
    assert (said.encoder, said.embedding_source) == (decision.policy.settings.encoder, "event")
    assert world.encoder.calls == []


@pytest.mark.parametrize("encodes", [True, False], ids=["with an encoder", "without"])
@pytest.mark.parametrize("name", NOT_TAKEN)
def test_other_embeddings_hold_the_batch_and_nothing_is_encoded(name: str, encodes: bool):
    world = World(encodes=encodes)
    (decision,) = world.decide(NOT_TAKEN[name])
    assert (decision.reason, decision.outcome) == ("encoder_mismatch", "abstain")
    assert decision.embedding_source == "event", "the record tells it from a worker with another encoder"
    assert decode_action(decision.action.value).scorer.embedding_source == "event"
    assert all(r.score is None for r in decision.responses)
    assert world.encoder.calls == []


def test_a_gate_that_accepts_embeddings_encodes_texts_that_have_none(world: World):
    (decision,) = world.decide(raw(batch("accepts", texts=["yes", "yes", "yes"])))
    assert (decision.outcome, decision.embedding_source) == ("ship", "encoder")
    for gate in ("accepts-other", "outer"):
        (decision,) = world.decide(raw(batch(gate, texts=["yes", "yes", "yes"])))
        assert (decision.reason, decision.embedding_source) == ("encoder_mismatch", "none"), gate


def test_a_group_is_encoded_in_one_call_and_each_text_once(world: World):
    world.decide(*(raw(batch(batch_id=f"b{i}", texts=["yes", "no", f"text {i}"])) for i in range(20)))
    (call,) = world.encoder.calls
    assert sorted(call) == sorted({"yes", "no", *(f"text {i}" for i in range(20))})


def test_a_text_that_cannot_be_encoded_holds_its_own_batch_only(world: World):
    outcomes = world.decide(
        raw(batch(batch_id="a")),
        raw(batch(batch_id="b", texts=["cannot be encoded", "x"])),
        raw(batch(batch_id="c")),
    )
    assert [o.reason for o in outcomes] == ["scored", "scorer_failed", "scored"]


def test_an_encoder_that_was_given_up_holds_what_it_is_needed_for(world: World):
    world.decide(raw(batch(batch_id="a", texts=["known", "too"])))

    def given_up(texts: Sequence[str]) -> Any:
        raise EncoderGivenUp("the endpoint still does not answer")

    world.encoder.encode = given_up  # type: ignore[assignment]
    scored = [{"id": "r1", "text": "yes", "score": 0.9}, {"id": "r2", "text": "no", "score": 0.1}]
    outcomes = world.decide(
        raw(batch(batch_id="b", texts=["known", "too"])),
        raw(batch(batch_id="c", texts=["known", "not this one"])),
        raw(batch("judge", batch_id="d", responses=scored)),
    )
    assert [o.reason for o in outcomes] == ["scored", "scorer_failed", "scored"]


def test_an_encoder_that_is_away_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch):
    def away(_self: object, _batches: object) -> list[Any]:
        raise Unavailable("the accelerator is away")

    monkeypatch.setattr(CachedEncoder, "embed", away)
    with pytest.raises(Unavailable):
        world.decide(raw(batch()))


def test_batches_that_are_decided_already_are_not_scored_again():
    value = raw(batch(texts=["new text", "other"]))
    key = BatchKey("bot", "b-1", 1)
    world = World(known={key: b"h" * 32})
    (again,) = world.decide(value)
    assert again == Redelivery(
        record=again.record, key=key, content_hash=content_hash(decode_responses(value))
    )
    assert world.encoder.calls == []


def test_a_gate_created_a_moment_ago_is_found_in_sql(world: World):
    world.sql["fresh"] = active("fresh")
    decided, refused = world.decide(raw(batch("fresh")), raw(batch("nobody", batch_id="2")))
    assert isinstance(decided, BatchDecision)
    assert refused.code == "unknown_gate"
    # one question for all unknown names, and none for names that are known
    assert world.reads == [["fresh", "nobody"]]
    world.decide(raw(batch("fresh", batch_id="3")))
    assert len(world.reads) == 1


def test_the_action_names_what_decided_it(world: World):
    (decision,) = world.decide(raw(batch()))
    event = decode_action(decision.action.value)
    policy = POLICIES["bot"].policy
    assert (event.policy.version, event.policy.state, event.policy.threshold) == (3, "cut", 0.5)
    assert (event.policy.alpha, event.policy.method) == (policy.settings.alpha, "mean")
    assert (event.scorer.name, event.scorer.encoder) == ("gram", IDENTITY.id)
    assert event.enforced
    assert (event.source.topic, event.source.partition, event.source.offset) == (TOPICS.responses, 0, 0)
    assert decision.action.key == b"key"
    assert dict(decision.action.headers)["ce_id"] == event.action_id.encode()


def test_a_shadow_gate_tells_consumers_not_to_enforce(world: World):
    (decision,) = world.decide(raw(batch("shy", texts=["a", "b"])))
    event = decode_action(decision.action.value)
    assert not event.enforced
    assert not event.audit.sampled


def test_the_audit_asks_for_the_best_response_under_unit_best(world: World):
    (decision,) = world.decide(raw(batch("closed", texts=["no", "yes", "yes"])))
    scores = [r.score for r in decision.responses]
    drawn = [r.id for r in decision.responses if r.drawn]
    assert drawn == [f"r{scores.index(max(scores))}"]
    assert (decision.sampled, decision.sampling_probability) == (True, 1.0)


def test_the_audit_draws_as_many_responses_as_the_gate_says():
    world = World()
    world.sql["each"] = active("each", unit="response", audit_draws=2, version=4)
    (decision,) = world.decide(raw(batch("each", texts=["a", "b", "c", "d"])))
    assert sum(r.drawn for r in decision.responses) == 2
    assert tuple(decode_action(decision.action.value).audit.label) == tuple(
        r.id for r in decision.responses if r.drawn
    )


def test_deciding_again_gives_the_same_bytes(world: World):
    value = raw(batch())
    first, second = world.decide(value)[0], World().decide(value)[0]
    assert first.action == second.action


LABEL = a_label("bot", "b-1", attempt=1, labeller="ann", labelled_at="2026-11-20T11:00:00Z")


def test_a_label_becomes_a_revision(world: World):
    (label,) = world.decide(raw(LABEL), topic=TOPICS.labels)
    assert isinstance(label, LabelRevision)
    assert (label.key, label.response_id, label.severity) == (BatchKey("bot", "b-1", 1), "r0", 0.5)
    assert (label.kind, label.labeller) == ("human", "ann")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"severity": 1.5}, "invalid_field"),
        ({"severity": -0.1}, "invalid_field"),
        ({"gate": "nobody"}, "unknown_gate"),
        ({"labelled_at": "2026-11-20T11:00:00"}, "invalid_field"),
        ({"schema": "streamer.responses.v1"}, "wrong_schema"),
    ],
)
def test_a_bad_label_is_dead_lettered(world: World, change: dict[str, Any], code: str):
    (letter,) = world.decide(raw(LABEL | change), topic=TOPICS.labels)
    assert isinstance(letter, DeadLetter)
    assert letter.code == code


class TestPolicyBook:
    """The thresholds topic is a hint to look; SQL says what is so."""

    def hear(self, world: World, policy: Policy) -> None:
        world.book.hear(policy.gate.encode(), encode(threshold_event(policy)))

    def test_a_newer_version_is_read_from_sql(self, world: World):
        world.book.refresh()
        world.sql["bot"] = active("bot", version=4, threshold=0.99)
        self.hear(world, world.sql["bot"].policy)
        held = world.book.get("bot")
        assert (held.policy.version, held.policy.threshold) == (4, 0.99)
        assert world.rejected == []

    def test_a_forged_threshold_changes_nothing(self, world: World):
        world.book.refresh()
        self.hear(world, replace(active("bot", version=9).policy, state="open", threshold=None))
        assert world.book.get("bot") == POLICIES["bot"]
        assert world.rejected == ["not_in_store"]

    def test_an_older_version_and_a_replay_change_nothing(self, world: World):
        world.book.refresh()
        reads = len(world.reads)
        for version in (1, 2, 3):
            self.hear(world, active("bot", version=version, state="closed", threshold=None).policy)
        assert world.book.get("bot") == POLICIES["bot"]
        assert len(world.reads) == reads

    @pytest.mark.parametrize(
        "value", [None, b"", b"garbage", b"\xff", b'{"schema": "streamer.thresholds.v1"}']
    )
    def test_garbage_and_tombstones_are_refused_and_counted(self, world: World, value: bytes | None):
        world.book.refresh()
        world.book.hear(b"bot", value)
        assert world.book.get("bot") == POLICIES["bot"]
        assert len(world.rejected) == 1

    def test_a_version_in_sql_never_goes_back(self, world: World):
        world.book.refresh()
        world.sql["bot"] = active("bot", version=2)
        world.book.refresh()
        assert world.book.get("bot").policy.version == 3


@pytest.mark.parametrize("scorer", SCORER_NAMES)
def test_any_scorer_that_is_ranked_may_decide(scorer: str):
    world = World()
    world.sql["scored"] = active("scored", scorer=scorer)
    texts = ("The capital is Paris.", "the capital is Paris", "I think Lyon, but I may be wrong")
    (found,) = world.decide(raw(batch("scored", texts)))
    assert isinstance(found, BatchDecision)
    (vectors,) = CachedEncoder(HashingEncoder(), capacity_texts=9).embed([texts])
    wanted = EVERY[scorer].score(answer_batch(texts, vectors, [False] * 3))
    assert [one.score for one in found.responses] == wanted.tolist()
    assert all((one.raw_energy is not None) == (scorer == "gram") for one in found.responses)
    assert found.scorer == scorer


def test_answers_that_the_encoder_does_not_read_are_held_by_every_method_of_embeddings():
    world = World()
    world.sql["choice"] = active("choice", scorer="choice", state="open", threshold=None)
    listed = signal_list(())
    for state in ("open", "closed"):
        world.sql[state] = active(
            state, scorer="choice", signals=listed.text, state=state, threshold=None
        )  # of method full
    texts = ["It is Bern ☃", "It is Bern", "It is Bern, too long to be read"]

    def decided(gate: str) -> BatchDecision:
        (found,) = world.decide(raw(batch(gate, texts)))
        assert isinstance(found, BatchDecision)
        assert found.outcome == "abstain"
        return found

    for gate in ("bot", "choice"):
        found = decided(gate)
        assert (found.reason, found.signals, found.sampled) == ("not_read", None, False)
        assert [one.score for one in found.responses] == [None] * 3
    for gate, reason in (("open", "not_read"), ("closed", "closed")):
        found = decided(gate)
        assert found.reason == reason
        assert found.sampled, "its label says what such answers are worth"
        assert found.signals is not None
        row = dict(zip(listed.columns, np.frombuffer(found.signals, "<f4").tolist(), strict=True))
        assert [row[name] for name in ("cut", "unread", "twin")] == [1, 1, 0]
        assert row["gram"] == row["centroid"] == 0, "what embeddings would say takes its middle"
        assert row["chrf"] > 0
        assert found.cloud is None


def test_the_callers_numbers_are_signals_and_one_outside_its_range_holds():
    world = World()
    listed = signal_list(["score", "logprob", "judge", "retrieval=-10..10"])
    world.sql["signals"] = active("signals", scorer="choice", signals=listed.text)
    decided = partial(decision_of, world, "signals", ["yes", "yes", "yes"])

    known = decided(score=0.75, logprob=-1.0, signals={"retrieval": 5, "judge": 75, "another": 1e9})
    assert known.signals is not None
    row = dict(zip(listed.columns, np.frombuffer(known.signals, "<f4").tolist(), strict=True))
    names = [name for name in listed.columns if name.partition(":")[0] in listed.ranges]
    assert [row[name] for name in names] == pytest.approx([0.5, 0, 2 * np.exp(-1) - 1, 0, 0.5, 0, 0.5, 0])
    assert known.metadata["streamer.signals"]["r2"] == {  # type: ignore[index]
        "score": 0.75, "logprob": -1.0, "retrieval": 5.0, "judge": 75.0, "another": 1e9,
    }  # fmt: skip
    missing = decided(signals={"another": 1})
    assert missing.reason == known.reason == "scored"
    assert missing.signals is not None
    row = dict(zip(listed.columns, np.frombuffer(missing.signals, "<f4").tolist(), strict=True))
    assert [row[name] for name in names] == [0, 1, 0, 1, 0, 1, 0, 1]
    outside = decided(signals={"retrieval": 10.5})
    assert (outside.outcome, outside.reason, outside.signals) == ("abstain", "signal_out_of_range", None)
    assert decode_action(outside.action.value).reason == "signal_out_of_range"
    assert outside.metadata["streamer.signals"]["r0"] == {"retrieval": 10.5}, "what was refused is kept"  # type: ignore[index]


def test_one_answer_is_enough_for_a_gate_that_compares_none():
    world = World(encodes=False)
    listed = signal_list(["logprob", "low_logprob", "least_logprob", "number"])
    alone = {"scorer": "likelihood", "encoder": "none", "signals": listed.text, "threshold": 0.5}
    world.sql["one"] = active("one", **alone)
    decided = partial(decision_of, world, "one", ["It is 42."])
    known = decided(token_logprobs=[-0.1, -0.2, -0.6])
    assert (known.outcome, known.reason, known.encoder) == ("ship", "scored", "none")
    assert known.responses[0].score == round(np.exp(-0.3), 6)
    assert known.signals is not None
    row = dict(zip(listed.columns, np.frombuffer(known.signals, "<f4").tolist(), strict=True))
    given = [row[name] for one in listed.given for name in (one, f"{one}:missing")]
    wanted = [x for y in (-0.3, -0.6, -0.6) for x in (2 * np.exp(y) - 1, 0)]
    assert given == pytest.approx([*wanted, 0, 1])
    compares = {one.name for one in MEASURED if one.of_others}
    assert not any(row[name] for name in compares), "what needs others says nothing of one alone"
    assert all(row[name] for name in ("length", "question_overlap", "has_number"))
    figures = decided(logprob=-0.3, signals={"low_logprob": -0.6, "least_logprob": -0.6})
    assert figures.content_hash == known.content_hash, "numbers of tokens are what is made of them"
    assert decided().reason == "no_logprob"
    for gate, texts in (("one", []), ("bot", ["alone"])):
        assert decision_of(world, gate, texts, logprob=-0.3).reason == "too_few_responses"
    assert decision_of(world, "judge", ["alone"], score=0.9).outcome == "ship", "no others are read"
