"""The budget that a decision needed, where people see it: the desk, the story of a decision, and the topic of actions."""

import json
from pathlib import Path

import numpy as np
import pytest

from streamer import wiring
from streamer.audit.story import story_of
from streamer.calibration.full_fit import allowed
from streamer.console.desk import DeskPages
from streamer.console.pages import _story
from streamer.events.actions import SPECIFICATION
from streamer.gates.batch_key import BatchKey
from streamer.gates.rule import Needed
from streamer.scoring.signals.signal_list import SignalList
from streamer.wording.policies import needed_text, smallest_budget, spoke_text
from tests.integration.audit.history import event, label_event, scribing

ALPHA = 0.1


@pytest.mark.parametrize(
    ("count", "alpha", "attempts", "said", "smallest"),
    [
        (32, 0.05, 1, "31 of 250 labelled prompts were wrong and looked at least this good; the budget of 5 % allows 11 besides it", "12.8 %"),
        (2, 0.05, 1, "1 of 250 labelled prompts was wrong and looked at least this good; the budget of 5 % allows 11 besides it", "0.8 %"),
        (1, 0.001, 1, "0 of 250 labelled prompts were wrong and looked at least this good; the budget of 0.1 % allows none, not even it", "0.4 %"),
        (32, 0.1, 2, "31 of 250 labelled prompts were wrong and looked at least this good; the budget of 10 % for 2 attempts allows 11 besides it", "25.5 %"),
        (251, 0.1, 1, "of 250 labelled prompts too few had answers like these, or all were wrong and looked at least this good", None),
    ],
)  # fmt: skip
def test_the_sentence(count: int, alpha: float, attempts: int, said: str, smallest: str | None) -> None:
    needed = Needed(count, 250)
    assert needed_text(needed, alpha=alpha, attempts=attempts) == said
    assert needed.within(alpha, attempts=attempts) == (count <= allowed(alpha, 250, attempts=attempts))
    ships = "no budget ships it" if smallest is None else f"it ships from a budget of {smallest} on"
    assert smallest_budget(needed, attempts=attempts) == ships
    if smallest is not None:
        assert needed.within(float(smallest.removesuffix(" %")) / 100, attempts=attempts)


def test_only_what_spoke_is_named() -> None:
    spoke = {"a": 0.3, "b": 0.2, "c": 0.1, "d": 0.05, "e": 0.001, "f": -0.001, "g": -0.4}
    assert spoke_text(spoke) == "for it: a (+0.30), b (+0.20), c (+0.10); against it: g (-0.40)"
    assert spoke_text({"a": 0.0}) == "for it: nothing; against it: nothing"


def test_what_is_held_says_what_it_was_compared_with_and_waits_in_its_order(tmp_path: Path) -> None:
    with scribing(tmp_path) as (_, store, scribe):
        signals = SignalList().text
        scribe.gate(
            "all", alpha=ALPHA, method="full", scorer="choice", signals=signals,
            hold_action="escalate", desk_deadline_seconds=900.0,
        )  # fmt: skip
        scribe.deliver(event("all", n) for n in range(60))
        uncalibrated = len(store.desk.waiting())
        scribe.deliver(
            (
                label_event("all", n, response=f"r{i}", severity=float(n % 7 > 3))
                for n in range(60)
                for i in range(4)
            ),
            topic="labels",
        )
        scribe.recalibrate("all")
        scribe.deliver(event("all", n) for n in range(60, 100))

        waiting = store.desk.waiting()
        needed = [one.needed for one in waiting]
        known = [one for one in needed if one is not None]
        shares = [one.share for one in known]
        assert len(set(shares)) > 3
        assert shares == sorted(shares)
        assert needed[len(known) :] == [None] * uncalibrated, "what no policy compared comes last"
        untold = [one.until for one in waiting[len(known) :]]
        assert untold == sorted(untold)

        first = waiting[0]
        assert first.needed is not None
        said = needed_text(first.needed, alpha=ALPHA)
        pages = DeskPages(store, clock=wiring.now)
        assert pages.list({})["waiting"][0]["needed"] == smallest_budget(first.needed)
        key = first.key
        query = {"gate": key.gate, "batch": key.batch_id, "attempt": str(key.attempt)}
        assert pages.item(query)["why"] == said

        policy = store.policies.newest("all")
        assert policy.state == "full"
        with store.evidence.snapshot() as snapshot:
            for number in range(60, 100):
                (found,) = snapshot.decisions_of(f"batch-{number}", gate="all")
                told, facts = dict(story_of(found)), found["line"]["facts"]
                ships = facts["outcome"] == "ship"
                if facts["reason"] != "scored":
                    assert "compared" not in told
                    continue
                own = Needed(*facts["budget"])
                assert str(told["compared"]).startswith(needed_text(own, alpha=ALPHA))
                assert own.within(ALPHA) == ships
                sentence = _story(found, {})["sentence"]
                assert sentence == f"{'Shipped' if ships else 'Held'}: {needed_text(own, alpha=ALPHA)}"
                # What each signal spoke adds up to the score of the fit, less that of the mean prompt.
                row = np.frombuffer(bytes.fromhex(facts["signals"]), "<f4").astype(float)
                (prompts,) = policy.rule.prompts
                mean = prompts.rows.mean(axis=0, dtype=float)
                assert sum(found["spoke"].values()) == pytest.approx(prompts.fit.weights[1:] @ (row - mean))
                assert str(told["signals"]) == spoke_text(found["spoke"])
            (before,) = snapshot.decisions_of("batch-1", gate="all")
            assert before["spoke"] is None
            assert "compared" not in dict(story_of(before))

        action = store.action(BatchKey("all", key.batch_id, 1))
        assert SPECIFICATION.line is not None
        line = " ".join(SPECIFICATION.line(json.loads(action.action), None))
        assert f"needs a budget of {100 * first.needed.share:.3g} %, has 10 %" in line
