"""Record batches of format 2, as bytes."""

from collections.abc import Callable, Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder

Sent = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]

_HEAD_BYTES = 61


def plain_batch(records: Sequence[Sent]) -> bytes:
    """A batch that is not compressed, from offset 0 on."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=1 << 31,
    )  # fmt: skip
    for number, (key, value, headers) in enumerate(records):
        builder.append(number, timestamp=1000 + number, key=key, value=value, headers=headers)
    return bytes(builder.build())


def packed(
    plain: bytes, packing: tuple[int, Callable[[bytes], bytes]] | None = None, *, first: int = 0
) -> bytes:
    """The same from another offset on, compressed by a codec; its CRC is not right, which nothing here looks at."""
    head, content = bytearray(plain[:_HEAD_BYTES]), plain[_HEAD_BYTES:]
    head[0:8] = first.to_bytes(8, "big")
    if packing is not None:
        codec, pack = packing
        content = pack(content)
        head[8:12] = (49 + len(content)).to_bytes(4, "big")
        head[22] |= codec
    return bytes(head) + content
