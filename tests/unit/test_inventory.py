"""Nothing that users build upon comes, goes or changes without a line in the diff of tests/inventory.json."""

import json

from tests.inventory import FILE, inventory


def test_the_inventory_is_current() -> None:
    kept, found = json.loads(FILE.read_text("utf-8")), inventory()
    for section in {**kept, **found}:
        lost = set(kept.get(section, ())) - set(found.get(section, ()))
        new = set(found.get(section, ())) - set(kept.get(section, ()))
        assert (lost, new) == (set(), set()), f"{section}: if this is meant, run python -m tests.inventory"
