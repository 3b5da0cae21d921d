"""Figures of small pasts, computed by hand."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from streamer.gates.policy import Policy
from streamer.gates.rule import Cut, Segments
from streamer.gates.settings import GateSettings
from streamer.recalibration.comparison import Reading
from streamer.whatif import Change, Past
from streamer.whatif.figures import audited, figures, watched
from streamer.whatif.replay import replay, replay_record, segments_under
from tests.made import a_policy

START = datetime(2026, 11, 1, tzinfo=UTC)
SETTINGS = GateSettings(encoder="none@00000000", audit_probability=0.5, unit="response")
POLICY = a_policy(SETTINGS, gate="tests", state="cut", threshold=0.5, valid_from=START)
NONE = float("nan")


def a_past(
    batches: Sequence[Sequence[tuple[float, bool, float]]], *, policy: Policy = POLICY, **columns: Any
) -> Past:
    """Batches of responses: score, whether it was drawn, severity."""
    sizes = [len(one) for one in batches]
    flat = [one for batch in batches for one in batch]
    scores, drawn, severities = (np.array(one) for one in zip(*flat, strict=True))
    sampled = np.array([any(one[1] for one in batch) for batch in batches])
    level = POLICY.threshold or 0.0
    with np.errstate(invalid="ignore"):
        shipped = scores > level
    given: dict[str, Any] = {
        "gate": "tests", "numbers": np.arange(len(batches)),
        "batch_ids": [f"b{i}" for i in range(len(batches))],
        "decided_at": [START + timedelta(seconds=i) for i in range(len(batches))],
        "versions": np.ones(len(batches), dtype=np.int64), "policies": {1: policy},
        "sampled": sampled, "probability": np.full(len(batches), 0.5),
        "selected": [None] * len(batches), "cuts": {}, "segments": [None] * len(batches),
        "named": {}, "rows": [None] * len(batches), "needed": [None] * len(batches),
        "starts": np.concatenate(([0], np.cumsum(sizes))),
        "response_ids": [f"r{i}" for size in sizes for i in range(size)], "scores": scores,
        "uniforms": np.full(len(flat), NONE), "blank": np.zeros(len(flat), dtype=np.bool_),
        "shipped": shipped, "drawn": drawn, "severities": severities,
    }  # fmt: skip
    return Past(**(given | columns))


PAST = a_past(
    [
        [(0.9, True, 1.0), (0.4, True, 0.5), (0.2, False, NONE)],
        [(0.8, False, NONE), (0.3, False, NONE)],
        [(0.7, True, NONE), (0.6, True, 0.0)],
        [(0.1, True, 1.0)],
    ]
)


def test_the_record_comes_out_again() -> None:
    assert replay_record(PAST) == []
    (found,) = replay_record(
        replace(PAST, shipped=PAST.shipped ^ np.array([0, 0, 0, 0, 1, 0, 0, 0], np.bool_))
    )
    assert (found.batch_id, found.what, found.detail) == ("b1", "ships", "r1 shipped and is held")
    (found,) = replay_record(replace(PAST, cuts={2: Cut.at(0.6)}))
    assert (found.batch_id, found.what) == ("b2", "cut")
    assert {one.what for one in replay_record(replace(PAST, policies={}))} == {"policy"}
    (found,) = replay_record(replace(PAST, selected=[None, "r0", None, None]))
    assert (found.batch_id, found.what) == ("b1", "selected")


def test_losses_are_means_over_what_was_drawn() -> None:
    ships = np.array([1, 1, 0, 1, 1, 0, 1, 0], dtype=np.bool_)
    found = audited(PAST, ships, "response")
    assert found.loss.tolist() == [0.75, 0.0, 0.0, 0.0]
    assert found.labelled.tolist() == [True, False, True, True]
    assert found.shipped.tolist() == [2 / 3, 1.0, 0.5, 0.0]
    assert found.overdue.sum() == 0


def test_what_is_drawn_and_has_no_label_is_between_0_and_1() -> None:
    ships = np.ones(8, dtype=np.bool_)
    found = figures(PAST, ships, unit="response", alpha=0.2, delta=0.1)
    assert found.exposure.overdue == 1
    # (.75 + 1 for the missing one + 1) / .5 / 4, cut to 1
    assert found.exposure.estimate == 1.0
    assert found.labelled == 4
    assert (found.served, found.shipped, found.answers) == (1.0, 1.0, 8)
    two = PAST.where(np.array([1, 1, 0, 0], dtype=np.bool_))
    rest = figures(two, ships[:5], unit="response", alpha=0.2, delta=0.1)
    assert rest.exposure.decisions == 2
    assert rest.exposure.estimate == pytest.approx(0.75 / 0.5 / 2)
    assert rest.selective.estimate == pytest.approx(0.75 / 0.5 / 2)
    assert rest.labelled == 2
    assert rest.prompts == 2
    assert rest.answers == 5


def test_of_the_best_answer_only_what_was_drawn_is_known() -> None:
    settings = replace(SETTINGS, unit="best")
    past = a_past(
        [[(0.9, True, 1.0), (0.4, False, NONE)], [(0.3, False, NONE), (0.8, True, 0.0)]],
        policy=replace(POLICY, settings=settings),
    )
    ships = replay(past, settings, Reading(Cut.at(0.2), POLICY.rule), salt=b"")
    assert ships.tolist() == [True, False, False, True]
    assert audited(past, ships, "best").overdue.sum() == 0
    other = np.array([False, True, False, True])  # another scorer ranks another first
    found = audited(past, other, "best")
    assert found.overdue.tolist() == [True, False]
    assert found.loss.tolist() == [0.0, 0.0]


def test_what_the_audit_could_not_draw_is_counted_and_not_judged() -> None:
    silent = replace(POLICY, version=2, settings=replace(SETTINGS, audit_probability=0.0))
    past = replace(
        a_past([[(0.9, True, 0.0)], [(0.9, False, NONE)], [(NONE, False, NONE)], [(0.9, False, NONE)]]),
        policies={1: POLICY, 2: silent},
        versions=np.array([1, 2, 1, 1]),
        probability=np.array([0.5, 0.0, 0.0, 1.0]),
    )
    there = watched(past).tolist()
    assert there == [True, False, True, False], "the last was certain to be drawn, and was not"
    found = figures(past, past.shipped, unit="response", alpha=0.2, delta=0.1)
    assert found.exposure.decisions == 2
    assert found.served == 0.75


def test_everything_drawn_and_something_held_unscored() -> None:
    always = replace(POLICY, settings=replace(SETTINGS, audit_probability=1.0))
    past = a_past(
        [[(0.9, True, 1.0)], [(NONE, False, NONE)]], policy=always, probability=np.array([1.0, 0.0])
    )
    found = figures(past, past.shipped, unit="response", alpha=0.2, delta=0.1)
    assert found.exposure.estimate == 0.5
    assert found.exposure.labels == 1, "what was held is known to lose nothing"


def test_a_part_of_the_past_is_as_the_whole() -> None:
    past = replace(
        PAST,
        named={"language": ["de", "en", None, "de"]},
        segments=[None, None, "fr", None],
        cuts={2: Cut.at(0.5)},
    )
    part = past.where(np.array([False, True, True, False]))
    assert part.batch_ids == ["b1", "b2"]
    assert part.scores.tolist() == [0.8, 0.3, 0.7, 0.6]
    assert part.response_ids == ["r0", "r1", "r0", "r1"]
    assert part.starts.tolist() == [0, 2, 4]
    assert part.cuts == {1: Cut.at(0.5)}
    assert part.named == {"language": ["en", None]}
    assert replay_record(part) == []


def test_a_segment_is_as_it_is_named_or_as_it_was_recorded() -> None:
    by_language = replace(POLICY, settings=GateSettings(encoder="none@00000000", segment_by="language"))
    past = replace(
        PAST,
        named={"language": ["de", "en", None, None]},
        segments=[None, None, "fr", None],
        policies={1: by_language},
    )
    assert segments_under(past, "language") == ["de", "en", "fr", None]
    assert segments_under(past, "tone") == [None] * 4
    assert segments_under(past, None) == [None] * 4
    rule = Segments("language", (("de", Cut.at(0.1)), ("en", Cut.at(0.85))))
    settings = replace(SETTINGS, segment_by="language")
    ships = replay(past, settings, Reading(Cut("closed", None), rule), salt=b"")
    assert ships.tolist() == [True, True, True, False, False, False, False, False]


def test_a_change_names_one_thing() -> None:
    with pytest.raises(ValueError, match="one at a time"):
        Change(cut=Cut.at(0.5), policy=2)
    with pytest.raises(ValueError, match="one at a time"):
        Change()
