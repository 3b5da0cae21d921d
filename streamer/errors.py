"""Kinds of error: a bad message, an unavailable dependency, a lost lease, a usage error."""

import errno
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

_MOST_CHARACTERS = 1 << 20


def why(error: OSError | UnicodeError) -> str:
    """Say what the system has against a folder or file; of a folder that cannot be made, that a file is in its place."""
    if isinstance(error, FileExistsError | NotADirectoryError):
        return "a file stands where a folder should be"
    return getattr(error, "strerror", None) or str(error)


@contextmanager
def cannot(do: str, advice: str = "") -> Iterator[None]:
    """Raise `UsageError` for what the system has against a file, beginning with what cannot be done: ``write out.csv``."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        raise UsageError(f"cannot {do}: {why(error)}{advice}") from error


def small_text(path: Path) -> str:
    """Return the text of a file that holds one value. Raises `OSError` for a very long one: a device may never end."""
    with path.open(encoding="utf-8") as file:
        text = file.read(_MOST_CHARACTERS + 1)
    if len(text) > _MOST_CHARACTERS:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return text


def named_beside(file: Path, added: str) -> Path:
    """Return the file whose name is that of `file` and `added`. Raises `UsageError` where `file` has no name, as ``/`` and ``.``."""
    if not file.name:
        raise UsageError(f"{file} is a folder; name a file")
    return file.with_name(file.name + added)


class StreamerError(Exception):
    """Root of the errors that this package raises on purpose; its text is written for people."""


class UsageError(StreamerError):
    """What was asked cannot be done as asked; the message says what to do instead."""


class TryLater(UsageError):
    """It cannot be done now but will be possible later: something else is under way, or nothing exists yet."""


class UnfitText(UsageError):
    """A text is longer or shorter than its column takes: nothing was written."""


class NotFittedError(UsageError, ValueError, AttributeError):
    """Something was asked of a `streamer.Gate` that only a fitted one knows; of the same kinds as scikit-learn's error."""


class BadMessage(StreamerError):
    """A message that no retry can help: it is recorded, dead-lettered and passed.

    Parameters
    ----------
    code : stable, low-cardinality identifier, for example ``not_json``; a metric label.
    detail : one sentence for people, without the message's content beyond a short excerpt.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class BadData(StreamerError):
    """The database refuses a value: the same one never passes, others may.

    The text names the kind of error and never quotes a value: those are people's texts.
    """


class DatabaseFault(StreamerError):
    """The database refuses whatever it is asked (a table is missing, an index is damaged): an operator must repair it."""


class Unavailable(StreamerError):
    """A dependency (database, broker, encoder) is unavailable; the same call may succeed later, so retry with back-off."""


class EncoderGivenUp(StreamerError):
    """The encoder has been unavailable for longer than it is waited for: what needs it is held."""


class LeaseLost(Unavailable):
    """The lease under which something was to be written is another process's, or has expired: nothing was written."""


class Unreadable(StreamerError):
    """What is stored has a value that this program never writes; no retry helps, `streamer audit verify` names its row."""


class TopicRecreated(StreamerError):
    """A topic was deleted and recreated since its progress was stored.

    Parameters
    ----------
    topic : its name.
    """

    def __init__(self, topic: str) -> None:
        super().__init__(f"the topic {topic} was recreated since its progress was stored")
        self.topic = topic


class Outdated(StreamerError):
    """Decisions that must not be recorded any more: their policy was superseded, or a deadline passed. Decide them again.

    Parameters
    ----------
    gates : those whose batches need a new decision; what was decided for others stands.
    """

    def __init__(self, detail: str, gates: Collection[str]) -> None:
        super().__init__(detail)
        self.gates = frozenset(gates)


class Fenced(StreamerError):
    """Another worker holds this partition's lease: whatever was to be written must not be."""
