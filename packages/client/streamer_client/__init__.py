"""The client of `streamer serve`: one call decides, and whatever goes wrong holds. It loads httpx2 and msgspec alone."""

from streamer_client.clients import AsyncClient, Client
from streamer_client.decisions import Decision, DeskOutcome, Trouble
from streamer_client.requests import Batch, Label

__all__ = ["AsyncClient", "Batch", "Client", "Decision", "DeskOutcome", "Label", "Trouble"]
