"""Record batches with header names that are not UTF-8, for both of the client library's parsers."""

import gzip
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka.record.default_records import _DefaultRecordBatchPy

from streamer.stream.header_names import EscapingBatch, EscapingDefaultRecordBatch, EscapingRecords
from tests.unit.stream.record_batches import packed, plain_batch

STAND_IN = "\x01\x02\x03"
BAD = b"\xff\x80\xed"


def batch_of(*names: Sequence[str], compression: int = 0, first: int = 0) -> bytes:
    """A batch with one record for each list of header names; the stand-in is a name that is not UTF-8."""
    plain = plain_batch(
        [
            (
                None if number % 2 else b"key-%d" % number,
                b"value-%d" % number,
                [(name, None if i % 2 else b"\xff%d" % i) for i, name in enumerate(headers)],
            )
            for number, headers in enumerate(names)
        ]
    )
    packing = (compression, gzip.compress) if compression else None
    return packed(plain.replace(STAND_IN.encode(), BAD), packing, first=first)


def seen(records: EscapingRecords) -> list[tuple[Any, ...]]:
    found = []
    while records.has_next():
        batch = records.next_batch()
        assert batch is not None
        found += [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert records.next_batch() is None
    return found


@pytest.mark.parametrize("compression", [0, 1], ids=["plain", "gzip"])
def test_every_record_is_read_and_only_bad_names_are_escaped(compression: int) -> None:
    data = batch_of(["good"], ["a", STAND_IN, "z"], [], ["ü", STAND_IN], compression=compression, first=7)
    data += batch_of(["after"], first=11)
    assert seen(EscapingRecords(data)) == [
        (7, 1000, b"key-0", b"value-0", (("good", b"\xff0"),)),
        (8, 1001, None, b"value-1", (("a", b"\xff0"), (r"\xff\x80\xed", None), ("z", b"\xff2"))),
        (9, 1002, b"key-2", b"value-2", ()),
        (10, 1003, None, b"value-3", (("ü", b"\xff0"), (r"\xff\x80\xed", None))),
        (11, 1000, b"key-0", b"value-0", (("after", b"\xff0"),)),
    ]


def test_the_parser_without_extensions_is_helped_as_well() -> None:
    raw = batch_of(["good"], [STAND_IN])
    records = list(EscapingBatch(_DefaultRecordBatchPy(raw), memoryview(raw)))
    assert [r.offset for r in records] == [0, 1]
    assert list(records[1].headers) == [(r"\xff\x80\xed", b"\xff0")]


@pytest.mark.parametrize("compression", [0, 1], ids=["plain", "gzip"])
def test_commands_read_such_records_too(compression: int) -> None:
    batch = EscapingDefaultRecordBatch(
        memoryview(batch_of(["good"], ["a", STAND_IN], ["z"], compression=compression, first=7))
    )
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in batch] == [
        (7, 1000, b"key-0", b"value-0", [("good", b"\xff0")]),
        (8, 1001, None, b"value-1", [("a", b"\xff0"), (r"\xff\x80\xed", None)]),
        (9, 1002, b"key-2", b"value-2", [("z", b"\xff0")]),
    ]


def test_a_batch_that_is_broken_otherwise_is_one_record_that_says_so() -> None:
    raw = bytearray(batch_of(["good"]))
    raw[61] = 2 * 5  # the record says that it is five bytes long
    (one,) = EscapingBatch(_DefaultRecordBatchPy(raw), memoryview(raw))
    assert one.headers[-1][1].startswith(b"unreadable: offsets 0 to 0: ")


def test_what_the_fetcher_asks_a_batch_is_the_librarys_answer() -> None:
    data = batch_of(["good"], [STAND_IN], first=5)
    records = EscapingRecords(data)
    assert records.size_in_bytes() == len(data)
    batch = records.next_batch()
    assert (batch.base_offset, batch.next_offset, batch.producer_id) == (5, 7, -1)
    assert not batch.is_control_batch
    assert not batch.is_transactional
    assert next(batch).offset == 5
