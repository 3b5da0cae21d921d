"""An early warning reads marks as they become known, the same however they are cut into pieces."""

import numpy as np
import pytest

from streamer.risk.states import Draw, EarlyWarning


def draws(said: list[float | None], first: int = 0) -> list[Draw]:
    return [Draw(first + n, 0.5, loss=mark, moment=float(first + n)) for n, mark in enumerate(said)]


@pytest.mark.parametrize("size", [1, 7, 60])
def test_pieces_and_json_give_the_bits_of_the_whole(size: int) -> None:
    rng = np.random.default_rng(3)
    said = [float(x) for x in np.concatenate([rng.random(700) < 0.1, rng.random(60) < 0.6])]
    state = whole = EarlyWarning.open(delta=0.05, false_every=1000)
    for at in range(0, len(said), size):
        state = EarlyWarning.from_json(state.to_json()).observe(draws(said[at : at + size], at))
    assert state == whole.observe(draws(said))
    before, was, since = state.bets.rise
    assert abs(before - 700) <= 20
    assert since > 4 * was
    assert state.raised_at is not None
    assert len(state.to_json()) < 2000


def test_a_mark_counts_when_it_comes_and_an_overdue_answer_waits_no_more() -> None:
    state = EarlyWarning.open(delta=0.05).observe(draws([0.0, None, None, 1.0]))
    assert (state.bets.known, state.bets.bad, [one.number for one in state.waiting]) == (2, 1, [1, 2])
    state = state.observe(known={1: 1.0}, overdue=2.0)
    assert (state.bets.known, state.bets.bad, state.waiting) == (3, 2, ())
    assert state.observe(known={2: 1.0}) == state
