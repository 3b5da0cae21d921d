"""Gates that sentence-transformers scored, while workers move to CTranslate2; see docs/operations.md."""

from datetime import UTC, datetime

import pytest

from streamer.deciding.decider import BatchDecider
from streamer.deciding.policy_book import PolicyBook
from streamer.events.limits import Limits
from streamer.events.topics import Topics
from streamer.journal import BatchDecision, Partition, Record
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.scoring.encoders.registry import load_encoder
from tests.unit.deciding.test_decider import active, batch, raw

pytestmark = pytest.mark.encoder

ENCODERS = {"before": "all-MiniLM-L6-v2@53aa5117", "after": "all-MiniLM-L6-v2@53aa5117+ctranslate2"}
ANSWERS = ["It is Paris.", "Paris", "Lyon, I think, or perhaps Marseille.", "The capital of France is Paris."]


def decided_by(engine: str) -> dict[str, BatchDecision]:
    """The decisions on the same answers, for a gate of each engine, by a worker with the encoder that `engine`'s names."""
    encoder = load_encoder(ENCODERS[engine], device="cpu")
    assert encoder.identity.id == ENCODERS[engine]
    gates = {name: active(name, encoder=one, unit="response") for name, one in ENCODERS.items()}
    book = PolicyBook(lambda _names: gates, limits=Limits())
    book.refresh()
    decider = BatchDecider(
        book=book,
        known=lambda _keys: {},
        encoder=CachedEncoder(encoder),
        topics=Topics(),
        limits=Limits(),
        clock=lambda: datetime(2026, 11, 22, tzinfo=UTC),
    )
    place = Partition("log", Topics().responses, 0)
    events = [raw(batch(gate, texts=ANSWERS)) for gate in ENCODERS]
    outcomes = decider.outcomes([Record(place, n, b"k", value, (), 0) for n, value in enumerate(events)])
    encoder.close()
    return {gate: one for gate, one in zip(ENCODERS, outcomes, strict=True) if isinstance(one, BatchDecision)}


def test_a_worker_decides_the_gates_of_its_engine_and_holds_the_others() -> None:
    scores = {}
    for engine in ENCODERS:
        for gate, decision in decided_by(engine).items():
            if gate == engine:
                assert (decision.reason, decision.encoder) == ("scored", ENCODERS[gate])
                scores[gate] = [one.score for one in decision.responses]
            else:
                assert (decision.reason, decision.outcome) == ("encoder_mismatch", "abstain")
    # Scores are kept to six decimals, so two that agree to 1e-6 may stand 2e-6 apart.
    assert scores["before"] == pytest.approx(scores["after"], abs=2e-6)
