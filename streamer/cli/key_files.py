"""New keys in new files: the private one for its owner alone."""

import os
from pathlib import Path

from streamer.errors import UsageError, named_beside


def write_key_files(out: Path, private: str, public: str) -> Path:
    """Write both keys; returns the file of the public one, FILE.pub. Raises `UsageError`: no file is overwritten."""
    beside = named_beside(out, ".pub")
    made: list[Path] = []
    try:
        for path, text, mode in ((out, private, 0o600), (beside, public, 0o644)):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            made.append(path)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        # Half a key, or one without the other, is of no use and would stand in the way of the next attempt.
        for path in made:
            path.unlink(missing_ok=True)
        where = error.filename or (made[-1] if made else out)
        raise UsageError(f"cannot write {where}: {error.strerror or error}") from error
    return beside
