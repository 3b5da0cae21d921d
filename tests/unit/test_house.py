"""The house keeps within its budgets, and its inventory is current: see tests/house.py and tests/inventory.py."""

import json

import pytest

from tests.house import BUDGETS, counts
from tests.inventory import FILE, inventory


@pytest.mark.parametrize("name", BUDGETS)
def test_a_count_keeps_within_its_budget(name: str) -> None:
    budget, _ = BUDGETS[name]
    assert counts()[name] <= budget, "find something that can go: python -m tests.house"


def test_the_inventory_is_current() -> None:
    kept, found = json.loads(FILE.read_text("utf-8")), inventory()
    for section in {**kept, **found}:
        lost = set(kept.get(section, ())) - set(found.get(section, ()))
        new = set(found.get(section, ())) - set(kept.get(section, ()))
        assert (lost, new) == (set(), set()), f"{section}: if this is meant, run python -m tests.inventory"
