"""What must hold after any fault: read the topics and the tables, and compare.

O1 every offset of the input topics has exactly one recorded outcome, up to holes that the log itself has.
O2 one decision per (gate, batch_id, attempt), however often it was delivered.
O3 the action ids on the topic are those of the decisions; copies of one action are identical, headers included.
O4 every action follows from the stored scores and the stored policy.
O5 the hash chains verify.
O6 nothing waits: progress has reached the end of each partition.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamer.events.actions import decode_action
from streamer.gate import gate_batch
from streamer.stream.tail import Tail
from streamer.stream.topics import log_bounds

if TYPE_CHECKING:
    from streamer.events.topics import Topics
    from streamer.store import Store
    from streamer.stream.connection import KafkaConnection
    from streamer.stream.tail import TailedRecord


@dataclass(frozen=True)
class Findings:
    """Counts of what was found in order."""

    decisions: int
    dead_letters: int
    duplicates: int
    labels: int
    actions_published: int
    republished: int


def committed_offsets(connection: KafkaConnection, topic: str) -> dict[int, list[int]]:
    """Offsets, by partition, that a reader of committed records sees: what an independent consumer would."""
    found: dict[int, list[int]] = defaultdict(list)
    for record in read_all(connection, topic):
        found[record.partition].append(record.offset)
    return found


def read_all(connection: KafkaConnection, topic: str) -> list[TailedRecord]:
    """All committed records of a topic."""
    with Tail(connection, topic, from_beginning=True) as tail:
        return list(tail.records(idle=2.0, seconds=60))


def check(store: Store, connection: KafkaConnection, topics: Topics) -> Findings:
    """Assert O1 to O6, naming what does not fit."""
    ledgers = {(ledger.partition.topic, ledger.partition.number): ledger for ledger in store.reports.ledger()}
    kinds: dict[str, int] = defaultdict(int)
    for topic in (topics.responses, topics.labels):
        bounds = log_bounds(connection, [topic])
        for number, offsets in committed_offsets(connection, topic).items():
            ledger = ledgers[topic, number]
            recorded = [o for first, last in ledger.ranges for o in range(first, last + 1)]
            assert recorded == sorted(offsets), f"O1: {topic}[{number}]"
            assert not ledger.gaps, f"O1: {topic}[{number}] lost offsets {ledger.gaps}"
            assert ledger.chain_height == len(recorded), f"O1: {topic}[{number}]"
            end = bounds[topic, number][1]
            assert recorded[-1] < ledger.next_offset <= end, f"O6: {topic}[{number}]"
            for kind, count in ledger.kinds.items():
                kinds[kind] += count

    published = read_all(connection, topics.actions)
    copies: dict[str, list[TailedRecord]] = defaultdict(list)
    for record in published:
        copies[decode_action(record.value).action_id].append(record)
    keys = set()
    for identity, same in copies.items():
        contents = {(r.key, r.value, r.headers) for r in same}
        assert len(contents) == 1, f"O3: copies of {identity} differ"
        event = decode_action(same[0].value)
        keys.add((event.gate, event.batch_id, event.attempt))
    assert len(keys) == len(copies), "O2: a batch has two actions"
    assert len(copies) == kinds["decision"], (
        f"O3: {kinds['decision']} decisions, {len(copies)} actions on the topic"
    )

    for identity, same in copies.items():
        event = decode_action(same[0].value)
        policy = store.policies.get(event.gate, event.policy.version)
        if event.reason != "scored":
            assert all(r.action != "ship" for r in event.responses), f"O4: {identity} ships unscored"
            continue
        gated = gate_batch(
            [r.score for r in event.responses if r.score is not None],
            unit=event.unit,
            state=policy.state,
            threshold=policy.threshold,
        )
        assert gated.shipped == tuple(r.action == "ship" for r in event.responses), f"O4: {identity}"

    faults = store.verify_chain()
    assert not faults, f"O5: {faults}"
    assert store.reports.outbox_pending() == 0, "O6: the outbox still has messages"
    return Findings(
        decisions=kinds["decision"],
        dead_letters=kinds["dead_letter"] + kinds["conflict"],
        duplicates=kinds["duplicate"],
        labels=kinds["label"],
        actions_published=len(published),
        republished=len(published) - len(copies),
    )
