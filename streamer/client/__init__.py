"""The client of `streamer serve`: one call decides, and whatever goes wrong holds. It loads httpx2 and msgspec alone."""

from streamer.client.clients import AsyncClient, Client
from streamer.client.decisions import Decision, DeskOutcome, Trouble
from streamer.client.requests import Batch, Label

__all__ = ["AsyncClient", "Batch", "Client", "Decision", "DeskOutcome", "Label", "Trouble"]
