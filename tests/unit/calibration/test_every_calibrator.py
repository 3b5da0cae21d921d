"""What every calibrator must do, whatever it promises: one table of them, the same checks for all."""

import math
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer import LabelledGroup, Threshold
from streamer.calibration import (
    History,
    calibrate_by_age,
    calibrate_segments,
    calibrate_selective,
    calibrate_soft,
    prepare_transductive,
)
from streamer.calibration.registry import calibrator as calibrator_of
from streamer.calibration.shapes import Ramp, Smooth
from streamer.calibration.specification import Sample
from streamer.calibration.threshold import names
from tests import programs
from tests.unit.calibration.named_groups import groups, shuffled, some_groups

Found = Callable[[list[LabelledGroup], float, int], object]

HISTORY = History(prompts=100, cuts=(0.9, 0.5, 0.25, 0.0))
GRID = [0.9, 0.75, 0.5, 0.25, 0.1, -math.inf]
BATCH = [0.95, 0.8, 0.8, 0.5, 0.3]


def ages(some: list[LabelledGroup]) -> dict[str, float]:
    return {group.id: float(len(group.id) + int(group.id[1:]) % 7) for group in some}


def kinds(some: list[LabelledGroup]) -> dict[str, str]:
    return {group.id: "even" if int(group.id[1:]) % 2 == 0 else "odd" for group in some}


def by_specification(name: str) -> Found:
    calibrator = calibrator_of(name)
    return lambda some, alpha, seed: (
        calibrator.calibrate(Sample(groups=some, alpha=alpha, seed=seed, largest=4)).threshold
    )


THRESHOLDS: dict[str, Found] = {
    # `full` reads signals beside scores: tests/unit/calibration/test_full.py.
    **{name: by_specification(name) for name in names() if name not in ("transductive", "full")},
    # Here ages follow from the names of groups: by position, their order would count.
    "age": lambda some, alpha, seed: calibrate_by_age(some, alpha=alpha, ages=ages(some), rho=0.97),
    "selective": lambda some, alpha, seed: calibrate_selective(
        some, alpha=alpha, delta=0.2, history=HISTORY, seed=seed
    ),
}
OTHERS: dict[str, Found] = {
    "selective, no history": lambda some, alpha, seed: calibrate_selective(
        some, alpha=alpha, delta=0.2, seed=seed
    ),
    "transductive": lambda some, alpha, seed: prepare_transductive(some, alpha=alpha, seed=seed),
    "transductive, rbwa": lambda some, alpha, seed: prepare_transductive(
        some, alpha=alpha, method="rbwa", seed=seed
    ),
    "smooth, bb": lambda some, alpha, seed: calibrate_soft(
        some, alpha=alpha, gate=Smooth(0.1), method="bb", seed=seed
    ),
    "ramp": lambda some, alpha, seed: calibrate_soft(some, alpha=alpha, gate=Ramp(0.2), seed=seed),
    "segments, rbwa": lambda some, alpha, seed: calibrate_segments(
        some, segments=kinds(some), alpha=alpha, method="rbwa", fallback="closed", seed=seed
    ),
}
ALL = THRESHOLDS | OTHERS


def level(found: object) -> float:
    """What must fall as the budget grows."""
    if hasattr(found, "threshold_for"):
        served = found.threshold_for("even") if hasattr(found, "own") else found.threshold_for(BATCH)
        return served.value if isinstance(served, Threshold) else served
    return found.level if hasattr(found, "level") else found.value


@settings(max_examples=40, deadline=None)
@given(some=groups(), alphas=st.lists(st.floats(0.02, 0.9), min_size=2, max_size=5), seed=st.integers(0, 99))
@pytest.mark.parametrize("name", sorted(ALL))
def test_a_larger_budget_never_ships_less(name, some, alphas, seed):
    levels = [level(ALL[name](some, alpha, seed)) for alpha in sorted(alphas)]
    assert levels == sorted(levels, reverse=True)


@settings(max_examples=30, deadline=None)
@given(
    some=groups(),
    alpha=st.floats(0.05, 0.6),
    seed=st.integers(-(2**70), 2**70),
    shuffle=st.integers(0, 2**32),
)
@pytest.mark.parametrize("name", sorted(ALL))
def test_the_order_of_groups_and_items_changes_not_one_bit(name, some, alpha, seed, shuffle):
    first = ALL[name](some, alpha, seed)
    again = ALL[name](shuffled(some, np.random.default_rng(shuffle)), alpha, seed)
    assert again == first
    assert repr(level(again)) == repr(level(first))


@settings(max_examples=30, deadline=None)
@given(some=groups(), alpha=st.floats(0.02, 0.9), seed=st.integers(0, 2**40))
@pytest.mark.parametrize("name", sorted(THRESHOLDS))
def test_json_brings_back_what_was_found(name, some, alpha, seed):
    found = THRESHOLDS[name](some, alpha, seed)
    assert found.method == name
    assert found.groups == len(some)
    assert Threshold.from_json(found.to_json()) == found


@pytest.mark.parametrize("name", sorted(ALL))
def test_no_group_at_all_ships_nothing(name):
    if not name.startswith("transductive"):  # there the batch itself may have caps that leave room
        assert level(ALL[name]([], 0.1, 0)) == math.inf


def test_another_process_finds_the_same_to_the_last_bit():
    program = (
        "import numpy as np\n"
        "from tests.unit.calibration.test_every_calibrator import ALL, level\n"
        "from tests.unit.calibration.named_groups import some_groups\n"
        "groups = some_groups(np.random.default_rng(3), 150, levels=1000)\n"
        "print({name: level(find(groups, 0.2, 5)).hex() for name, find in ALL.items()})"
    )
    labelled = some_groups(np.random.default_rng(3), 150, levels=1000)
    here = {name: level(find(labelled, 0.2, 5)).hex() for name, find in ALL.items()}
    assert programs.run(sys.executable, "-c", program).stdout.strip() == str(here)
    assert len(set(here.values())) > len(here) / 2
