"""The receipt of a decision: the leaf of the record that it became, given to whoever gets its action.

The leaf covers the action, and the log's root after it everything that was recorded in its partition before. So whoever keeps
a receipt can hold the record to account, whoever can write the database: `streamer audit verify --receipts`. The leaf is known once the action is, so
that the receipt stands beside the event: in a header of its message, and of the answer by HTTP.
"""

import hashlib
import json
from typing import Final

from streamer.journal import Headers, Partition

RECEIPT_HEADER: Final = "streamer_receipt"
"""In messages; by HTTP it is `streamer-receipt`."""

HTTP_HEADER: Final = "streamer-receipt"

_encode = json.JSONEncoder(separators=(",", ":")).encode  # made once


def receipt(partition: Partition, index: int, leaf: bytes, root: bytes) -> str:
    """Write a receipt: a JSON array of log, topic, partition, the leaf's index (from 0) and hash, and the log's root after it."""
    return _encode([*partition, index, leaf.hex(), root.hex()])


def control_receipt(index: int, leaf: bytes, root: bytes) -> str:
    """Write the receipt of what became of a batch at the desk, a leaf of the control log: `control`, no topic, 0."""
    return _encode(["control", "", 0, index, leaf.hex(), root.hex()])


def with_receipt(headers: Headers, text: str) -> Headers:
    """Add a receipt to a message's headers, last."""
    return (*headers, (RECEIPT_HEADER, text.encode()))


def without_receipt(headers: Headers) -> tuple[Headers, bytes | None]:
    """Take the receipt from a message's headers, which are then those that the record has. None: there is none."""
    if headers and headers[-1][0] == RECEIPT_HEADER:
        return headers[:-1], headers[-1][1]
    return headers, None


def receipt_line(value: bytes | None, headers: Headers) -> bytes | None:
    """Write what is to be kept of a published action, as one line: its receipt, and the SHA-256 of its value.

    None for a message without a receipt.
    """
    _, text = without_receipt(headers)
    if text is None or value is None:
        return None
    line = {"receipt": text.decode("utf-8", "replace"), "sha256": hashlib.sha256(value).hexdigest()}
    return _encode(line).encode()
