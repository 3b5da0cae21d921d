"""How often is an early warning false, and how soon does it come after a change, by how good the judge is?

`most_violations` allows what a binomial of the promised chance passes once in a million; beside it stands a variant that is wrong.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from streamer.risk.rounds.alarm_terms import chance_of
from streamer.risk.states import Draw, EarlyWarning, early
from streamer.risk.states.early import cleared
from tests.validity.known_risk import most_violations, repeats

DELTA, STREAMS = 0.1, repeats(200)
EVERY = 5


def marks(rng: np.random.Generator, bad: float, count: int, sens: float, spec: float) -> np.ndarray:
    """A column of truths, and one of what a judge says of them."""
    wrong = rng.random(count) < bad
    return np.column_stack([wrong, np.where(wrong, rng.random(count) < sens, rng.random(count) > spec)])


def rounds(said: np.ndarray) -> Iterator[list[Draw]]:
    for start in range(0, said.size, EVERY):
        yield [Draw(start + n, 0.5, loss=float(x)) for n, x in enumerate(said[start : start + EVERY])]


def raised_after(said: np.ndarray, warning: EarlyWarning) -> int | None:
    """How many answers had shipped when it was raised."""
    for count, made in enumerate(rounds(said), start=1):
        warning = warning.observe(made)
        if warning.raised_at is not None:
            return count * EVERY
    return None


@pytest.mark.parametrize("rate", [0.02, 0.135, 0.4])
def test_a_rate_that_stays_raises_it_no_more_often_than_promised(rate: float):
    rng, size = np.random.default_rng(83), 600
    raised = sum(
        raised_after(rng.random(size) < rate, EarlyWarning.open(delta=DELTA)) is not None
        for _ in range(STREAMS)
    )
    allowed = most_violations(STREAMS, DELTA)
    print(f"rate {rate}: {raised} of {STREAMS}, {allowed} allowed")
    assert raised <= allowed


def test_control_a_rate_that_is_taken_for_known_is_caught(monkeypatch: pytest.MonkeyPatch):
    """That of the first 40 marks in place of the one that fits best."""
    rng, size, raised = np.random.default_rng(89), 600, 0
    for _ in range(200):
        said = rng.random(size) < 0.135
        rate = max(said[:40].mean(), 1 / 40)
        monkeypatch.setattr(
            early,
            "_highest",
            lambda known, bad, rate=rate: bad * np.log(rate) + (known - bad) * np.log1p(-rate),
        )
        raised += raised_after(said, EarlyWarning.open(delta=DELTA)) is not None
    assert raised > most_violations(200, DELTA)


def test_a_rate_that_falls_raises_nothing():
    rng = np.random.default_rng(103)
    for _ in range(50):
        falls = np.concatenate([rng.random(100) < 0.4, rng.random(300) < 0.1])
        assert raised_after(falls, EarlyWarning.open(delta=DELTA)) is None


@pytest.mark.parametrize(
    ("stable", "sens", "spec", "most"),
    [
        *(
            (stable, *judge)
            for stable in (70, 700)
            for judge in ((0.9, 0.95, 25), (0.8, 0.9, 35), (0.6, 0.8, None))
        ),
        (45, 0.9, 0.95, 30),
        (45, 0.8, 0.9, 50),
    ],
)
def test_a_good_judge_warns_before_many_bad_answers_are_out(
    stable: int, sens: float, spec: float, most: int | None
):
    """.097 of what ships is bad, then .667; -rP prints medians. A poor judge comes late, or never."""
    rng, out, delays = np.random.default_rng(97), [], []
    for _ in range(40):
        before, after = (marks(rng, bad, n, sens, spec) for bad, n in ((0.097, stable), (0.667, 300)))
        warning = EarlyWarning.open(delta=chance_of(0.05, 1), false_every=100_000)
        at = raised_after(np.concatenate([before[:, 1], after[:, 1]]), warning)
        delays.append(300 if at is None else max(0, at - stable))
        out.append(after[: delays[-1], 0].sum())
    print(f"{sens}/{spec} after {stable}: {np.median(delays):.0f} answers, {np.median(out):.0f} bad")
    assert (np.median(out) <= most) if most else (np.median(out) > 35)


def test_people_clear_a_false_warning_and_no_true_one():
    """Forty answers of which two have no label, a limit of .208: as bad as ever, and after the change."""
    rng = np.random.default_rng(101)
    let_go = {
        bad: np.mean(
            [cleared([None, None, *(rng.random(38) < bad).astype(float)], 0.208) for _ in range(2000)]
        )
        for bad in (0.097, 0.3, 0.667)
    }
    print(let_go)
    assert let_go[0.097] > 0.8
    assert let_go[0.3] < 0.1
    assert let_go[0.667] == 0
