"""Bets on audit draws: the formula written out, and labels that come late."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest

from streamer.risk.states import Draw, DrawnBets
from streamer.risk.states.drawn_bets import KEPT, MOST_WAITING, STRENGTHS

LIMIT = 0.12


def draws(losses, first=0):
    return [
        Draw(first + n, LIMIT, loss=None if loss is None else float(loss), moment=float(first + n))
        for n, loss in enumerate(losses)
    ]


def weight(k):
    return 1 / (2.10975 * (k + 1) * math.log(k + 1) ** 2)


def written_out(losses, delta, every, factor=lambda u, loss: 1 + u * (loss / LIMIT - 1)):
    """The sum over bets and restarts, each product by itself."""
    rho = 0.0 if every is None else 10 / (every * delta)
    return math.fsum(
        (weight(k) + rho) / 5 * math.prod(factor(u, loss) for loss in losses[start:])
        for u in STRENGTHS
        for k, start in enumerate(range(0, len(losses), 10), start=1)
    )


@pytest.mark.parametrize("every", [None, 1000])
def test_the_evidence_is_the_sum_over_all_bets_and_restarts(every):
    losses = (np.random.default_rng(1).random(57) < 0.1).astype(float)
    bets = DrawnBets(delta=1e-6, false_every=every).after(draws(losses))
    assert bets.evidence == pytest.approx(written_out(losses, 1e-6, every), rel=1e-12)
    assert bets.known_evidence == bets.evidence


def test_the_weights_of_all_restarts_together_are_less_than_one():
    many = 1_000_000  # beyond, the sum is at most the integral 1/ln
    assert math.fsum(map(weight, range(1, many))) + 1 / (2.10975 * math.log(many)) < 1


def test_a_share_that_ships_is_bet_on_by_its_share():
    found = DrawnBets(delta=1e-6, false_every=None).after([Draw(1, 0.3, 0.5, 0.2)]).evidence
    assert found == pytest.approx(sum(weight(1) / 5 * (1 + u * (0.2 / 0.3 - 0.5)) for u in STRENGTHS))


def test_it_is_raised_by_the_first_draw_that_reaches_one_over_delta_and_then_reads_no_more():
    raised = DrawnBets(delta=0.03, false_every=None).after(draws([1.0] * 50, first=7))
    steps = [math.fsum([written_out([1.0] * n, 0.03, None)]) for n in range(1, 10)]
    first = next(n for n, found in enumerate(steps, start=1) if found >= 1 / 0.03)
    assert (raised.raised_at, raised.draws, raised.raised_by) == (first, first, 7 + first - 1)
    assert raised.after(draws([1.0], first=99)) == raised


def test_any_prefix_raises_it_while_later_labels_have_not_come():
    bad = [1.0, None, 1.0, 1.0, 1.0, 1.0]
    quiet = DrawnBets(delta=0.03, false_every=None).after(draws([*bad[:3], *[None] * 30]))
    assert quiet.raised_at is None
    raised = DrawnBets(delta=0.03, false_every=None).after(draws([*bad, *[None] * 30]))
    assert raised.raised_at is not None
    assert raised.raised_at <= 6


def test_a_loss_is_never_lowered_and_rises_with_a_correction_or_a_late_label():
    waits = DrawnBets(delta=1e-6, false_every=None).after(draws([None, 1.0, None]))
    assert [one.number for one in waits.pending] == [0, 2]
    told = waits.after(known={2: 1.0})
    assert told.after(known={2: 0.0}) == told
    done = told.after(overdue=0.0)
    assert done.pending == ()
    assert done == DrawnBets(delta=1e-6, false_every=None).after(draws([0.0, 1.0, 1.0]))
    late = done.after(known={0: 1.0})
    assert late == DrawnBets(delta=1e-6, false_every=None).after(draws([1.0, 1.0, 1.0])).after(known={2: 0.0})
    assert late.evidence > done.evidence
    # A draw that is no longer among the newest stays as it was.
    old = DrawnBets(delta=1e-6, false_every=None).after(draws([0.0] * (KEPT + 1)))
    assert (old.draws, len(old.tail)) == (1, KEPT)
    assert old.after(known={0: 1.0}) == old
    assert old.after(known={1: 1.0}).evidence > old.evidence


def test_the_known_evidence_leaves_out_what_is_not_known():
    bets = DrawnBets(delta=1e-6, false_every=None).after(draws([1.0, None, 1.0, None]))

    def factor(u, loss):
        return 1.0 if loss is None else 1 + u * (loss / LIMIT - 1)

    assert bets.known_evidence == pytest.approx(written_out([1.0, None, 1.0, None], 1e-6, None, factor))
    assert bets.evidence == pytest.approx(written_out([1.0, 0.0, 1.0], 1e-6, None))


def test_labels_in_any_order_end_in_the_same_bits():
    rng = np.random.default_rng(3)
    losses = (rng.random(300) < 0.08).astype(float)
    whole = DrawnBets(delta=1e-9, false_every=1000).after(draws(losses))
    bets = DrawnBets(delta=1e-9, false_every=1000)
    for piece in range(0, 300, 50):
        bets = bets.after(draws([None] * 50, first=piece))
        bets = bets.after(known={int(n): losses[n] for n in rng.permutation(piece + 50)[:30]})
    for n in rng.permutation(300):
        bets = DrawnBets.from_fields(json.loads(json.dumps(asdict(bets))))
        bets = bets.after(known={int(n): losses[n]})
    assert bets == whole


def test_what_waits_is_bounded_and_the_oldest_then_count_nothing():
    bets = DrawnBets(delta=0.03, false_every=None).after(draws([None] * (MOST_WAITING + 25)))
    assert (len(bets.tail), bets.draws, bets.seen) == (MOST_WAITING, 25, MOST_WAITING + 25)
    assert bets.after(known={3: 1.0}) == bets


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (Draw(1, 0.0), "limit"),
        (Draw(1, 1.0), "limit"),
        (Draw(1, 0.5, 0.0), "share"),
        (Draw(1, 0.5, loss=math.nan), "loss"),
        (Draw(1, 0.5, moment=math.inf), "moment"),
        (Draw(0, 0.5), "in order"),
    ],
)
def test_a_draw_that_is_none_is_refused(wrong, why):
    bets = DrawnBets(delta=0.03, false_every=None).after([Draw(0, 0.5)])
    with pytest.raises(ValueError, match=why):
        bets.after([wrong])
    with pytest.raises(ValueError, match="loss"):
        bets.after(known={0: 2.0})


def test_the_chance_of_a_false_alarm_grows_with_the_draws_or_not_at_all():
    assert DrawnBets(delta=0.03, false_every=None).chance(10**9) == 0.03
    every = DrawnBets(delta=0.03, false_every=100_000)
    assert every.chance(0) == 0.03
    assert every.chance(1000) == pytest.approx(0.03 + 1000 / 100_000)
    assert every.chance(10**9) == 1
