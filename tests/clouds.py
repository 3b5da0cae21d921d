"""Response clouds for tests: parts of the shared files."""

import gzip
from itertools import islice
from pathlib import Path


def first_lines(source: Path, count: int, target: Path) -> Path:
    """Write the first `count` clouds of a gzipped file to `target`, plain, and return it."""
    with gzip.open(source, "rt", encoding="utf-8") as lines:
        target.write_text("".join(islice(lines, count)), encoding="utf-8")
    return target
