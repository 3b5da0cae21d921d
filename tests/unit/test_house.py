"""The house keeps within its budgets: see tests/house.py."""

import pytest

from tests.house import BUDGETS, counts


@pytest.mark.parametrize("name", BUDGETS)
def test_a_count_keeps_within_its_budget(name: str) -> None:
    budget, _ = BUDGETS[name]
    assert counts()[name] <= budget, "find something that can go: python -m tests.house"
