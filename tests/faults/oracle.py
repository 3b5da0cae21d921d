"""What must hold after any fault: read the topics and the tables, and compare.

O1 every offset of the input topics has exactly one recorded outcome, up to holes that the log itself has.
O2 one decision per (gate, batch_id, attempt), however often it was delivered.
O3 the action ids on the topic are those of the decisions; copies of one action are identical, headers included.
O4 every action follows from the stored scores and the stored policy, whose unit and mode it names.
O5 `audit verify` finds nothing, with every receipt that was published: chains, seals, order, draws, events.
O6 nothing waits: progress has reached the end of each partition.
O7 every refused record is on the dead-letter topic, with its own bytes and the reason that was recorded.
O8 the actions of one key are published in the order of their inputs (each one's first copy), but for batches that a
   publisher wrote to several partitions: whichever worker has such a repeat answers it at once.
O9 `audit verify --log` has nothing to say of it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from streamer.audit.logged import compare_with_log
from streamer.audit.verification import Lookups, Trusted, VerificationReport, verify_record
from streamer.events import dead_letters
from streamer.events.actions import decode_action
from streamer.events.receipts import receipt_line
from streamer.events.topics import HTTP_LOG, Topics
from streamer.gates.gate import gate_batch
from streamer.store import Store
from streamer.stream.connection import KafkaConnection
from streamer.stream.tail import KafkaLog, Tail, TailedRecord
from streamer.stream.topics import log_bounds
from tests.recorded import ledgers_of

_BATCH_ID = re.compile(rb'"batch_id": ?"([^"]*)"')


@dataclass(frozen=True)
class Findings:
    """Counts of what was found in order.

    `events` are the records that have an outcome, `lost` those that retention took before anyone read them,
    `conflicting` the actions of which two copies differ.
    """

    events: int
    lost: int
    conflicting: int
    decisions: int
    dead_letters: int
    duplicates: int
    labels: int
    actions_published: int
    republished: int


def read_all(connection: KafkaConnection, topic: str) -> list[TailedRecord]:
    """All committed records of a topic; after the last ones it waits only where a log ends with a hole."""
    bounds = log_bounds(connection, [topic])
    open_ends = {number: end for (_, number), (first, end) in bounds.items() if end > first}
    found: list[TailedRecord] = []
    with Tail(connection, topic, from_beginning=True) as tail:
        for record in tail.records(idle=5.0, seconds=600, stop=lambda: not open_ends):
            found.append(record)
            if record.offset + 1 >= open_ends.get(record.partition, 0):
                open_ends.pop(record.partition, None)
    return found


def _refused(letter: TailedRecord) -> tuple[str, int, int]:
    """Where a dead letter says that it comes from; the headers that were added stand last."""
    headers = {name: (value or b"").decode() for name, value in letter.headers if name in dead_letters.ADDED}
    topic, number, offset = (
        headers[name] for name in (dead_letters.TOPIC, dead_letters.PARTITION, dead_letters.OFFSET)
    )
    return topic, int(number), int(offset)


def _in_several_partitions(inputs: Iterable[TailedRecord]) -> set[str]:
    """Ids of the batches whose records are in more than one partition."""
    partitions: dict[str, set[int]] = defaultdict(set)
    for record in inputs:
        for found in _BATCH_ID.findall(record.value or b""):
            partitions[found.decode(errors="replace")].add(record.partition)
    return {batch for batch, where in partitions.items() if len(where) > 1}


def _check_order(first_copies: list[TailedRecord], repeated: set[str]) -> None:
    """O8; a key's inputs are in one partition, and so are its actions."""
    last: dict[tuple[int, bytes, int], int] = {}
    for record in sorted(first_copies, key=lambda one: (one.partition, one.offset)):
        event = decode_action(record.value)
        if record.key is not None and event.batch_id not in repeated:
            source = event.source
            key = (record.partition, record.key, source.partition)
            assert last.get(key, -1) < source.offset, f"O8: {record.key!r}: offset {source.offset} overtook"
            last[key] = source.offset


def verified(store: Store, receipts: list[bytes], *, smuggled: bool = False) -> VerificationReport:
    """What `audit verify` finds, which must be in order but for policies that a test writes: they have no run.

    `smuggled`: a test wrote policies past the program, which are in no log.
    """
    with store.evidence.snapshot() as snapshot:
        report = verify_record(
            snapshot, trusted=Trusted(()), outside=None,
            lookups=Lookups(store.gates.history, store.calibration.inputs),
            receipts=(receipts, "the topic"),
        )  # fmt: skip
    faults = [
        fault
        for fault in report.faults
        if fault.check != "policy" and not (smuggled and fault.place.startswith("policies "))
    ]
    assert not faults, f"O5: {faults[:3]}"
    assert report.counts.get("faults", 0) == len(report.faults), (
        "O5: there are too many faults to see them all"
    )
    return report


def check(
    store: Store,
    connection: KafkaConnection,
    topics: Topics,
    *,
    gaps_expected: bool = False,
    letters_deleted: bool = False,
    smuggled: bool = False,
) -> Findings:
    """Assert O1 to O9, naming what does not fit.

    `gaps_expected`: retention took records before they were read. `letters_deleted`: the dead-letter topic was deleted,
    with what was on it. `smuggled`: a test wrote policies past the program.
    """
    ledgers = {(ledger.partition.topic, ledger.partition.number): ledger for ledger in ledgers_of(store)}
    kinds: dict[str, int] = defaultdict(int)
    events = lost = 0
    records: dict[tuple[str, int, int], TailedRecord] = {}
    for topic in (topics.responses, topics.labels):
        bounds = log_bounds(connection, [topic])
        there: dict[int, list[int]] = defaultdict(list)
        for record in read_all(connection, topic):
            there[record.partition].append(record.offset)
            records[topic, record.partition, record.offset] = record
        for number, offsets in there.items():
            ledger = ledgers[topic, number]
            recorded = [o for first, last in ledger.ranges for o in range(first, last + 1)]
            # What retention removed since is recorded, or is in a gap; the broker has no more to compare with.
            removed = [o for o in recorded if o < bounds[topic, number][0]]
            assert recorded == removed + sorted(offsets), f"O1: {topic}[{number}]"
            missing = set(range(ledger.next_offset)) - set(recorded)
            gaps = {o for first, last in ledger.gaps for o in range(first, last + 1)}
            assert gaps <= missing, f"O1: {topic}[{number}] has offsets both recorded and lost"
            assert not gaps & set(offsets), f"O1: {topic}[{number}] lost offsets that are there"
            assert gaps_expected or not gaps, f"O1: {topic}[{number}] lost offsets {ledger.gaps}"
            assert ledger.log_size == len(recorded), f"O1: {topic}[{number}]"
            end = bounds[topic, number][1]
            assert recorded, f"O1: {topic}[{number}]"
            assert recorded[-1] < ledger.next_offset <= end, f"O6: {topic}[{number}]"
            events += len(recorded)
            lost += len(gaps)
            for kind, count in ledger.kinds.items():
                kinds[kind] += count

    for ledger in ledgers.values():
        if ledger.partition.log_id == HTTP_LOG:  # requests are in no topic, and what becomes of them is
            events += sum(ledger.kinds.values())
            for kind, count in ledger.kinds.items():
                kinds[kind] += count

    published = read_all(connection, topics.actions)
    copies: dict[str, list[TailedRecord]] = defaultdict(list)
    for record in published:
        copies[decode_action(record.value).action_id].append(record)
    keys = set()
    conflicting = sum(len({(r.key, r.value, r.headers) for r in same}) > 1 for same in copies.values())
    assert not conflicting, f"O3: {conflicting} actions have copies that differ"
    for same in copies.values():
        event = decode_action(same[0].value)
        keys.add((event.gate, event.batch_id, event.attempt))
    assert len(keys) == len(copies), "O2: a batch has two actions"
    assert len(copies) == kinds["decision"], (
        f"O3: {kinds['decision']} decisions, {len(copies)} actions on the topic"
    )

    _check_order([same[0] for same in copies.values()], _in_several_partitions(records.values()))
    policy_of = cache(store.policies.get)
    for identity, same in copies.items():
        event = decode_action(same[0].value)
        policy = policy_of(event.gate, event.policy.version)
        assert policy.settings.unit == event.unit, f"O4: {identity}"
        if event.reason == "no_threshold" and all(r.score is None for r in event.responses):
            # The worker trusted no policy: it holds, whatever the gate is set to.
            assert event.enforced, f"O4: {identity}"
            assert all(r.action != "ship" for r in event.responses), f"O4: {identity} ships unscored"
            continue
        assert event.enforced == (policy.settings.mode == "enforce"), f"O4: {identity}"
        assert (event.reason in ("closed", "no_threshold")) <= (policy.state == "closed"), f"O4: {identity}"
        assert (event.reason == "scored") <= (policy.state != "closed"), f"O4: {identity}"
        if event.reason != "scored":
            assert all(r.action != "ship" for r in event.responses), f"O4: {identity} ships unscored"
            continue
        if (
            policy.state == "full"
        ):  # `streamer audit verify` finds what does not follow from the counts on record
            (needed,) = (r.budget_needed for r in event.responses if isinstance(r.budget_needed, float))
            ships = any(r.action == "ship" for r in event.responses)
            wanted = needed <= policy.settings.alpha / policy.settings.max_attempts
            assert ships == wanted, f"O4: {identity}"
            continue
        gated = gate_batch(
            [r.score for r in event.responses if r.score is not None], unit=event.unit,
            state=policy.state, threshold=policy.threshold,
        )  # fmt: skip
        assert gated.shipped == tuple(r.action == "ship" for r in event.responses), f"O4: {identity}"

    refused: dict[tuple[str, int, int], TailedRecord] = {}
    for letter in read_all(connection, topics.dead_letters):
        place = _refused(letter)
        same_again = refused.setdefault(place, letter)
        wanted = (letter.key, letter.value)
        assert (same_again.key, same_again.value) == wanted, f"O7: copies of {place} differ"
        original = records.get(place)
        if original is not None:
            assert (original.key, original.value) == (letter.key, letter.value), f"O7: {place} was changed"
    count = kinds["dead_letter"] + kinds["conflict"]
    assert len(refused) == count or (letters_deleted and len(refused) < count), (
        f"O7: {count} records were refused, {len(refused)} are on the topic"
    )

    receipts = [line for one in published if (line := receipt_line(one.value, one.headers)) is not None]
    report = verified(store, receipts, smuggled=smuggled)
    assert report.counts.get("events with a receipt", 0) == len(published), (
        "O5: an action without its receipt"
    )
    assert store.reports.outbox_pending() == 0, "O6: the outbox still has messages"
    compared = compare_with_log(store.evidence.logged, KafkaLog(connection), topics=topics)
    assert not compared.faults, f"O9: {compared.faults[:3]}"
    assert compared.counts["events compared with the log"] or not events, "O9: nothing was compared"
    return Findings(
        events=events, lost=lost, conflicting=conflicting, decisions=kinds["decision"],
        dead_letters=kinds["dead_letter"] + kinds["conflict"], duplicates=kinds["duplicate"],
        labels=kinds["label"], actions_published=len(published),
        republished=len(published) - len(copies),
    )  # fmt: skip
