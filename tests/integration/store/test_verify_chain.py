"""The Merkle log: it verifies, also without texts; whatever is changed behind its back is named."""

import pytest

from streamer.signing.merkle import Edge
from tests.integration.store.conftest import World


@pytest.fixture
def recorded(world: World) -> World:
    """Offsets 0..5 of partition 0, one of each kind, and two decisions in partition 1; some labels."""
    zero, one, labels = world.lease(0), world.lease(1), world.lease(topic="streamer.labels")
    world.commit(
        world.slice(zero, world.decision(0, "a"), world.dead(1, detail="quotes \x00 \ud800")),
        world.slice(one, world.decision(0, number=1), world.decision(1, number=1, scores=None)),
    )
    world.commit(
        world.slice(
            zero,
            world.decision(2, "a"),
            world.decision(3, "a", content="two"),
            world.decision(5, "c", scores=(0.1, 1 / 3), actions=("abstain", "ship"), sampled=False),
            expected=2,
        )
    )
    world.commit(world.slice(labels, world.label(1 / 3, "a", offset=0, raw_severity=-0.1)))
    return world


def test_the_record_verifies(recorded: World) -> None:
    assert recorded.store.evidence.log_faults() == []
    heights = {p.topic + str(p.number): h for p, h in recorded.store.reports.log_sizes().items()}
    assert heights == {"streamer.responses0": 5, "streamer.responses1": 2, "streamer.labels0": 1}


def test_texts_can_be_erased_and_the_chain_still_verifies(recorded: World) -> None:
    recorded.tamper(
        """UPDATE batches SET prompt = NULL, "references" = NULL, metadata = NULL, content_hash = NULL, salt = NULL,
           erased_at = '2026-12-01 00:00:00.000000'""",
        "UPDATE responses SET text = NULL",
        """UPDATE dead_letters SET detail = NULL, key = NULL, value = NULL, headers = NULL, salt = NULL,
           erased_at = '2026-12-01 00:00:00.000000'""",
    )
    assert recorded.store.evidence.log_faults() == []
    # A redelivery of what was erased gets the stored answer: a decision never changes.
    lease = recorded.lease(0)
    found = recorded.commit(recorded.slice(lease, recorded.decision(6, "a", content="who knows")))
    assert found == [["duplicate"]]


@pytest.mark.parametrize(
    ("statement", "place", "said"),
    [
        # One of each kind: the checks are the verifier's, which has them all in tests/integration/audit.
        ("UPDATE responses SET text = 'else' WHERE batch = 1 AND position = 0", 0, "texts"),
        ("UPDATE decisions SET reason = 'closed' WHERE batch = 1", 0, "decision is not"),
        ('UPDATE dead_letters SET value = key WHERE "offset" = 1', 1, "bytes"),
        ('UPDATE outcomes SET "offset" = 4 WHERE "offset" = 3', 4, "conflict is not"),
        ('DELETE FROM outcomes WHERE "offset" = 2', None, "missing"),
        ('DELETE FROM outcomes WHERE "offset" = 5', None, "has 4 leaves"),
        ("UPDATE label_revisions SET severity = 0", 0, "label is not"),
        (
            "UPDATE progress SET log_size = 9 WHERE partition = 0 AND topic = 'streamer.labels'",
            None,
            "has 1 leaves",
        ),
        (
            "UPDATE progress SET next_offset = 3 WHERE partition = 0 AND topic = 'streamer.responses'",
            None,
            "progress",
        ),
    ],
)
def test_a_change_is_named(recorded: World, statement: str, place: int | None, said: str) -> None:
    recorded.tamper(statement)
    fault, *_ = recorded.store.evidence.log_faults()
    assert said in fault
    assert place is None or f", offset {place}" in fault


def test_a_decision_written_past_the_journal_is_named(recorded: World) -> None:
    recorded.tamper(
        """INSERT INTO batches (id, gate, batch_id, attempt, prompt, metadata, content_hash, salt, content_mac)
           SELECT 1000, gate, 'stray', 1, prompt, metadata, content_hash, salt, content_mac FROM batches WHERE id = 1""",
        """INSERT INTO decisions (batch, gate, policy_version, unit, mode, outcome, reason, selected, scorer, encoder,
           embedding_source, sampled, sampling_probability, action_id, decided_at, action_topic, action_key,
           action_value, action_headers)
           SELECT 1000, gate, policy_version, unit, mode, outcome, reason, selected, scorer, encoder,
           embedding_source, sampled, sampling_probability, 'other', decided_at, action_topic, action_key, action_value,
           action_headers FROM decisions WHERE batch = 1""",
    )
    (fault,) = recorded.store.evidence.log_faults()
    assert fault.startswith('decisions ["support-bot","stray",1]: ')


def test_the_last_leaves_cannot_be_cut_off_together_with_the_edge(recorded: World) -> None:
    here = "topic = 'streamer.responses' AND partition = 0"
    edge = Edge()
    for (leaf,) in recorded.rows(f"SELECT leaf_hash FROM outcomes WHERE {here} ORDER BY leaf_index LIMIT 4"):
        edge.append(leaf)
    assert edge.size == 4
    # Of four leaves the edge is one hash, with which that of five begins.
    assert recorded.rows(f"SELECT substr(log_edge, 1, 32) FROM progress WHERE {here}") == [(edge.to_bytes(),)]
    recorded.tamper(
        'DELETE FROM outcomes WHERE "offset" = 5',
        f"UPDATE progress SET log_size = 4, log_edge = substr(log_edge, 1, 32) WHERE {here}",
    )
    (fault,) = recorded.store.evidence.log_faults()
    assert "belongs to no log" in fault
