"""Tool calls as they are judged and go out: in the canonical form of `streamer.scoring.judged`."""

import msgspec


class Call(msgspec.Struct):
    """A call of a tool; its arguments are JSON, byte for byte as they were scored."""

    name: str
    arguments: msgspec.Raw

    @property
    def text(self) -> str:
        """The arguments, as a text."""
        return bytes(self.arguments).decode()


def calls_of(text: str) -> list[Call]:
    """Read what `call_text` has written: nothing, one call, or an array of several."""
    return msgspec.json.decode(text if text.startswith("[") else f"[{text}]", type=list[Call])
