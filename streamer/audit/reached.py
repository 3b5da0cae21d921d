"""How far a verification came, remembered in a file outside the database for the next one to begin there."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from streamer.errors import UsageError, named_beside

_FORM = "streamer.verified.v1"


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a verification of a record came that found nothing; hashes are in hexadecimal.

    Of the log of heads at the newest checkpoint that it read are `size` and `root`, and `edge`, the right edge before its last
    leaf. `logs` are the partitions' Merkle logs at that checkpoint: log id, topic, partition, size and right edge.
    """

    record_id: str
    size: int
    root: str
    edge: list[str]
    logs: list[list[Any]]

    def heads(self) -> list[bytes]:
        """Right edge of the log of heads before its last leaf."""
        return list(map(bytes.fromhex, self.edge))

    def edges(self) -> dict[tuple[Any, ...], tuple[int, list[bytes]]]:
        """Size and right edge by partition."""
        return {tuple(place): (size, list(map(bytes.fromhex, edge))) for *place, size, edge in self.logs}


def read_reached(path: Path) -> Reached | None:
    """Read what `write_reached` wrote; None where there is no such file yet. Raises `UsageError` for anything else."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    try:
        fields = json.loads(text)
        form, found = fields.pop("form"), Reached(**fields)
        found.edges()
        if len(found.heads()) != (found.size - 1).bit_count():
            raise ValueError("an edge has a hash for each tree")
    except (ValueError, TypeError, AttributeError, KeyError):
        form, found = None, None
    if form != _FORM or found is None or type(found.size) is not int:
        raise UsageError(
            f"{path} is no file of `streamer audit verify --incremental`; name another one, or remove it to begin anew"
        )
    return found


def write_reached(path: Path, reached: Reached) -> None:
    """Write it in one step, so that a crash leaves the file as it was. Raises `UsageError` where it cannot be written."""
    partial = named_beside(path, ".partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(json.dumps({"form": _FORM} | asdict(reached)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error}") from error
