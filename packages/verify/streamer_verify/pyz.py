"""This package as one file that Python runs: ``python3 -m streamer_verify.pyz verify.pyz``."""

import io
import sys
import zipfile
from importlib.resources import files
from pathlib import Path

_PACKAGE = "streamer_verify"


def archive() -> bytes:
    """Return `verify.pyz`: nothing in it is compressed or dated, so that it has the same bytes wherever it is made."""
    sources = {one.name: one.read_bytes() for one in files(_PACKAGE).iterdir() if one.name.endswith(".py")}
    written = io.BytesIO()
    written.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(written, "w") as packed:
        for name, data in [("__main__.py", sources["__main__.py"]), *sorted(sources.items())]:
            entry = zipfile.ZipInfo(name if not packed.namelist() else f"{_PACKAGE}/{name}")
            entry.create_system = 3
            packed.writestr(entry, data)
    return written.getvalue()


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(archive())
