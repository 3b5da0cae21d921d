"""What a topic says of itself: one specification in its file, from which everything else follows.

Names, creation and checks, the AsyncAPI document and the schemas, docs/events/README.md, access rights (deploy/kafka/acls.sh),
`streamer tail` and the generic tests are made from these. A new topic is one file in this folder, and its stored example.
"""

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from streamer.events.codec import encode as encode_event

Who = Literal["publishers", "labellers", "workers", "consumers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic.

    Attributes
    ----------
    name : the last part of its name, after the prefix.
    place : where it stands in lists; those of the same place stand by name.
    says : what its events are, without a full stop.
    key : what its records are keyed by, without a full stop; order is kept for each key alone.
    event, decode, encode : the type of its events, and how they are read (`BadMessage` and nothing else is raised) and
        written; None and not used for a topic of any bytes.
    written_by, read_by : who may. What publishers or labellers write comes in; operators may read everything.
    one_partition, compacted, kept_forever : how the broker keeps it; otherwise as settings and the broker say.
    has_receipts : whether its events carry the receipt of a decision.
    line : the fields that `streamer tail` shows, from the JSON value (None where it is no JSON) and the headers as text.
    """

    name: str
    place: int = 1000
    says: str
    key: str
    event: type[msgspec.Struct] | None
    decode: Callable[..., Any] | None = None
    encode: Callable[[Any], bytes] = encode_event
    written_by: Who = "workers"
    read_by: tuple[Who, ...] = ("consumers",)
    one_partition: bool = False
    compacted: bool = False
    kept_forever: bool = False
    has_receipts: bool = False
    line: Callable[[Any, Mapping[str, str]], Sequence[str]]

    @property
    def comes_in(self) -> bool:
        """Whether others write it."""
        return self.written_by != "workers"


@cache
def every() -> Mapping[str, Topic]:
    """Return the topics by name, inputs first. Raises `TypeError` when two have the same name."""
    package = __name__.rpartition(".")[0]
    found: dict[str, Topic] = {}
    for module in pkgutil.iter_modules(import_module(package).__path__):
        one = getattr(import_module(f"{package}.{module.name}"), "SPECIFICATION", None)
        if isinstance(one, Topic):
            if one.name in found:
                raise TypeError(f"two topics name themselves {one.name!r}")
            found[one.name] = one
    return MappingProxyType(dict(sorted(found.items(), key=lambda pair: (pair[1].place, pair[0]))))


SCHEMA_VERSION: Final = "v1"


def types() -> dict[str, type[msgspec.Struct]]:
    """Return the type of every event that has a JSON value, by topic and version (``actions.v1``)."""
    return {f"{one.name}.{SCHEMA_VERSION}": one.event for one in every().values() if one.event is not None}


def batch_text(event: Mapping[str, Any]) -> str:
    """Name a batch in a line, with its attempt where it is not the first."""
    attempt = f"#{event['attempt']}" if event.get("attempt", 1) != 1 else ""
    return f"{event['batch_id']}{attempt}"


def bound_text(policy: Mapping[str, Any]) -> str:
    """Write what a score is compared with as the other commands do; the state where there is nothing to compare with."""
    return f"Q > {policy['lambda']:.6g}" if policy.get("lambda") is not None else str(policy["state"])
