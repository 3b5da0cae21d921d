"""`audit verify --log`: nothing to say of an honest record, and every rewriting that the topics contradict by name."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np

from streamer import wiring
from streamer.events.outgoing import TRUNCATED
from streamer.gates.batch_key import BatchKey
from streamer.gates.settings import GateSettings
from streamer.store.desk.release_desk import Reject, Release
from streamer.stream.topics import log_bounds
from tests.faults.site import GATE, Site, event, events, publish, wait_until
from tests.integration.audit.attacker import breaking_in
from tests.made import a_label
from tests.services.kafka import KafkaBroker

EVENTS = 1200


def label(number: int) -> bytes:
    return json.dumps(a_label(GATE, f"batch-{number}")).encode()


def one(found: list[tuple[str, str]], place: str, words: str) -> None:
    assert [where for where, detail in found if where.startswith(place) and words in detail], (
        place,
        words,
        found,
    )


def test_the_record_is_compared_with_what_the_topics_still_hold(site: Site, tmp_path: Path) -> None:
    named = wiring.topics(site.settings)
    worker = site.start_worker()
    publish(site, 0, EVENTS)
    ((key, value),) = events(3, 1)
    with wiring.publisher(site.settings) as publisher:
        publisher.send(named.responses, value, key=key)  # a duplicate
        publisher.send(named.responses, event(4, prompt="another"), key=b"k")  # a conflict
        publisher.send(named.responses, b"{", key=b"k")
        for number in range(20):
            publisher.send(named.labels, label(number), key=b"k")
    total = EVENTS + 3 + 20
    wait_until(
        lambda: site.recorded() == total and not site.store.reports.outbox_pending(), "all is recorded"
    )

    honest = wiring.compared_with_log(site.settings, site.store)
    assert (honest.faults, honest.notes) == ([], [])
    assert honest.counts["events compared with the log"] == total
    assert honest.counts["actions compared with the log"] == EVENTS + 1
    assert honest.counts["receipts compared with the log"] == EVENTS + 1
    said = json.loads(site.command("audit", "verify", "--log", "--json", status=3).stdout)
    assert [one["check"] for one in said["faults"]] == ["policy"], "the site's threshold is made up"
    assert said["counts"]["events compared with the log"] == total
    told = site.command(
        "tail", "actions", "--receipts", "--from-beginning", "--count", str(EVENTS + 1)
    ).stdout
    kept = tmp_path / "receipts.jsonl"
    kept.write_text(told)
    for place in ("topic", str(kept)):
        said = json.loads(site.command("audit", "verify", "--receipts", place, "--json", status=3).stdout)
        assert [one["check"] for one in said["faults"]] == ["policy"]
        assert said["counts"]["events with a receipt"] == EVENTS + 1

    assert worker.terminate() == 0
    publish(site, EVENTS, 5)
    found = wiring.compared_with_log(site.settings, site.store)
    assert found.faults == []
    assert found.counts["events not decided yet"] == 5

    def offset_of(batch: str) -> tuple[int, int]:
        ((number, offset),) = rows(
            site,
            "SELECT partition, \"offset\" FROM outcomes WHERE kind = 'decision' AND batch = "
            f"(SELECT id FROM batches WHERE batch_id = '{batch}')",
        )
        return number, offset

    def at(batch: str) -> str:
        number, offset = offset_of(batch)
        return f"{named.responses}[{number}], offset {offset}"

    places = {batch: at(batch) for batch in ("batch-20", "batch-21", "batch-22", "batch-23")}
    number, last = max(
        rows(
            site,
            f"SELECT partition, max(\"offset\") FROM outcomes WHERE topic = '{named.responses}' GROUP BY partition",
        )
    )
    batch = "(SELECT id FROM batches WHERE batch_id = '{}')".format
    with breaking_in(site.settings.database.url) as broken:
        for statement in (
            "UPDATE batches SET content_hash = salt WHERE batch_id = 'batch-20'",
            "UPDATE batches SET batch_id = 'renamed' WHERE batch_id = 'batch-21'",
            f"DELETE FROM outcomes WHERE batch = {batch('batch-22')} AND kind = 'decision'",
            f"UPDATE decisions SET action_value = decode('7b7d', 'hex') WHERE batch = {batch('batch-23')}",
            "UPDATE dead_letters SET value = decode('7b7d', 'hex') WHERE code = 'not_json'",
            "UPDATE label_revisions SET severity = 0 WHERE batch_id = 'batch-7'",
            "UPDATE outcomes SET kind = 'duplicate', dead_letter = NULL WHERE kind = 'conflict'",
            f'INSERT INTO outcomes (log_id, topic, partition, "offset", kind, batch, recorded_at, leaf_index, leaf_hash, root, control_size) '
            f"SELECT log_id, topic, partition, {last + 100}, 'duplicate', batch, recorded_at, 9999999, leaf_hash, root, control_size FROM outcomes "
            f"WHERE topic = '{named.responses}' AND partition = {number} AND \"offset\" = {last}",
            f"UPDATE progress SET next_offset = {last + 101} WHERE topic = '{named.responses}' AND partition = {number}",
        ):
            broken.exec_driver_sql(statement)
    with wiring.publisher(site.settings) as publisher:
        publisher.send(named.actions, b"{}", key=b"k")
    found = wiring.compared_with_log(site.settings, site.store)
    told = [(fault.place, fault.detail) for fault in found.faults]
    one(told, places["batch-20"], "a decision about other content")
    one(told, places["batch-21"], "batch-21")
    one(told, places["batch-22"], "the record has no outcome")
    one(told, named.actions, "batch-21")
    one(told, named.actions, "batch-23")
    one(told, named.actions, "'renamed'")
    one(told, named.actions, "this is no action")
    one(told, named.responses, "other bytes are recorded")
    one(told, named.responses, "a duplicate about other content")
    one(told, f"{named.responses}[{number}], offset {last + 100}", "the topic has no event here")
    one(told, named.labels, "recorded is")
    assert "the topic has no event here" in site.command("audit", "verify", "--log", status=3).stdout


def test_an_honest_record_of_every_kind_has_no_fault(site: Site) -> None:
    named = wiring.topics(site.settings)
    numbers = [[0.25 * (one + k % 3) for k in range(16)] for one in range(1, 5)]
    plain = json.loads(event(0))
    packed = [base64.b64encode(np.asarray(numbers[n], dtype="<f4").tobytes()).decode() for n in range(4)]
    envelope = {
        "specversion": "1.0", "id": "e-1", "source": "/s", "type": "streamer.responses.v1",
        "datacontenttype": "application/json",
    }  # fmt: skip

    def labelled(number: int, **changes: Any) -> bytes:
        return json.dumps(json.loads(label(number)) | changes).encode()

    with wiring.publisher(site.settings) as publisher:
        for number in range(5):
            publisher.send(named.responses, event(number), key=b"")
        publisher.send(named.responses, event(5), headers=[("h", b"\xff"), ("h", b"2"), ("", b"")])
        responses = [one | {"embedding": packed[n % 4]} for n, one in enumerate(plain["responses"])]
        publisher.send(named.responses, event(6, responses=responses), key=b"k")
        publisher.send(named.responses, json.dumps(envelope | {"data": json.loads(event(7))}).encode())
        publisher.send(named.responses, json.dumps(envelope | {"data": plain | {"attempt": 2}}).encode())
        publisher.send(named.responses, None, key=b"k")
        publisher.send(named.responses, b"x" * 40_000, headers=[(TRUNCATED, b"said by the publisher")])
        publisher.send(named.responses, b'{"schema": "streamer.responses.v1", "prompt": "\\ud800"}')
        publisher.send(named.responses, b"rubbish")
        publisher.send(named.labels, None, key=b"k")
        publisher.send(named.labels, labelled(1, labeller="\ufb01nn \u2126\u00a0 x", severity=-0.0))
        publisher.send(named.labels, labelled(1, labeller="\ufb01nn \u2126\u00a0 x", severity=0))
        publisher.send(named.labels, labelled(2, severity=1))
        publisher.send(named.labels, labelled(2, severity=5e-324, kind="judge"))
        publisher.send(
            named.labels, labelled(2, severity=0.1 + 0.2, labelled_at="2026-01-01T23:00:00.123456789-05:30")
        )
        publisher.send(named.labels, labelled(999_999, gate="nowhere"))
        publisher.send(
            named.labels,
            json.dumps(envelope | {"type": "streamer.labels.v1", "data": json.loads(label(3))}).encode(),
        )
    total = 13 + 8
    worker = site.start_worker()
    until_recorded(site, total)

    def honest(**counts: int) -> None:
        found = wiring.compared_with_log(site.settings, site.store)
        assert (found.faults, found.notes) == ([], [])
        assert {name: found.counts[name] for name in counts} == counts

    honest()
    site.command("dead-letters", "replay", "--code", "not_json")
    site.command("gate", "set", GATE, "--hashes-only")
    with wiring.publisher(site.settings) as publisher:
        for number in range(50, 55):
            publisher.send(named.responses, event(number, prompt="secret"), key=b"k")
        publisher.send(named.responses, event(50, prompt="other"), key=b"k")
        publisher.send(named.responses, b"{")
    until_recorded(site, total + 8)
    honest()
    site.command("db", "prune", "--older-than", "0s", "--sooner-than-six-months", "--yes")
    honest()
    with wiring.publisher(site.settings) as publisher:
        publisher.send(named.responses, event(1, prompt="a repeat of what is erased"))
    until_recorded(site, total + 9)
    honest()
    assert worker.terminate() == 0


def test_outcomes_at_the_desk_and_actions_of_a_topic_that_was_recreated(
    site: Site, kafka_broker: KafkaBroker
) -> None:
    named = wiring.topics(site.settings)
    held = GateSettings(
        encoder="external:made-up", embeddings="accept", dimension=16, mode="enforce", hold_action="escalate",
        desk_deadline_seconds=86_400.0,
    )  # fmt: skip
    site.store.gates.create("held", held, by="ana", reason="test")
    worker = site.start_worker()
    with wiring.publisher(site.settings) as publisher:
        for number in range(4):
            publisher.send(named.responses, event(number, gate="held"), key=b"k")
    until_recorded(site, 4)
    for number, act in enumerate(
        (Release(response_id="r1", text="Better."), Release(response_id="r0"), Reject())
    ):
        site.store.desk.decide(BatchKey("held", f"batch-{number}", 1), act, by="account:ana")
    until_recorded(site, 4)
    found = wiring.compared_with_log(site.settings, site.store)
    assert (found.faults, found.notes) == ([], [])
    assert found.counts["outcomes at the desk compared with the log"] == 3
    assert found.counts["receipts compared with the log"] == 4 + 3
    lines, place = wiring.receipts(site.settings, "topic")
    assert len(lines) == 4 + 3
    assert named.desk in place
    said = json.loads(site.command("audit", "verify", "--receipts", "topic", "--json", status=3).stdout)
    assert said["counts"]["receipts"] == 7

    # Another topic of this name has nothing that came before it, and what comes afterwards.
    kafka_broker.delete_topics([named.actions])
    wait_until(lambda: not log_bounds(wiring.connection(site.settings), [named.actions]), "it is gone")
    kafka_broker.create_topic(named.actions, site.settings.kafka.partitions)
    for first in (4, 0):
        found = wiring.compared_with_log(site.settings, site.store)
        assert found.faults == []
        assert found.notes == [
            f"whether 4 actions were published: they are older than all that {named.actions} has, which was deleted and"
            " recreated or never had them"
        ]
        if first:
            with wiring.publisher(site.settings) as publisher:
                publisher.send(named.responses, event(first, gate="held"), key=b"k")
            until_recorded(site, 5)
    assert worker.terminate() == 0
    with breaking_in(site.settings.database.url) as broken:
        broken.exec_driver_sql("UPDATE desk_outcomes SET remark = 'other' WHERE batch_id = 'batch-0'")
        broken.exec_driver_sql(
            "DELETE FROM desk_texts WHERE outcome IN (SELECT id FROM desk_outcomes WHERE batch_id = 'batch-1')"
        )
        broken.exec_driver_sql("DELETE FROM desk_outcomes WHERE batch_id = 'batch-1'")
    told = [
        (fault.place, fault.detail) for fault in wiring.compared_with_log(site.settings, site.store).faults
    ]
    assert len(told) == 2
    one(told, named.desk, "'batch-0', attempt=1) that was published is another one than on record")
    one(told, named.desk, "'batch-1', attempt=1) was published, and no outcome at the desk is recorded")


def until_recorded(site: Site, count: int) -> None:
    wait_until(
        lambda: site.recorded() == count and not site.store.reports.outbox_pending(), "all is recorded", 60,
        progress=site.recorded,
    )  # fmt: skip


def rows(site: Site, query: str) -> list[Any]:
    with breaking_in(site.settings.database.url) as connection:
        return [tuple(row) for row in connection.exec_driver_sql(query)]
