"""Record batches that the parsers of aiokafka and of kafka-python mishandle.

Kafka does not look at header names, and some publishers put any bytes there: both parsers raise on those that are
not UTF-8, for good, since the same fetch raises again. Here the offending bytes are escaped. And both unpack a
compressed batch in full, whatever it unpacks to; here within a bound (`unpacking`). Either way one record would stop
every worker that is given its partition.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from struct import unpack_from
from typing import Any, ClassVar

import structlog
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch as AioRecordBatch
from aiokafka.record.memory_records import MemoryRecords
from kafka.errors import CorruptRecordError
from kafka.record import memory_records
from kafka.record.default_records import DefaultRecord, DefaultRecordBatch

from streamer.events.limits import DEFAULT_LIMITS
from streamer.stream.unpacking import (
    HEADER_BYTES,
    MAGIC_AT,
    ReadRecord,
    UnreadableBatch,
    at_once,
    packed_part,
    records_of,
    unpacked,
    unreadable,
    without_compression,
)

log = structlog.get_logger(__name__)

_FORMAT_2 = 2
_LENGTH_AT = 8
_LENGTH_ENDS = 12
"""A batch begins with its base offset (8 bytes) and the length of what follows (4 bytes)."""


def accept_any_record(*, most: int | None = None) -> None:
    """Let every consumer of this process read such batches. Safe to repeat. A record of a large
    batch with more than `most` bytes of key, value and headers is read as its excerpt."""
    if most is not None:
        EscapingBatch.most = most
    # Both libraries look these classes up in a module of theirs for each answer; there is no other way in.
    module: Any = fetcher
    module.MemoryRecords = EscapingRecords
    module = memory_records
    module.DefaultRecordBatch = EscapingDefaultRecordBatch


class EscapingRecords:
    """The batches of one partition in a broker's answer; what aiokafka's `MemoryRecords` is to its fetcher."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._begin = 0
        self._batches: Any = MemoryRecords(data)

    def size_in_bytes(self) -> int:
        """Bytes of the whole answer."""
        size: int = self._batches.size_in_bytes()
        return size

    def has_next(self) -> bool:
        """Whether another whole batch follows."""
        more: bool = self._batches.has_next()
        return more

    def next_batch(self) -> "EscapingBatch | None":
        """The next whole batch; None after the last one."""
        batch = self._batches.next_batch()
        if batch is None:
            return None
        begin = self._begin
        self._begin += _LENGTH_ENDS + unpack_from(">i", self._data, begin + _LENGTH_AT)[0]
        return EscapingBatch(batch, self._data[begin : self._begin])


class EscapingBatch:
    """One record batch, of which `raw` are the bytes. Read by aiokafka's parser; from a record
    that it cannot read, by ours."""

    most: ClassVar = DEFAULT_LIMITS.max_input_bytes

    def __init__(self, batch: Any, raw: memoryview) -> None:
        self._batch = batch
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)  # how the fetcher reads the one record of a control batch

    def __iter__(self) -> Iterator[Any]:
        try:
            codec, packed = packed_part(self._raw)
            content = at_once(codec, packed) if codec else None
        except UnreadableBatch as error:
            yield self._unreadable(-1, error)
            return
        if codec and content is None:
            log.warning("stream.large_batch", bytes=len(self._raw), **self._place())
            yield from records_of(self._raw, lambda: unpacked(codec, packed), self.most)
            return
        batch, raw = self._batch, self._raw
        if content is not None:
            if raw[MAGIC_AT] < _FORMAT_2:
                yield from records_of(raw, lambda: iter((content,)), self.most)
                return
            raw = memoryview(without_compression(raw, content))
            batch = AioRecordBatch(raw)
        yield from self._plain(batch, raw)

    def _plain(self, batch: Any, raw: memoryview) -> Iterator[Any]:
        read, last = 0, -1
        try:
            for record in batch:
                read, last = read + 1, record.offset
                yield record
        except (UnicodeDecodeError, CorruptRecordException) as error:
            # The library's parser without extensions wraps the error.
            if not isinstance(error.__cause__ or error, UnicodeDecodeError):
                yield self._unreadable(last, error)
                return
            log.warning("stream.header_name_escaped", after_offset=last)
            content = bytes(raw[HEADER_BYTES:])
            yield from islice(records_of(raw, lambda: iter((content,)), self.most), read, None)

    def _unreadable(self, read: int, error: Exception) -> Any:
        log.warning("stream.batch_unreadable", error=str(error)[:300], **self._place())
        return unreadable(self._raw, read, str(error)[:300])

    def _place(self) -> dict[str, int]:
        return {"base_offset": unpack_from(">q", self._raw)[0]}


class EscapingDefaultRecordBatch(DefaultRecordBatch):
    """kafka-python's record batch, read as `EscapingBatch` reads aiokafka's."""

    _others: Iterator[Any] | None = None

    def _maybe_uncompress(self) -> None:
        if self._decompressed or not self.compression_type:
            self._decompressed = True
            return
        codec, raw = self.compression_type, memoryview(bytes(self._buffer))
        packed = raw[HEADER_BYTES:]
        content: bytes | None = b""
        try:
            content = at_once(codec, packed)
        except UnreadableBatch as error:
            self._others = _for_kafka_python([unreadable(raw, -1, str(error)[:300])])
        else:
            if content is None:
                found = records_of(raw, lambda: unpacked(codec, packed), EscapingBatch.most, hurried=False)
                self._others = _for_kafka_python(found)
        self._buffer, self._pos = bytearray(content or b""), 0
        self._decompressed = True

    def __next__(self) -> Any:
        if self._others is not None:
            return next(self._others)
        try:
            following: Callable[[], Any] = super().__next__
            return following()
        except CorruptRecordError as error:
            if not isinstance(error.__context__, UnicodeDecodeError):
                raise
        log.warning("stream.header_name_escaped", base_offset=self.base_offset)
        head = self.HEADER_STRUCT.pack(*self._header_data)
        content = bytes(self._buffer if self.compression_type else self._buffer[HEADER_BYTES:])
        found = records_of(memoryview(head), lambda: iter((content,)), EscapingBatch.most, hurried=False)
        self._others = _for_kafka_python(islice(found, self._next_record_index, None))
        return next(self._others)


def _for_kafka_python(records: Iterable[ReadRecord]) -> Iterator[Any]:
    for one in records:
        size = len(one.key or b"") + len(one.value or b"")
        yield DefaultRecord(
            size, one.offset, one.timestamp, one.timestamp_type, one.key, one.value, list(one.headers)
        )
