"""A language model behind OpenAI's chat protocol: asked patiently, within bounds, with a record of every exchange.

Asking needs the extra ``judge`` (the package `openai`); everything else here does not.
"""

from streamer.chat.endpoint import ChatEndpoint
from streamer.chat.record import Choice, Exchange, Message, Price, TokenUsage

__all__ = ["ChatEndpoint", "Choice", "Exchange", "Message", "Price", "TokenUsage"]
