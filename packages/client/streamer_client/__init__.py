"""The client of `streamer serve`: one call decides, and whatever goes wrong holds. It loads httpx2 and msgspec alone."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamer_client.clients import AsyncClient, Client
    from streamer_client.decisions import Decision, DeskOutcome, Trouble
    from streamer_client.requests import Batch, Label

__all__ = ["AsyncClient", "Batch", "Client", "Decision", "DeskOutcome", "Label", "Trouble"]


def __getattr__(name: str) -> object:
    """Import what is asked for: the program takes `door` from here, also where httpx2 is not installed."""
    if name in __all__:
        for module in ("clients", "decisions", "requests"):
            found = import_module(f"{__name__}.{module}")
            if getattr(found.__dict__.get(name), "__module__", None) == found.__name__:
                return found.__dict__[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
