"""Records whose header names are not UTF-8: read, with the offending bytes of the name escaped.

Kafka does not look at header names, and some publishers put any bytes there; the parsers of aiokafka and of
kafka-python raise on them, for good: the same fetch raises again. One such record would stop every worker that
is given its partition.
"""

from __future__ import annotations

from itertools import islice
from struct import unpack_from
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import _DefaultRecordBatchPy, _DefaultRecordPy
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import decode_varint
from kafka.errors import CorruptRecordError
from kafka.record import memory_records
from kafka.record.default_records import DefaultRecord, DefaultRecordBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = structlog.get_logger(__name__)

_LENGTH_AT = 8
_LENGTH_ENDS = 12
"""A batch begins with its base offset (8 bytes) and the length of what follows (4 bytes)."""


def accept_any_header_name() -> None:
    """Let every consumer of this process read such records. Safe to repeat."""
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

    def next_batch(self) -> EscapingBatch | None:
        """The next whole batch; None after the last one."""
        batch = self._batches.next_batch()
        if batch is None:
            return None
        begin = self._begin
        self._begin += _LENGTH_ENDS + unpack_from(">i", self._data, begin + _LENGTH_AT)[0]
        return EscapingBatch(batch, self._data[begin : self._begin])


class EscapingBatch:
    """One record batch. Read by aiokafka's parser; from a record that it cannot read, by ours.

    Parameters
    ----------
    batch : aiokafka's, unread.
    raw : the same batch's bytes.
    """

    def __init__(self, batch: Any, raw: memoryview) -> None:
        self._batch = batch
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)  # how the fetcher reads the one record of a control batch

    def __iter__(self) -> Iterator[Any]:
        read = 0
        try:
            for record in self._batch:
                read += 1
                yield record
        except (UnicodeDecodeError, CorruptRecordException) as error:
            # The library's parser without extensions wraps the error.
            if not isinstance(error.__cause__ or error, UnicodeDecodeError):
                raise
            log.warning("stream.header_name_escaped", after_offset=self._batch.base_offset + read - 1)
            yield from islice(_read_all(self._raw), read, None)


class EscapingDefaultRecordBatch(DefaultRecordBatch):
    """kafka-python's record batch, with our reading of a record that it cannot read."""

    def __next__(self) -> Any:
        try:
            following: Callable[[], Any] = super().__next__
            return following()
        except CorruptRecordError as error:
            if not isinstance(error.__context__, UnicodeDecodeError):
                raise
        begin = self._pos  # a record that could not be read is not passed
        read, self._pos = _record_at(self._buffer, begin)
        self._next_record_index += 1
        log.warning("stream.header_name_escaped", offset=self.base_offset + read.offset_delta)
        offset, timestamp = _placed(self, read)
        size = self._pos - begin
        return DefaultRecord(
            size, offset, timestamp, self.timestamp_type, read.key, read.value, list(read.headers)
        )


class _Read(NamedTuple):
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def _read_all(raw: memoryview) -> Iterator[Any]:
    """Every record of a batch (format 2, the only one with headers), header names escaped where need be."""
    batch: Any = _DefaultRecordBatchPy(raw)
    batch._maybe_uncompress()
    at = batch._pos
    for _ in range(batch._num_records):
        read, at = _record_at(batch._buffer, at)
        offset, timestamp = _placed(batch, read)
        yield _DefaultRecordPy(
            offset, timestamp, batch.timestamp_type, read.key, read.value, list(read.headers)
        )


def _placed(batch: Any, read: _Read) -> tuple[int, int]:
    """A record's offset and timestamp."""
    appended = batch.timestamp_type == batch.LOG_APPEND_TIME
    timestamp = batch.max_timestamp if appended else batch.first_timestamp + read.timestamp_delta
    return batch.base_offset + read.offset_delta, timestamp


def _record_at(data: Any, at: int) -> tuple[_Read, int]:
    """The record that begins at byte `at` of `data`, and where it ends."""

    def number() -> int:
        nonlocal at
        value, at = decode_varint(data, at)
        return value

    def sized() -> bytes | None:
        nonlocal at
        size = number()
        if size < 0:
            return None
        begin, at = at, at + size
        return bytes(data[begin:at])

    number()  # its length
    number()  # its attributes, of which none is in use
    timestamp_delta, offset_delta = number(), number()
    key, value = sized(), sized()
    headers = tuple((_name(sized() or b""), sized()) for _ in range(number()))
    return _Read(timestamp_delta, offset_delta, key, value, headers), at


def _name(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
