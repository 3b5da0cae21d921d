"""A language model behind OpenAI's chat protocol: asked patiently, within bounds, with a record of every exchange.

Asking needs the extra ``judge`` (the package `httpx2`); everything else here does not.
"""

from streamer.labels.llm.endpoint import ChatEndpoint
from streamer.labels.llm.record import Choice, Exchange, Message, Price, TokenUsage

__all__ = ["ChatEndpoint", "Choice", "Exchange", "Message", "Price", "TokenUsage"]
