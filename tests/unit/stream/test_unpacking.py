"""Batches that unpack to far more than they have: read record by record, within a bound, and nothing is passed over."""

import gzip
import hashlib
import inspect
import random
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any, Literal

import cramjam
import lz4.frame
import pytest
import zstandard
from aiokafka.codec import snappy_encode
from aiokafka.record import legacy_records
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record import util

from streamer.events.outgoing import EXCERPT_BYTES, TRUNCATED, Truncation
from streamer.stream.header_names import EscapingBatch, EscapingDefaultRecordBatch, EscapingRecords
from streamer.stream.unpacking import AT_ONCE, GZIP, LZ4, SNAPPY, ZSTD, UnreadableBatch, unpacked
from tests.unit.stream.record_batches import Sent, packed, plain_batch

MOST = EscapingBatch.most

PACKED: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (GZIP, lambda data: gzip.compress(data, 6)),
    "gzip in members": (GZIP, lambda data: gzip.compress(data[:1000]) + gzip.compress(data[1000:])),
    "snappy": (SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "snappy in blocks": (SNAPPY, snappy_encode),
    "lz4": (LZ4, lz4.frame.compress),
    "lz4 in frames": (LZ4, lambda data: lz4.frame.compress(data[:1000]) + lz4.frame.compress(data[1000:])),
    "zstd": (ZSTD, lambda data: zstandard.ZstdCompressor().compress(data)),
    "zstd, its size not told": (
        ZSTD,
        lambda data: zstandard.ZstdCompressor(write_content_size=False).compress(data),
    ),
}


def batch_of(records: Sequence[Sent], packing: str | None = None, *, first: int = 0) -> bytes:
    return packed(plain_batch(records), None if packing is None else PACKED[packing], first=first)


def seen(data: bytes) -> list[Any]:
    batches = EscapingRecords(data)
    found: list[Any] = []
    while batches.has_next():
        batch = batches.next_batch()
        assert batch is not None
        found += list(batch)
    return found


def small(count: int, size: int = 200) -> list[Sent]:
    rng = random.Random(count)
    return [(b"k%d" % n, rng.randbytes(size), [("h", b"%d" % n), ("none", None)]) for n in range(count)]


def fields(records: Sequence[Any]) -> list[Sent]:
    return [(one.key, one.value, list(one.headers)) for one in records]


@pytest.mark.parametrize("packing", PACKED)
def test_ordinary_batches_are_read_as_they_were_sent(packing: str) -> None:
    records = [*small(40), (None, None, []), (b"", b"", [])]
    found = seen(batch_of(records, packing, first=7) + batch_of(small(2), first=49))
    assert fields(found) == records + small(2)
    assert [one.offset for one in found] == list(range(7, 51))
    assert [one.timestamp for one in found][:42] == [1000 + n for n in range(42)]


@pytest.mark.parametrize("packing", PACKED)
def test_of_a_large_record_an_excerpt_is_kept_and_its_neighbours_are_whole(packing: str) -> None:
    large = b"begin" + b"x" * (3 * AT_ONCE)
    records: list[Sent] = [*small(3), (b"the key", large, [("of", b"it")]), *small(4)]
    found = seen(batch_of(records, packing, first=5))
    assert [one.offset for one in found] == list(range(5, 13))
    assert fields(found[:3] + found[4:]) == records[:3] + records[4:]
    cut = found[3]
    assert (cut.key, cut.value) == (b"the key", large[:EXCERPT_BYTES])
    note = f"value: {len(large)} bytes, sha256 {hashlib.sha256(large).hexdigest()}"
    assert cut.headers == (("of", b"it"), (TRUNCATED, note.encode()))
    assert isinstance(cut.headers[-1], Truncation)


@pytest.mark.parametrize("packing", PACKED)
def test_many_small_records_come_one_by_one(packing: str) -> None:
    value = b"y" * 4000
    data = batch_of([(None, value, [])] * 7_500, packing)
    tracemalloc.start()
    try:
        count = 0
        for one in EscapingBatch(None, memoryview(data)):
            assert (one.offset, one.value, one.headers) == (count, value, ())
            count += 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 7_500
    # Raw snappy is one block, which has to be unpacked as a whole.
    assert peak < (4 * AT_ONCE if packing == "snappy" else AT_ONCE + (4 << 20))


def test_a_large_key_and_large_headers_are_cut_too() -> None:
    filler: Sent = (None, b"z" * AT_ONCE, [])
    headers: list[tuple[str, bytes | None]] = [
        ("first", b"1"),
        *((f"h{n}", b"v" * 10_000) for n in range(300)),
    ]
    found = seen(batch_of([(b"k" * (2 * MOST), b"v", [("h", b"")]), (b"k", b"v", headers), filler], "gzip"))
    assert [one.offset for one in found] == [0, 1, 2]
    assert (len(found[0].key), found[0].value, found[0].headers[0]) == (1024, b"v", ("h", b""))
    digest = hashlib.sha256(b"k" * (2 * MOST)).hexdigest()
    assert found[0].headers[-1] == (TRUNCATED, f"key: {2 * MOST} bytes, sha256 {digest}".encode())
    assert found[1].headers == (("first", b"1"), (TRUNCATED, b"headers: 300 of 301 left out"))


@pytest.mark.parametrize("size", [3, 2 * AT_ONCE], ids=["small", "large"])
@pytest.mark.parametrize("packing", PACKED)
def test_damaged_bytes_are_one_record_that_says_so_and_the_partition_goes_on(packing: str, size: int) -> None:
    data = bytearray(batch_of([*small(3), (None, b"x" * size, []), *small(3)], packing, first=10))
    rng = random.Random(4)
    unread = 0
    for _ in range(60):
        damaged = bytearray(data)
        if rng.random() < 0.3:
            del damaged[rng.randrange(70, len(damaged)) :]
            damaged[8:12] = (len(damaged) - 12).to_bytes(4, "big")
        else:
            for _ in range(rng.randrange(1, 4)):
                damaged[rng.randrange(61, len(damaged))] = rng.randrange(256)
        found = seen(bytes(damaged) + batch_of(small(1), first=17))
        assert fields(found[-1:]) == small(1)
        last = found[-2]
        if (
            last.headers
            and isinstance(last.headers[-1], Truncation)
            and last.headers[-1].value.startswith(b"unreadable")
        ):
            unread += 1
            assert last.offset == 16
            assert len(last.value) <= EXCERPT_BYTES
    assert unread > 10


@pytest.mark.parametrize("codec", range(5, 8))
def test_an_unknown_codec_is_an_outcome(codec: int) -> None:
    data = bytearray(batch_of(small(3)))
    data[22] |= codec
    (one,) = seen(bytes(data))
    assert one.offset == 2
    assert b"unreadable: offsets 0 to 2: compression codec %d is unknown" % codec in one.headers[-1].value


def test_a_snappy_block_says_how_large_it_is_before_it_is_unpacked() -> None:
    with pytest.raises(UnreadableBatch, match="one block unpacks to 4294967295 bytes"):
        list(unpacked(SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x" * 100))


def legacy(magic: Literal[0, 1], records: Sequence[tuple[bytes | None, bytes | None]], codec: int) -> bytes:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 31)
    for number, (key, value) in enumerate(records):
        builder.append(number, timestamp=1000 + number, key=key, value=value)
    data = bytearray(builder.build())
    if magic == 1:  # as the broker does: the offset of the last message
        data[0:8] = (100 + len(records) - 1).to_bytes(8, "big")
    return bytes(data)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
@pytest.mark.parametrize("magic", [0, 1])
def test_formats_0_and_1_are_bounded_as_well(magic: Literal[0, 1], codec: int) -> None:
    large = b"w" * (2 * AT_ONCE)
    records = [(b"a", b"b"), (None, None), (b"k", large), (b"c", b"d")]
    first = 100 if magic else 0
    for some in (records[:2], records):
        found = seen(legacy(magic, some, codec))
        assert [one.offset for one in found] == [first + n for n in range(len(some))]
        wanted = [1000 + n for n in range(len(some))] if magic else [None] * len(some)
        assert [one.timestamp for one in found] == wanted
        assert [one.key for one in found] == [key for key, _ in some]
        assert [one.value for one in found] == [value and value[:EXCERPT_BYTES] for _, value in some]
    note = f"value: {len(large)} bytes, sha256 {hashlib.sha256(large).hexdigest()}"
    assert tuple(found[2].headers) == ((TRUNCATED, note.encode()),)


GARBAGE = {"zeros": b"\x00" * 7, "text": b"garbage!" * 4, "a byte": b"x"}
FRAMED = [name for name in PACKED if name != "snappy"]  # a raw snappy block is whatever bytes there are


@pytest.mark.parametrize(
    ("garbage", "size"), [*((name, 3) for name in GARBAGE), ("text", 2 * AT_ONCE)], ids=[*GARBAGE, "large"]
)
@pytest.mark.parametrize("packing", FRAMED)
def test_what_follows_complete_records_is_passed_over(
    packing: str, garbage: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's own consumer reads the records of a gzip batch with bytes behind it, and says nothing."""
    codec, pack = PACKED[packing]
    monkeypatch.setitem(PACKED, "followed", (codec, lambda data: pack(data) + GARBAGE[garbage]))
    records: list[Sent] = [*small(3), (None, b"x" * size, []), *small(3)]
    data = batch_of(records, "followed", first=10)
    for found in (seen(data), list(EscapingDefaultRecordBatch(memoryview(data)))):
        assert [one.offset for one in found] == list(range(10, 17))
        assert fields(found[:3] + found[4:]) == records[:3] + records[4:]
        assert found[3].value == (b"x" * size)[: EXCERPT_BYTES if size > MOST else None]


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("packing", FRAMED)
def test_records_that_are_missing_where_garbage_follows_are_told(
    packing: str, garbage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec, pack = PACKED[packing]
    missing = len(batch_of(small(1))) - 61
    monkeypatch.setitem(PACKED, "cut", (codec, lambda data: pack(data[:-missing]) + GARBAGE[garbage]))
    records = [*small(39), *small(1)]
    *whole, last = seen(batch_of(records, "cut", first=10))
    assert fields(whole) == records[:-1]
    assert last.offset == 49
    assert last.headers[-1].value.startswith(b"unreadable: offsets 49 to 49: ")


@pytest.mark.parametrize("magic", [0, 1])
def test_garbage_after_a_message_of_format_0_or_1_is_passed_over(
    magic: Literal[0, 1], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legacy_records, "gzip_encode", lambda data: gzip.compress(data) + b"garbage")
    records = [(b"a", b"b"), (None, None), (b"c", b"d")]
    found = seen(legacy(magic, records, GZIP))
    assert [(one.key, one.value) for one in found] == records


def test_checksums_of_record_batches_are_not_computed_in_python() -> None:
    """In Python they take a fifth of a second a megabyte."""
    assert inspect.isbuiltin(util.crc32c_c)
    assert util.calc_crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C (RFC 3720, B.4)
