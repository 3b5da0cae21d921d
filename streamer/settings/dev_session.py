"""The note that a running `streamer dev` leaves in its directory, so that the other commands find its broker."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

DEV_SESSION_FILE = Path(".streamer/dev.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class DevSession:
    """Addresses of a running development session.

    Attributes
    ----------
    bootstrap_servers : of the embedded broker, ``HOST:PORT``.
    log_id : identity of that broker's log; a new session has a new one.
    database_url : where its worker keeps the record; may hold a password, hence the file's mode 0600.
    metrics_url : root of its HTTP endpoints.
    pid : the process that owns the broker; the session is over when it is gone.
    recalibrator_url : root of the recalibrator's HTTP endpoints; None in a session without one.
    """

    bootstrap_servers: str
    log_id: str
    database_url: str
    metrics_url: str
    pid: int
    recalibrator_url: str | None = None


def write_dev_session(session: DevSession, path: Path = DEV_SESSION_FILE) -> None:
    """Leave the note, readable by its owner only; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{session.pid}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(session), file, indent=2)
        file.write("\n")
    draft.replace(path)


def find_dev_session(path: Path = DEV_SESSION_FILE) -> DevSession | None:
    """Read the note of a session that still runs; None when there is none, it is unreadable, or its owner is gone."""
    try:
        session = DevSession(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return session if _is_alive(session.pid) else None


def remove_dev_session(pid: int, path: Path = DEV_SESSION_FILE) -> None:
    """Remove the note if it is still the one that process `pid` left."""
    try:
        owner = json.loads(path.read_text("utf-8")).get("pid")
    except (OSError, ValueError, AttributeError):
        return
    if owner == pid:
        path.unlink(missing_ok=True)


def _is_alive(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return isinstance(pid, int) and pid < 2**31
    return True
