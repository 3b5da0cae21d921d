"""Decisions while the audit rate is raised: all base draws and more, each with its own probability; and who hears of rates."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from streamer.deciding.policy_book import PolicyBook, TrustedPolicies
from streamer.gates.audit_rate import AuditRate
from streamer.gates.batch_key import BatchKey
from streamer.journal import BatchDecision
from streamer.labels.audit_sample import is_sampled
from streamer.signing.policies import NO_KEYS, PolicyVersion
from tests.unit.deciding.test_decider import LIMITS, NOW, World, active, batch, raw

RATE = AuditRate(
    number=3, boosted=True, since=NOW, until=NOW + timedelta(hours=1), evidence=1, extra=0, reason="why"
)
GATE = "bot"


def decided(rate: AuditRate | None, *, count: int = 400, **settings: Any) -> list[BatchDecision]:
    world = World()
    world.sql[GATE] = replace(active(GATE, **{"audit_probability": 0.1} | settings), rate=rate)
    return world.decide(*(raw(batch(batch_id=f"b{n}")) for n in range(count)))


def test_a_raised_rate_takes_what_the_base_takes_and_more() -> None:
    base, raised = decided(None), decided(RATE)
    salt = active(GATE).audit_salt
    for one, other in zip(base, raised, strict=True):
        assert (one.sampling_probability, one.audit_rate, one.extra_draw) == (0.1, None, False)
        assert (other.sampling_probability, other.audit_rate) == (0.4, 3)
        assert one.sampled == is_sampled(salt, BatchKey(*one.key), 0.1)
        assert other.sampled == is_sampled(salt, BatchKey(*other.key), 0.4)
        assert other.extra_draw == (other.sampled and not one.sampled)
        assert {r.id for r in one.responses if r.drawn} <= {r.id for r in other.responses if r.drawn}
    assert 100 < sum(one.extra_draw for one in raised) < 140


def test_a_rate_that_ended_or_a_gate_that_is_never_raised_draws_as_ever() -> None:
    for rate, settings in (
        (replace(RATE, until=NOW), {}),
        (replace(RATE, boosted=False), {}),
        (RATE, {"audit_boost": None}),
        (RATE, {"scorer": "choice", "encoder": "other@12345678"}),  # held without scores
    ):
        for one in decided(rate, count=20, **settings):
            assert (one.audit_rate, one.extra_draw) == (None, False)
            assert one.sampling_probability in (0.1, 0.0)


def test_the_book_takes_up_a_later_rate_of_the_same_policy_and_never_an_earlier_one() -> None:
    held = active(GATE)
    found = {GATE: held}
    book = PolicyBook(lambda _names: dict(found), limits=LIMITS)
    seen = []
    for rate in (None, RATE, replace(RATE, number=2), None, replace(RATE, number=5, boosted=False)):
        found[GATE] = replace(held, rate=rate)
        book.refresh()
        now = book.get(GATE)
        seen.append(now.rate and now.rate.number)
    assert seen == [None, 3, 3, 3, 5]
    found[GATE] = replace(active(GATE, version=9), rate=None)
    book.refresh()
    newest = book.get(GATE)
    assert (newest.policy.version, newest.rate and newest.rate.number) == (9, 5)


def test_a_rate_reaches_workers_with_a_policy_that_was_trusted_before() -> None:
    class Source:
        rate: AuditRate | None = None

        def versions(self, _names: Any = None) -> dict[str, PolicyVersion]:
            found = replace(active(GATE), rate=self.rate)
            return {
                GATE: PolicyVersion(
                    gate=GATE, version=3, active=found, signature=None, key_id=None, record_id=bytes(32)
                )
            }

        def before(self, *_: Any) -> list[PolicyVersion]:
            return []

    source = Source()
    trusted = TrustedPolicies(
        source.versions,
        source.before,
        NO_KEYS,
        on_refused=lambda *_: None,
        raise_alert=lambda *_: None,
        now=lambda: NOW,
    )
    assert trusted(None)[GATE].rate is None
    source.rate = RATE
    assert trusted(None)[GATE].rate == RATE
