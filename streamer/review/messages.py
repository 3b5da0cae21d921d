"""What the page says to its server, read strictly: types, ranges and sizes."""

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from streamer.events.labels import MOST_FIELDS, Pointer
from streamer.gates import free_text

MOST_BYTES = 65_536

MOST_REMARK = 500
"""Characters."""

Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
"""A random name: of a page, an item, a mark."""


class Enter(Struct, forbid_unknown_fields=True):
    """The token of the address."""

    token: Annotated[str, Meta(max_length=200)]


class CallMe(Struct, forbid_unknown_fields=True):
    """The person's name."""

    name: Annotated[str, Meta(max_length=1_000)]


class Page(Struct, forbid_unknown_fields=True):
    """One open page asks."""

    holder: Name


class Item(Struct, forbid_unknown_fields=True):
    """It asks about an item."""

    holder: Name
    item: Name


class Back(Struct, forbid_unknown_fields=True):
    """It requests what was labelled last, or last before an item."""

    holder: Name
    before: Name | None = None


class Give(Struct, forbid_unknown_fields=True):
    """It brings a severity."""

    holder: Name
    item: Name
    severity: Annotated[float, Meta(ge=0, le=1)]
    mark: Name
    count: Annotated[int, Meta(ge=1, le=1_000_000)]
    remark: Annotated[str, Meta(max_length=MOST_REMARK)] = ""
    wrong: Annotated[tuple[Pointer, ...], Meta(max_length=MOST_FIELDS)] = ()


T = TypeVar("T", bound=Struct)


def read(body: bytes, kind: type[T]) -> T:
    """Read one message; raises `ValueError` with what is wrong, never with what the person wrote."""
    try:
        found = msgspec.json.decode(body, type=kind)
    except RecursionError:
        raise ValueError("its arrays and objects are nested too deeply") from None
    for name in kind.__struct_fields__:
        if isinstance(value := getattr(found, name), str) and (wrong := free_text.fault(value, len(body))):
            raise ValueError(f"{name} {wrong}")
    return found
