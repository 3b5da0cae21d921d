"""The message that publishes an event of ours, and the id that its consumers deduplicate on."""

import uuid
from datetime import datetime

from streamer.events import cloudevents
from streamer.events.codec import Event, encode
from streamer.journal import Headers, OutboxMessage
from streamer.signing.canonical_json import canonical_json


def event_id(namespace: uuid.UUID, *about: str | int) -> str:
    """Derive an id from what an event is about: the UUID of version 5, in `namespace`, of the canonical JSON of the array
    `about`. The same cause gives the same id.
    """
    return str(uuid.uuid5(namespace, canonical_json(about).decode()))


def event_message(
    event: Event,
    *,
    topic: str,
    key: bytes | None,
    source: str,
    id: str,  # noqa: A002 - CloudEvents' own name
    subject: str,
    time: datetime,
    value: bytes | None = None,
    trace: Headers = (),
) -> OutboxMessage:
    """Make the message that publishes an event.

    Parameters
    ----------
    key : where order is kept for each key alone.
    source : in whose context it happened, for example ``gate:support-bot``; (source, id) is unique.
    subject, time : what it is about, and when it happened, with zone.
    value : the event as it is written already; None: written here, the same event always as the same bytes.
    trace : headers of what led to it; their trace context is carried on.
    """
    return OutboxMessage(
        topic=topic,
        key=key,
        value=encode(event) if value is None else value,
        headers=cloudevents.headers(
            type=event.schema,
            source=f"urn:streamer:{source}",
            subject=subject,
            time=time,
            id=id,
            dataschema=f"urn:streamer:schema:{event.schema.removeprefix('streamer.').replace('.', ':')}",
            trace=trace,
        ),
    )
