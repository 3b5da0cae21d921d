"""Every bridge by name."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from streamer.labels.bridges.argilla import Argilla
from streamer.labels.bridges.bridge import Bridge
from streamer.labels.bridges.label_studio import LabelStudio
from streamer.labels.bridges.langfuse import Langfuse


@cache
def bridges() -> Mapping[str, Bridge]:
    """Return the bridges by the names that the command line gives them."""
    return MappingProxyType({one.name: one() for one in (LabelStudio, Argilla, Langfuse)})
