"""The script that takes the pictures of docs/console.md still does, and no page of it is wider than a phone."""

from pathlib import Path

from tests import console_pictures
from tests.services.browser import what_the_browser_needs
from tests.services.requirements import missing

MOST_BYTES = 150_000


def test_every_page_has_its_picture(tmp_path: Path) -> None:
    if need := what_the_browser_needs():
        missing(*need)
    assert console_pictures.main(tmp_path) == 0
    taken = {path.stem: path.stat().st_size for path in tmp_path.iterdir()}
    there = {path.stem for path in console_pictures.DOCS.iterdir()}
    assert set(taken) == there, "take them again: python -m tests.console_pictures"
    assert max(taken.values()) < MOST_BYTES
