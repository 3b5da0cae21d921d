"""Records that are small until they are unpacked: one outcome each, little memory, and the partition goes on."""

import gzip
import hashlib
import json
import re

import pytest
from aiokafka.consumer import fetcher
from kafka import KafkaProducer
from kafka.record import default_records, memory_records

from streamer import wiring
from streamer.errors import UsageError
from streamer.events.dead_letters import original_headers
from streamer.events.outgoing import EXCERPT_BYTES, TRUNCATED
from streamer.stream.header_names import EscapingDefaultRecordBatch, EscapingRecords, accept_any_record
from tests.faults import oracle
from tests.faults.matrix import LONG, Matrix
from tests.faults.site import Site, events, wait_until

MIB = 2**20
MOST_GROWTH = 256 * MIB
LARGEST_AMONG_OTHERS = 200_000_000
BOMBS = [("gzip", 200_000_000), ("snappy", 20_000_000), ("lz4", 60_000_000), ("zstd", 60_000_000)]
if LONG:
    BOMBS += [("gzip", 560_000_000), ("lz4", 200_000_000), ("zstd", 560_000_000)]


def publish_bomb(
    site: Site, topic: str, compression: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> bytes:
    """Publish one record of repeated bytes in a batch that is `compression` on the wire, between small ones.

    The largest have a batch of their own: where unpacking ends early for want of time, what follows in the same batch
    is refused with it.
    """
    # The client's gzip at level 9 takes a minute for this; level 6 packs it as well.
    monkeypatch.setattr(default_records, "gzip_encode", lambda data: gzip.compress(data, 6))
    value = b"x" * size
    producer = KafkaProducer(
        bootstrap_servers=site.settings.bootstrap_servers, compression_type=compression,
        max_request_size=size + MIB, batch_size=size + MIB, linger_ms=300,
        delivery_timeout_ms=180_000,
    )  # fmt: skip
    try:
        for number, (key, small) in enumerate(events(0, 20)):
            if number == 10:
                alone = size > LARGEST_AMONG_OTHERS
                if alone:
                    producer.flush(120)
                producer.send(topic, value, key=b"bomb", partition=0)
                if alone:
                    producer.flush(120)
            producer.send(topic, small, key=key, partition=0)
        producer.flush(120)
    finally:
        producer.close()
    return value


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("compression", "size"), BOMBS)
def test_a_record_that_unpacks_to_much_more(
    site: Site, compression: str, size: int, matrix: Matrix, monkeypatch: pytest.MonkeyPatch
):
    named = wiring.topics(site.settings)
    value = publish_bomb(site, named.responses, compression, size, monkeypatch)
    worker = site.start_worker()
    worker.wait_until_ready()
    wait_until(lambda: site.recorded() == 21, "every record has an outcome", 120, progress=site.recorded)
    grown = worker.peak_bytes()
    found = site.check()
    assert (found.decisions, found.dead_letters) == (20, 1)
    (letter,) = site.store.dead_letters.list()
    assert (letter.code, letter.key) == ("too_large", b"bomb")
    assert letter.value == value[:EXCERPT_BYTES]
    note = letter.truncated
    # Unpacking ends after two seconds of processor time: a slow machine hashes only what it unpacked until then.
    said = re.fullmatch(rf"value: {size} bytes, sha256 (?:of the first (\d+) bytes )?([0-9a-f]{{64}})", note)
    assert said is not None, note
    assert said[2] == hashlib.sha256(value[: int(said[1] or size)]).hexdigest()
    (told,) = oracle.read_all(wiring.connection(site.settings), named.dead_letters)
    assert told.value == letter.value
    assert dict(told.headers)[TRUNCATED] == note.encode()
    assert original_headers(told.headers) == ()
    with pytest.raises(UsageError, match=r"is an excerpt .* and cannot be sent again"):
        site.store.dead_letters.replay([letter.id], by="test")
    assert site.store.dead_letters.never_replayed("too_large") == []
    assert json.loads(site.command("dead-letters", "list", "--json").stdout)["truncated"] == note
    report = json.loads(site.command("audit", "verify", "--json", status=3).stdout)
    # The site puts a threshold in force that no labels found: that is named, and nothing else is.
    there = [fault["detail"].partition(":")[0] for fault in report["faults"]]
    assert there == ["its inputs cannot be calibrated"]
    plain = site.start_worker()  # what a worker takes that reads nothing large
    plain.wait_until_ready()
    print(
        f"\n{compression} {size / 1e6:.0f} MB: {(grown - plain.peak_bytes()) / MIB:.0f} MiB more than without"
    )
    assert grown - plain.peak_bytes() < MOST_GROWTH
    matrix.add(f"18 a record of {size / 1e6:.0f} MB, {compression}", found)


def test_the_client_library_unpacks_by_the_functions_that_are_bounded():
    """A release of a client library that reads compressed batches another way must not go unnoticed."""
    accept_any_record()
    assert fetcher.MemoryRecords is EscapingRecords
    assert memory_records.DefaultRecordBatch is EscapingDefaultRecordBatch
