"""New keys in new files: the private one for its owner alone."""

import os
from pathlib import Path

from streamer.errors import UsageError


def write_key_files(out: Path, private: str, public: str) -> Path:
    """Write both keys; returns the file of the public one, FILE.pub. Raises `UsageError`: no file is overwritten."""
    beside = out.with_name(out.name + ".pub")
    try:
        for path, text, mode in ((out, private, 0o600), (beside, public, 0o644)):
            with os.fdopen(
                os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8"
            ) as file:
                file.write(text)
    except OSError as error:
        raise UsageError(f"cannot write {error.filename}: {error.strerror}") from error
    return beside
