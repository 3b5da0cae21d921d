"""The topic `labels`, in: the severity that somebody or something gave to one response."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal

from msgspec import Meta

from streamer.errors import BadMessage
from streamer.events import codes
from streamer.events.cloudevents import data_of
from streamer.events.codec import Event, Reader
from streamer.events.codec import encode as encode_event
from streamer.events.excerpts import excerpt
from streamer.events.identifiers import GateName, Identifier, about, check_identifier, check_name
from streamer.events.limits import DEFAULT_LIMITS, Limits
from streamer.events.responses import Attempt
from streamer.events.topic import Topic, batch_text
from streamer.gates import labeller_names
from streamer.gates.batch_key import BatchKey
from streamer.journal import LabelRevision, Record

SCHEMA: Final = "streamer.labels.v1"

_MOST_SIGNATURE = 200
_MOST_KEY_ID = 64

MOST_FIELDS: Final = 100
_LONGEST_POINTER = 200

Severity = Annotated[float, about("0 is fine, 1 is worst.", ge=0, le=1)]

Pointer = Annotated[str, Meta(max_length=_LONGEST_POINTER, pattern=r"^/[^\u0000]*$")]

FieldSeverities = Annotated[
    dict[Pointer, Severity],
    about(
        "Of single fields of an answer in JSON, by JSON Pointer. They stay on record when texts are erased, names of fields too.",
        max_length=MOST_FIELDS,
    ),
]


NO_SEVERITY: Final = "severity is missing, and so are severities of fields"


class LabelsV1(Event, frozen=True, gc=False, kw_only=True):
    """One severity. A later `labelled_at` by the same labeller replaces the label; every revision is kept."""

    schema: Literal["streamer.labels.v1"]
    gate: GateName
    batch_id: Identifier
    attempt: Attempt = 1
    response_id: Identifier
    severity: Annotated[Severity, about("Of the answer. Absent: the largest of `severities`.")] | None = None
    severities: FieldSeverities = {}  # noqa: RUF012 - msgspec copies an empty literal default for each instance
    kind: Annotated[GateName, about("How the severity was found, for example `human`.")]
    labeller: Annotated[Identifier, about("Who or what found it; recorded in NFKC.")]
    labelled_at: Annotated[
        datetime, about("RFC 3339 with a zone; within the years 1 to 9999 in UTC.", tz=True)
    ]
    signature: (
        Annotated[
            str,
            about(
                "Base64 of the labeller's Ed25519 signature; see docs/security.md.",
                extra_json_schema={"minLength": 1, "maxLength": _MOST_SIGNATURE},
            ),
        ]
        | None
    ) = None
    key_id: (
        Annotated[
            str,
            about(
                "SHA-256 of the labeller's public key, in hexadecimal; goes with `signature`.",
                extra_json_schema={"minLength": 1, "maxLength": _MOST_KEY_ID},
            ),
        ]
        | None
    ) = None

    @property
    def key(self) -> BatchKey:
        """The identity of the decision that is labelled."""
        return BatchKey(self.gate, self.batch_id, self.attempt)


_reader = Reader(LabelsV1, SCHEMA)


def decode_label(value: bytes | None, limits: Limits = DEFAULT_LIMITS) -> LabelsV1:
    """Read a label.

    Raises `BadMessage` with a code of `streamer.events.codes`; nothing else is raised, whatever the
    bytes are.
    """
    value = data_of(value, limits)
    event = _reader.read_whole(value, limits)
    check_label(event, limits)
    return event


def check_label(event: LabelsV1, limits: Limits = DEFAULT_LIMITS) -> None:
    """Check names and signature of a label, wherever it comes from. Raises `BadMessage` (``bad_identifier``,
    ``invalid_field``)."""
    check_name("gate", event.gate)
    check_identifier("batch_id", event.batch_id, limits.max_identifier)
    check_identifier("response_id", event.response_id, limits.max_identifier)
    check_name("kind", event.kind)
    # Checked in its recorded form: normalising may make a name longer, or a blank one empty.
    if (wrong := labeller_names.fault(labeller_names.normalised(event.labeller))) is not None:
        raise BadMessage(codes.BAD_IDENTIFIER, f"labeller {wrong}: {excerpt(event.labeller)}")
    if event.severity is None and not event.severities:
        raise BadMessage(codes.INVALID_FIELD, NO_SEVERITY)
    if (event.signature is None) != (event.key_id is None):
        raise BadMessage(codes.INVALID_FIELD, "signature and key_id go together; one of them is missing")
    if event.signature is not None and event.key_id is not None:
        check_identifier("signature", event.signature, _MOST_SIGNATURE)
        check_identifier("key_id", event.key_id, _MOST_KEY_ID)


def encode_label(event: LabelsV1) -> bytes:
    """Write a label as a publisher would."""
    return encode_event(event)


def fields_text(fields: Mapping[str, float] | None) -> str:
    """Say the severities of fields, behind that of the answer."""
    return f" ({', '.join(f'{name} {one:g}' for name, one in fields.items())})" if fields else ""


def label_revision(event: LabelsV1, record: Record | None = None) -> LabelRevision:
    """Turn a label into what the store keeps; `record` is where it was read, None for a file or a page."""
    return LabelRevision(
        key=event.key,
        response_id=event.response_id,
        severity=max(event.severities.values()) if event.severity is None else event.severity,
        severities=tuple(sorted(event.severities.items())),
        raw_severity=None,
        kind=event.kind,
        labeller=labeller_names.normalised(event.labeller),
        labelled_at=event.labelled_at,
        record=record,
        signature=event.signature,
        key_id=event.key_id,
    )


SPECIFICATION = Topic(
    name="labels",
    place=10,
    says="Severities",
    key="the batch id, so that revisions of a label keep their order",
    event=LabelsV1,
    decode=decode_label,
    written_by="labellers",
    read_by=("workers",),
    line=lambda event, _: [
        event["gate"],
        batch_text(event),
        event["response_id"],
        f"{event['kind']} {event['severity']:g}{fields_text(event.get('severities'))}"
        if event.get("severity") is not None
        else f"{event['kind']}{fields_text(event['severities'])}",
        f"by {event['labeller']}",
    ],
)
