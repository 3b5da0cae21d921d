"""What every form of the console has: who sent it, what it holds, and what came of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

from streamer.console.doors import Session
from streamer.errors import StreamerError
from streamer.gates import free_text


class Refused(StreamerError):
    """An answer other than a page: its status, and a sentence for people."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Done(NamedTuple):
    """What a form did: a sentence, or nothing to say, and where the browser goes next."""

    notice: str
    where: str


class Why(TypedDict):
    """Who did something, and why."""

    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A form, and the session that sent it."""

    session: Session
    form: Mapping[str, str]

    def get(self, name: str) -> str:
        """A field; empty where there is none."""
        return self.form.get(name, "")

    @property
    def gate(self) -> str:
        """The gate that it names."""
        return self.get("gate")

    @property
    def by(self) -> str:
        """Who sent it, for the record."""
        return self.session.actor

    @property
    def roles(self) -> list[str]:
        """The roles that are marked."""
        return [role for role in self.get("role").split("\n") if role]

    @property
    def password(self) -> str:
        """The password, given twice. Raises `Refused`."""
        if self.get("password") != self.get("again"):
            raise Refused(409, "the two passwords differ")
        return self.get("password")

    def number(self, name: str) -> int:
        """A whole number. Raises `Refused`."""
        text = self.get(name)
        if not text.isdecimal() or len(text) > 15:
            raise Refused(400, f"the form names no {name}")
        return int(text)

    def why(self, otherwise: str = "") -> Why:
        """Who does it and why, for the record, as the store takes it. Raises `Refused`."""
        reason = self.get("reason").strip() or otherwise
        if not reason:
            raise Refused(409, "say why: it goes on record")
        if (wrong := free_text.fault(reason, free_text.MOST_WHY)) is not None:
            raise Refused(409 if len(reason) > free_text.MOST_WHY else 400, f"the reason {wrong}")
        return {"by": self.by, "reason": " ".join(reason.split())}


Act = Callable[[Sent], Done]
"""What a form does."""
