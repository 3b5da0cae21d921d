"""Compressed record batches, unpacked within a bound.

A few hundred kilobytes may unpack to gigabytes. Batches of an ordinary size are unpacked in one go, and the client
library reads them. What is larger is unpacked in chunks and read record by record: of a record that is too large only
an excerpt, its length and its hash are kept, and everything else passes.
"""

import hashlib
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from functools import partial
from struct import unpack_from
from typing import NamedTuple

import cramjam
import lz4.frame
import zstandard

from streamer.events.outgoing import EXCERPT_BYTES, TRUNCATED, UNREADABLE, Part, Truncation, excerpt, size_of
from streamer.journal import Headers

Frame = Generator[bytes, None, memoryview]
"""Chunks of what one frame holds; then the bytes that follow it."""

AT_ONCE = 8 * 1024 * 1024
"""A batch that unpacks to no more is unpacked in one go."""

_CHUNK = 64 * 1024
_LARGEST_SNAPPY_BLOCK = 64 * 1024 * 1024
"""A snappy block has to be unpacked as a whole; publishers' blocks have 32 KiB, or one batch."""
_LARGEST_ZSTD_WINDOW = 1 << 27
"""What zstd allows by default; the highest level needs it."""
_ZSTD_SKIPPED = 0x184D2A50
_ZSTD_REPEATED_BYTE = 1
_LONGEST_ZSTD_HEADER = 18
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_MOST_UNPACKED = 1 << 30
"""Bytes that are unpacked of one batch, at most; a single record cannot have more than twice that."""
_PATIENCE = 2.0
_LEAST_PATIENCE = 0.25
_RECOVERY = 0.25
_CLOCK_TIMES = 3.0
"""Seconds of processor time for large batches, how fast they come back, and how many times that on the clock: the
group waits 8 seconds for a heartbeat."""
HEADER_BYTES = 61
"""Bytes of a batch of format 2 before its records."""

MAGIC_AT = 16
"""Where a batch says its format."""

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

_DAMAGE = (zlib.error, zstandard.ZstdError, cramjam.DecompressionError, RuntimeError, EOFError)
"""What the libraries raise on bytes that are not theirs."""
_CUT_OFF = "its compressed bytes end too early"


class UnreadableBatch(Exception):
    """The bytes of a batch do not unpack, or not to records; or doing so takes more than is allowed."""


class ReadRecord(NamedTuple):
    """A record as aiokafka's fetcher takes it."""

    offset: int
    timestamp: int | None
    timestamp_type: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    checksum: int | None = None


class _Patience:
    """Bounds the time spent on large batches: the same event loop also sends heartbeats.

    Counted is the thread's own time, and the time on the clock as far as it is several times that. What was spent is
    given back slowly, and something is always left, so that a partition continues whatever is sent to it.
    """

    def __init__(self) -> None:
        self._spent = 0.0
        self._at = time.monotonic()
        self._ends_at = (0.0, 0.0)

    def begin(self) -> None:
        """Begin with one record."""
        now = time.monotonic()
        self._spent = max(0.0, self._spent - _RECOVERY * (now - self._at))
        self._at = now
        self._began = time.thread_time()
        left = max(_LEAST_PATIENCE, _PATIENCE - self._spent)
        self._ends_at = (self._began + left, now + _CLOCK_TIMES * left)

    def over(self) -> bool:
        """Whether this record has taken too long."""
        return time.thread_time() > self._ends_at[0] or time.monotonic() > self._ends_at[1]

    def end(self) -> None:
        """Count what the record took."""
        self._spent += time.thread_time() - self._began


_patience = _Patience()


def unpacked(codec: int, data: bytes | memoryview) -> Iterator[bytes]:
    """Unpack in chunks of bounded size. Raises `UnreadableBatch`.

    What follows the last whole frame and is no frame is skipped, as Kafka's own consumer does for gzip. Records that
    it should have held are found missing when the chunks are read.
    """
    unpack = _CODECS.get(codec)
    if unpack is None:
        raise UnreadableBatch(f"compression codec {codec} is unknown")
    try:
        yield from unpack(memoryview(data))
    except _DAMAGE as error:
        raise UnreadableBatch(f"it cannot be unpacked: {error}") from error


def at_once(codec: int, data: bytes | memoryview, most: int = AT_ONCE) -> bytes | None:
    """Unpack it all; None where that is more than `most` bytes."""
    chunks: list[bytes] = []
    size = 0
    for chunk in unpacked(codec, data):
        size += len(chunk)
        if size > most:
            return None
        chunks.append(chunk)
    return b"".join(chunks)


def _in_frames(unpack: Callable[[memoryview], Frame], data: memoryview) -> Iterator[bytes]:
    """Unpack frames that follow each other, up to bytes that begin no frame."""
    rest = data
    while rest:
        frame = unpack(rest)
        try:
            first = next(frame)
        except StopIteration as end:  # an empty frame
            rest = end.value
            continue
        except (UnreadableBatch, *_DAMAGE):
            if rest is data:
                raise
            return
        yield first
        rest = yield from frame


def _gzip(data: memoryview) -> Frame:
    stream = zlib.decompressobj(wbits=31)
    chunk = stream.decompress(data, _CHUNK)
    while chunk or not stream.eof:
        if not chunk and not stream.unconsumed_tail:
            raise UnreadableBatch(_CUT_OFF)
        yield chunk
        chunk = b"" if stream.eof else stream.decompress(stream.unconsumed_tail, _CHUNK)
    return memoryview(stream.unused_data.lstrip(b"\x00"))


def _snappy(data: memoryview) -> Iterator[bytes]:
    if data[: len(_XERIAL)] == _XERIAL:
        return _in_frames(_xerial, data[_XERIAL_HEADER_BYTES:])
    return _snappy_block(data)


def _xerial(data: memoryview) -> Frame:
    if len(data) < 4:
        raise UnreadableBatch(_CUT_OFF)
    (size,) = unpack_from(">i", data, 0)
    if not 0 <= size <= len(data) - 4:
        raise UnreadableBatch(_CUT_OFF)
    yield from _snappy_block(data[4 : 4 + size])
    return data[4 + size :]


def _snappy_block(block: memoryview) -> Iterator[bytes]:
    packed = bytes(block)
    size = cramjam.snappy.decompress_raw_len(packed)
    if size > _LARGEST_SNAPPY_BLOCK:
        raise UnreadableBatch(f"one block unpacks to {size} bytes, more than {_LARGEST_SNAPPY_BLOCK}")
    content = memoryview(cramjam.snappy.decompress_raw(packed))
    for begin in range(0, len(content), _CHUNK):
        yield bytes(content[begin : begin + _CHUNK])


def _lz4(data: memoryview) -> Frame:
    stream = lz4.frame.LZ4FrameDecompressor()
    chunk = stream.decompress(bytes(data), max_length=_CHUNK)
    while chunk or not stream.eof:
        if not chunk and stream.needs_input:
            raise UnreadableBatch(_CUT_OFF)
        yield chunk
        chunk = b"" if stream.eof else stream.decompress(b"", max_length=_CHUNK)
    return memoryview(stream.unused_data or b"")


def _zstd(data: memoryview) -> Frame:
    end = _end_of_zstd(data)
    stream = zstandard.ZstdDecompressor(max_window_size=_LARGEST_ZSTD_WINDOW)
    with stream.stream_reader(bytes(data[:end])) as reader:
        while chunk := reader.read(_CHUNK):
            yield chunk
    return data[end:]


def _end_of_zstd(data: memoryview) -> int:
    """Where the first frame ends; the library's reader does not say. That of a frame that is cut off is never reached."""
    (magic,) = unpack_from("<I", bytes(data[:4]).ljust(4, b"\x00"))
    if magic & ~0xF == _ZSTD_SKIPPED:
        return 8 + int.from_bytes(data[4:8], "little")
    head = bytes(data[:_LONGEST_ZSTD_HEADER])
    at, last = zstandard.frame_header_size(head), 0
    while not last and at < len(data):
        block = int.from_bytes(data[at : at + 3], "little")
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        at += 3 + (1 if kind == _ZSTD_REPEATED_BYTE else size)
    return at + 4 * zstandard.get_frame_parameters(head).has_checksum


_CODECS: dict[int, Callable[[memoryview], Iterator[bytes]]] = {
    GZIP: partial(_in_frames, _gzip),
    SNAPPY: _snappy,
    LZ4: partial(_in_frames, _lz4),
    ZSTD: partial(_in_frames, _zstd),
}


class _Cursor:
    """Reads numbers and byte strings from chunks, and keeps no more of a string than it has to."""

    def __init__(self, chunks: Iterator[bytes], *, hurried: bool) -> None:
        self._chunks = chunks
        self._hurried = hurried
        self._chunk = b""
        self._at = 0
        self._passed = 0
        self.failed: UnreadableBatch | None = None

    @property
    def read(self) -> int:
        """Bytes read so far."""
        return self._passed + self._at

    def more(self) -> bool:
        """Whether a byte follows."""
        while self._at >= len(self._chunk):
            self._passed += len(self._chunk)
            self._chunk, self._at = b"", 0
            if self._passed > _MOST_UNPACKED:
                raise UnreadableBatch(f"it unpacks to more than {_MOST_UNPACKED} bytes")
            if self._hurried and _patience.over():
                raise UnreadableBatch("it takes too long to unpack")
            chunk = next(self._chunks, None)
            if chunk is None:
                return False
            self._chunk = chunk
        return True

    def byte(self) -> int:
        """Read one byte."""
        if self._at >= len(self._chunk) and not self.more():
            raise UnreadableBatch(_ENDS_EARLY)
        value = self._chunk[self._at]
        self._at += 1
        return value

    def number(self) -> int:
        """Read a number in the variable-length form of format 2."""
        raw = shift = 0
        while shift < 70:
            byte = self.byte()
            raw |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return (raw >> 1) ^ -(raw & 1)
            shift += 7
        raise UnreadableBatch("it holds a number of more than ten bytes")

    def fixed(self, size: int) -> bytes:
        """Read a few bytes."""
        return bytes(self.byte() for _ in range(size))

    def skip(self, size: int) -> None:
        """Pass so many bytes."""
        while size > 0:
            if not self.more():
                raise UnreadableBatch(_ENDS_EARLY)
            step = min(size, len(self._chunk) - self._at)
            self._at += step
            size -= step

    def part(self, size: int, most: int, end: int) -> Part | None:
        """Read a byte string of `size` bytes, or None where that is negative; it must not pass byte `end`.

        Of a string longer than `most` only the beginning is kept. Where time or bytes run out in the middle of one,
        its hash is of what was read, and `failed` says why.
        """
        if size < 0:
            return None
        if self.read + size > end:
            raise UnreadableBatch("a length is larger than its record")
        keep = size if size <= most else EXCERPT_BYTES
        kept: list[bytes] = []
        digest = hashlib.sha256()
        done = 0
        while done < size:
            try:
                if not self.more():
                    raise UnreadableBatch(_ENDS_EARLY)
            except UnreadableBatch as error:
                if size <= most:
                    raise
                self.failed = error
                break
            piece = self._chunk[self._at : self._at + size - done]
            if keep > 0:
                kept.append(piece[:keep])
                keep -= len(piece)
            if size > most:
                digest.update(piece)
            self._at += len(piece)
            done += len(piece)
        content = b"".join(kept)
        return Part(content, size, digest.hexdigest(), done) if size > most else Part.of(content)


_ENDS_EARLY = "its records end too early"


def records_of(
    raw: memoryview, content: Callable[[], Iterator[bytes]], most: int, *, hurried: bool = True
) -> Iterator[ReadRecord]:
    """Read a batch of any format, `raw` as it came, record by record; a record of more than `most`
    bytes as its excerpt. What cannot be read, up to the end of the batch, is one record at the
    batch's last offset that says so.

    `content` begins to unpack its records. `hurried`: the thread has heartbeats to send, so that
    unpacking must not take long.
    """
    legacy = raw[MAGIC_AT] < 2
    read = -1
    try:
        for record in (
            _legacy(raw, content, most, hurried) if legacy else _format_2(raw, content, most, hurried)
        ):
            yield record
            read = record.offset
    except UnreadableBatch as error:
        yield unreadable(raw, read, str(error))


def unreadable(raw: memoryview, read: int, why: str) -> ReadRecord:
    """Make the record that stands for those of a batch after offset `read` (-1: for all) that cannot be read."""
    (first,) = unpack_from(">q", raw, 0)
    if raw[MAGIC_AT] < 2:
        last, timestamp = first, 0
    else:
        last = first + unpack_from(">i", raw, 23)[0]
        (timestamp,) = unpack_from(">q", raw, 35)
    where = f"to {last}" if read < 0 and raw[MAGIC_AT] < 2 else f"{max(first, read + 1)} to {last}"
    digest = hashlib.sha256(raw).hexdigest()
    note = f"{UNREADABLE}: offsets {where}: {why}; the batch has {len(raw)} bytes as it was sent, sha256 {digest}"
    return ReadRecord(
        last, timestamp, 0, None, bytes(raw[:EXCERPT_BYTES]), (Truncation(TRUNCATED, note.encode()),)
    )


def _format_2(
    raw: memoryview, content: Callable[[], Iterator[bytes]], most: int, hurried: bool
) -> Iterator[ReadRecord]:
    (base,) = unpack_from(">q", raw, 0)
    (attributes,) = unpack_from(">h", raw, 21)
    first_timestamp, max_timestamp = unpack_from(">qq", raw, 27)
    (count,) = unpack_from(">i", raw, 57)
    appended = attributes >> 3 & 1
    cursor = _Cursor(content(), hurried=hurried)
    for _ in range(count):
        _patience.begin()
        try:
            length = cursor.number()
            end = cursor.read + length
            cursor.byte()  # attributes, of which none is in use
            timestamp = first_timestamp + cursor.number()
            offset = base + cursor.number()
            key = cursor.part(cursor.number(), most, end)
            value = None if cursor.failed else cursor.part(cursor.number(), most, end)
            headers, left_out = ((), 0) if cursor.failed else _headers(cursor, most, end)
            if not cursor.failed and cursor.read != end:
                raise UnreadableBatch("a record has another length than it says")
        finally:
            _patience.end()
        yield _placed(
            offset, max_timestamp if appended else timestamp, appended, key, value, headers, left_out, most
        )
        if cursor.failed:
            raise cursor.failed
    if cursor.more():
        raise UnreadableBatch("bytes follow after its last record")


def _headers(cursor: _Cursor, most: int, end: int) -> tuple[Headers, int]:
    """Read the headers of one record, and how many were left out beyond `most` bytes."""
    headers: list[tuple[str, bytes | None]] = []
    left_out = size = 0
    for _ in range(cursor.number()):
        name = cursor.part(cursor.number(), most, end)
        if cursor.failed:
            break
        value = cursor.part(cursor.number(), most, end)
        length = (name.length if name else 0) + (value.length if value else 0)
        size += length
        if size > most or cursor.failed:
            left_out += 1
        else:
            # Names are any bytes for Kafka.
            named = name.kept.decode("utf-8", "backslashreplace") if name else ""
            headers.append((named, value.kept if value else None))
        if cursor.failed:
            break
    return tuple(headers), left_out


def _placed(
    offset: int,
    timestamp: int | None,
    timestamp_type: int | None,
    key: Part | None,
    value: Part | None,
    headers: Headers,
    left_out: int,
    most: int,
) -> ReadRecord:
    size = (key.length if key else 0) + (value.length if value else 0) + size_of(headers)
    if left_out or size > most:
        cut = excerpt(key, value, headers, left_out)
        return ReadRecord(offset, timestamp, timestamp_type, *cut)
    return ReadRecord(
        offset, timestamp, timestamp_type, key.kept if key else None, value.kept if value else None, headers
    )


def _legacy(
    raw: memoryview, content: Callable[[], Iterator[bytes]], most: int, hurried: bool
) -> Iterator[ReadRecord]:
    """Read formats 0 and 1, where a compressed message holds a set of messages."""
    (last,) = unpack_from(">q", raw, 0)
    magic, attributes = raw[MAGIC_AT], raw[MAGIC_AT + 1]
    appended = magic and attributes >> 3 & 1
    first = 0
    if magic:  # offsets are relative, and only the last one is stated: the first one needs a pass of its own
        cursor = _Cursor(content(), hurried=hurried)
        _patience.begin()
        inner = 0
        while cursor.more():
            inner = int.from_bytes(cursor.fixed(8), "big")
            cursor.skip(int.from_bytes(cursor.fixed(4), "big"))
        _patience.end()
        first = last - inner
    cursor = _Cursor(content(), hurried=hurried)
    while True:
        _patience.begin()
        try:
            if not cursor.more():
                return
            offset = first + int.from_bytes(cursor.fixed(8), "big")
            length = int.from_bytes(cursor.fixed(4), "big")
            end = cursor.read + length
            cursor.skip(6)  # CRC, magic and attributes
            timestamp = int.from_bytes(cursor.fixed(8), "big", signed=True) if magic else None
            key = cursor.part(int.from_bytes(cursor.fixed(4), "big", signed=True), most, end)
            value = (
                None
                if cursor.failed
                else cursor.part(int.from_bytes(cursor.fixed(4), "big", signed=True), most, end)
            )
        finally:
            _patience.end()
        if appended:
            (timestamp,) = unpack_from(">q", raw, MAGIC_AT + 2)
        yield _placed(offset, timestamp, appended if magic else None, key, value, (), 0, most)
        if cursor.failed:
            raise cursor.failed


def packed_part(raw: memoryview) -> tuple[int, memoryview]:
    """Find the codec of a batch (0: none) and its compressed bytes. Raises `UnreadableBatch`."""
    magic = raw[MAGIC_AT]
    if magic >= 2:
        return raw[22] & 7, raw[HEADER_BYTES:]
    codec = raw[MAGIC_AT + 1] & 7
    at = 26 if magic else 18
    (key,) = unpack_from(">i", raw, at)
    at += 4 + max(0, key)
    (value,) = unpack_from(">i", raw, at)
    if magic == 0 and codec == LZ4:
        raise UnreadableBatch("LZ4 in messages of format 0 is not supported")
    return codec, raw[at + 4 : at + 4 + max(0, value)]


def without_compression(raw: memoryview, content: bytes) -> bytes:
    """Make the same batch of format 2 as it would be uncompressed; its CRC, checked before, no longer holds."""
    head = bytearray(raw[:HEADER_BYTES])
    head[8:12] = (HEADER_BYTES - 12 + len(content)).to_bytes(4, "big")
    head[22] &= ~7
    return bytes(head) + content
