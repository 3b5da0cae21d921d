"""Why a message is refused: stable codes, each with its meaning. A code is a metric label and a header value."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

EMPTY_VALUE: Final = "empty_value"
TOMBSTONE: Final = "tombstone"
TOO_LARGE: Final = "too_large"
UNREADABLE: Final = "unreadable"
CONFLUENT_FRAMED: Final = "confluent_framed"
NOT_UTF8: Final = "not_utf8"
NOT_JSON: Final = "not_json"
NUL_OR_SURROGATE: Final = "nul_or_surrogate"
NOT_FINITE: Final = "not_finite"
TOO_DEEPLY_NESTED: Final = "too_deeply_nested"
DUPLICATE_KEYS: Final = "duplicate_keys"
WRONG_SCHEMA: Final = "wrong_schema"
UNSUPPORTED_VERSION: Final = "unsupported_version"
INVALID_FIELD: Final = "invalid_field"
BAD_IDENTIFIER: Final = "bad_identifier"
DUPLICATE_RESPONSE_IDS: Final = "duplicate_response_ids"
TOO_MANY_RESPONSES: Final = "too_many_responses"
TEXT_TOO_LARGE: Final = "text_too_large"
BAD_EMBEDDING: Final = "bad_embedding"
MIXED_EMBEDDING_DIMENSIONS: Final = "mixed_embedding_dimensions"
UNKNOWN_GATE: Final = "unknown_gate"
CONFLICTING_CONTENT: Final = "conflicting_content"
INTERNAL_ERROR: Final = "internal_error"


MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        EMPTY_VALUE: "The record's value has no bytes.",
        TOMBSTONE: "The record has no value at all (null), which means deletion on a compacted topic; "
        "here nothing can be deleted.",
        TOO_LARGE: "The value is larger than the limit on one event (1 MiB unless set otherwise), or key, value and "
        "headers together are, by more than 16 KiB; then an excerpt is kept, with length and SHA-256.",
        UNREADABLE: "The compressed batch around these records cannot be unpacked, or not within the bounds on size "
        "and time; the detail names the offsets. An excerpt of the batch is kept.",
        CONFLUENT_FRAMED: "The value starts with the byte 0 and a schema id: a Confluent serializer framed it. "
        "Publish the plain JSON bytes, without a schema registry serializer.",
        NOT_UTF8: "The value is not valid UTF-8.",
        NOT_JSON: "The value is not a JSON text (RFC 8259).",
        NUL_OR_SURROGATE: "The value holds a NUL character or a lone UTF-16 surrogate, raw or escaped; "
        "databases cannot keep these.",
        NOT_FINITE: "A number is NaN, infinite, or beyond what a double holds.",
        TOO_DEEPLY_NESTED: "Arrays and objects are nested deeper than the limit (64 levels unless set otherwise).",
        DUPLICATE_KEYS: "An object has the same key twice, so that two readers could see two different events.",
        WRONG_SCHEMA: "The field `schema` is missing or names another kind of event than this topic carries.",
        UNSUPPORTED_VERSION: "The field `schema` names a version of the event that this release cannot read.",
        INVALID_FIELD: "A field is missing, has the wrong type, or is out of range; the detail names its path.",
        BAD_IDENTIFIER: "A gate, batch_id, response id, kind or labeller is empty, too long, or has characters "
        "that are not allowed.",
        DUPLICATE_RESPONSE_IDS: "Two responses of the batch, or claims of a response, have one id.",
        TOO_MANY_RESPONSES: "The batch has more responses than the limit (256 unless set otherwise).",
        TEXT_TOO_LARGE: "A response's text is larger than the limit (64 KiB of UTF-8 unless set otherwise).",
        BAD_EMBEDDING: "An embedding is all zero, too large or too small to be normalised, its dimension is "
        "out of range (2 to 4096 unless set otherwise), or its base64 does not hold whole float32 numbers.",
        MIXED_EMBEDDING_DIMENSIONS: "Embeddings of one batch differ in dimension, or some responses have one "
        "and others have none.",
        UNKNOWN_GATE: "No gate of this name exists; create it, then replay the dead letter.",
        CONFLICTING_CONTENT: "The same gate, batch_id and attempt was decided before with other content; "
        "the first decision stands, and labels under this batch_id are of its answers.",
        INTERNAL_ERROR: "The record is well formed, and deciding or storing it failed all the same: a fault of this "
        "product or of its database. The detail names the error. Replay the dead letter once the fault is repaired.",
    }
)
"""Every code with one sentence for people. The dead-letter metric starts at zero for each."""
