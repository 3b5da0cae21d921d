"""The review page's side of the record, on both databases: who has what, what is stored, and in which order it counts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from streamer.gates.batch_key import BatchKey
from streamer.review.items import Mark, Reviewer, ReviewItem, UnknownItem
from streamer.store.db.schema import label_revisions
from streamer.store.labels.reviews import candidates
from streamer.store.labels.reviews import taken as take_row
from tests.at_once import at_once
from tests.integration.store.conftest import START, World
from tests.recorded import risk_estimates

GATES = ["support-bot"]
NOW = START + timedelta(hours=1)
HOLD = timedelta(minutes=10)
ANA, BEN = Reviewer(labeller="ana", holder="a1"), Reviewer(labeller="ben", holder="b1")


def fill(world: World, count: int, **changes: Any) -> None:
    decisions = [world.decision(n, f"b{n}", at=START + timedelta(seconds=n), **changes) for n in range(count)]
    world.keep(*decisions)


def take(world: World, who: Reviewer = ANA, *, now: datetime = NOW) -> ReviewItem | None:
    return world.store.reviews.next(who, GATES, hold=HOLD, now=now)


def have(world: World, who: Reviewer = ANA, *, now: datetime = NOW) -> ReviewItem:
    item = take(world, who, now=now)
    assert item is not None
    return item


def give(
    world: World,
    item: ReviewItem,
    severity: float,
    who: Reviewer = ANA,
    *,
    now: datetime = NOW,
    **changes: Any,
) -> None:
    fields = {"token": item.token, "severity": severity, "name": f"m{item.marks}", "count": item.marks + 1}
    world.store.reviews.mark(who, Mark(**(fields | changes)), now=now)


def batch_of(world: World, item: ReviewItem) -> str:
    ((batch,),) = world.rows(
        "SELECT b.batch_id FROM review_offers o JOIN batches b ON b.id = o.batch WHERE o.token = :token",
        token=item.token,
    )
    return str(batch)


def revisions(world: World, batch_id: str) -> Sequence[Any]:
    return world.rows(
        "SELECT severity, labeller, kind, source FROM label_revisions WHERE batch_id = :batch ORDER BY id",
        batch=batch_id,
    )


def present(world: World, batch_id: str) -> float | None:
    return world.store.labels.severities("support-bot", "human").get(
        BatchKey("support-bot", batch_id, 1), "b"
    )


def test_one_person_has_the_claims_of_an_answer_until_one_is_wrong(new_world: Callable[..., World]):
    world = new_world()
    world.gate(unit="claim", scorer="support", encoder="none")
    fill(world, 2, scores=(0.4, 0.9), drawn=(0, 1))

    def asked() -> list[tuple[str, str]]:
        return [(one.key.batch_id, one.response_id) for one in world.store.labels.queue()]

    first, other = have(world), have(world, BEN)
    assert [batch_of(world, one) for one in (first, other)] == ["b0", "b1"]
    assert asked() == [("b0", "b"), ("b0", "a"), ("b1", "b"), ("b1", "a")]
    give(world, first, 1.0)
    assert asked() == [("b1", "b"), ("b1", "a")]
    assert world.store.labels.pending() == {"support-bot": 2}
    give(world, other, 0.5, BEN)
    assert asked() == [("b1", "a")]
    world.store.labels.add(
        [world.label(0.0, "b0", labeller="eve")], now=NOW
    )  # they disagree: it may be half wrong
    assert asked() == [("b0", "a"), ("b1", "a")]
    world.store.labels.add([world.label(1.0, "b0", labeller="eve", at=NOW)], now=NOW)
    assert asked() == [("b1", "a")]


def test_the_oldest_decision_comes_first_and_a_page_keeps_what_it_has(world: World):
    fill(world, 3)
    first = have(world)
    wanted = ("b0", "prompt one", "one answer 1 — ünïcode")
    assert (batch_of(world, first), first.prompt, first.text) == wanted
    assert (first.references, first.others, first.marks, first.severity) == (("ref", "other"), 1, 0, None)
    assert have(world) == first
    assert world.store.reviews.others(ANA, first.token) == ["one answer 0 — ünïcode"]
    assert batch_of(world, have(world, BEN)) == "b1"
    assert batch_of(world, have(world, replace(ANA, holder="a2"))) == "b2", "another page of the same person"
    assert take(world, replace(BEN, holder="b2")) is None
    give(world, first, 0.25)
    assert revisions(world, "b0") == [(0.25, "ana", "human", "review")]
    assert take(world) is None


def test_a_claim_that_nobody_renews_is_anybodys_and_a_late_mark_is_kept_all_the_same(world: World):
    fill(world, 1)
    item = have(world)
    almost, later = NOW + timedelta(minutes=9), NOW + timedelta(minutes=18)
    assert take(world, BEN, now=almost) is None
    assert world.store.reviews.renew(ANA, item.token, hold=HOLD, now=almost)
    assert take(world, BEN, now=later) is None
    gone = later + timedelta(minutes=2)
    of_ben = have(world, BEN, now=gone)
    assert of_ben.token != item.token
    assert not world.store.reviews.renew(ANA, item.token, hold=HOLD, now=gone)
    give(world, item, 1.0, now=gone)
    give(world, of_ben, 0.0, BEN, now=gone)
    assert present(world, "b0") == 0.5
    assert not world.rows("SELECT * FROM review_claims")


def test_who_leaves_frees_at_once_and_a_mark_frees_what_it_is_about_alone(world: World):
    fill(world, 3)
    first, second = have(world), have(world, BEN)
    world.store.reviews.release(BEN)
    give(world, first, 0.0)
    assert batch_of(world, have(world)) == "b1"
    # A page that sends what another page of the same person left behind keeps what it has.
    other_page = replace(ANA, holder="a2")
    third = have(world, other_page)
    give(world, first, 1.0, other_page, count=2, name="again")
    assert have(world, other_page) == third
    assert batch_of(world, second) == "b1"


def test_what_is_skipped_comes_last_for_that_person_and_in_its_place_for_others(world: World):
    fill(world, 3)
    order = []
    for now in (NOW, NOW + timedelta(seconds=1)):
        item = have(world, now=now)
        order.append(batch_of(world, item))
        world.store.reviews.skip(ANA, item.token, now=now)
    assert order == ["b0", "b1"]
    progress = world.store.reviews.progress(ANA, GATES, since=START, now=NOW)
    assert (progress.gates[0].waiting, progress.gates[0].skipped, progress.done) == (3, 2, 0)
    assert batch_of(world, have(world, BEN)) == "b0"
    third = have(world)
    assert (batch_of(world, third), third.skipped) == ("b2", False)
    give(world, third, 0.0)
    again = have(world)
    assert (batch_of(world, again), again.skipped) == ("b1", True), "b0 is with ben"
    give(world, again, 0.0)
    assert world.store.reviews.progress(ANA, GATES, since=START, now=NOW).gates[0].held == 1
    assert world.store.reviews.progress(ANA, GATES, since=START, now=NOW).done == 2


def test_a_mark_that_is_sent_again_is_one_and_one_that_was_overtaken_changes_nothing(world: World):
    fill(world, 1)
    item = have(world)
    for _ in range(2):
        give(world, item, 0.0, name="first", count=1)
    back = world.store.reviews.back(ANA, GATES, before=None, since=START)
    assert (back.token, back.marks, back.severity) == (item.token, 1, 0.0)
    give(world, item, 1.0, name="second", count=2)
    give(world, item, 0.0, name="first", count=1)
    assert [row.severity for row in revisions(world, "b0")] == [0.0, 1.0]
    assert present(world, "b0") == 1.0
    with pytest.raises(UnknownItem):
        give(world, item, 0.0, BEN, count=9)


def test_the_mark_that_was_given_last_counts_within_one_tick_and_when_a_clock_is_put_back(world: World):
    fill(world, 1)
    item = have(world)
    for count, (severity, now) in enumerate(
        [(1.0, NOW), (0.0, NOW), (1.0, NOW), (0.5, NOW - timedelta(days=1)), (0.0, NOW)], start=1
    ):
        give(world, item, severity, now=now, count=count, name=f"m{count}")
        assert present(world, "b0") == severity
    assert len(revisions(world, "b0")) == 5
    with world.store.evidence.snapshot() as snapshot:
        assert list(snapshot.unchained()) == [], "every mark is sealed"


def test_one_goes_back_through_ones_own_marks_and_no_further(world: World):
    fill(world, 4)
    theirs = have(world, BEN)
    for minute in range(3):
        now = NOW + timedelta(minutes=minute)
        give(world, have(world, now=now), minute / 2, now=now)
    give(world, theirs, 1.0, BEN)
    before, found = None, []
    while (item := world.store.reviews.back(ANA, GATES, before=before, since=NOW)) is not None:
        found.append((batch_of(world, item), item.severity))
        before = item.token
    assert found == [("b3", 1.0), ("b2", 0.5), ("b1", 0.0)]
    since = NOW + timedelta(minutes=2)
    assert world.store.reviews.back(ANA, GATES, before=before, since=since) is None
    assert world.store.reviews.back(ANA, [], before=None, since=START) is None
    assert world.store.reviews.renew(ANA, before or "", hold=HOLD, now=NOW), "nobody else is asked for it"


def test_a_gate_that_keeps_no_texts_is_counted_and_not_shown(world: World):
    world.store.gates.revise("support-bot", {"keep_texts": False}, by="ana", reason="texts stay elsewhere")
    world.policy = world.store.policies.newest("support-bot")
    fill(world, 2)
    assert take(world) is None
    (gate,) = world.store.reviews.progress(ANA, GATES, since=START, now=NOW).gates
    assert (gate.waiting, gate.textless) == (0, 2)


def test_a_later_attempt_is_asked_for_where_it_shipped_and_not_where_it_was_held(world: World):
    lease = world.lease()
    shipped = {"actions": ("abstain", "ship"), "attempt": 2}
    world.store.gates.revise("support-bot", {"max_attempts": 3}, by="ana", reason="again")
    world.policy = world.store.policies.newest("support-bot")
    world.commit(
        world.slice(
            lease, world.decision(0, "a"), world.decision(1, "a", attempt=2, content="two"),
            world.decision(2, "b"), world.decision(3, "b", content="two", **shipped),
        )
    )  # fmt: skip
    asked = [(one.key.batch_id, one.key.attempt) for one in world.store.labels.queue()]
    assert asked == [("a", 1), ("b", 1), ("b", 2)]
    assert world.store.labels.pending() == {"support-bot": 3}
    view = world.rows("SELECT batch_id, attempt FROM v_label_queue ORDER BY batch_id, attempt")
    assert [tuple(row) for row in view] == asked
    while (item := take(world)) is not None:
        give(world, item, 0.5)
    (risk,) = risk_estimates(world.store)
    found = (risk.labelled_batches, risk.pending_batches)
    assert found == (4, 0), "what is not asked for leaves nothing pending"
    assert risk.exposure_risk == pytest.approx(0.125)


def test_people_in_several_processes_never_have_the_same(world: World):
    fill(world, 24)
    stores = [world.open() for _ in range(2)]
    shown: list[tuple[str, str]] = []

    def work(number: int) -> None:
        who = Reviewer(labeller=f"person {number}", holder=f"h{number}")
        reviews = stores[number % 2].reviews
        while (item := reviews.next(who, GATES, hold=HOLD, now=NOW)) is not None:
            shown.append((item.token, who.labeller))
            reviews.mark(who, Mark(token=item.token, severity=0.0, name="m", count=1), now=NOW)

    at_once(work, *range(6))
    labelled = world.rows("SELECT batch_id, count(*) FROM label_revisions GROUP BY batch_id")
    assert sorted(count for _, count in labelled) == [1] * 24
    assert len(shown) == 24
    with world.store.evidence.snapshot() as snapshot:
        assert list(snapshot.unchained()) == []


def test_what_a_program_labels_meanwhile_is_taken_from_the_page(world: World):
    fill(world, 1)
    item = have(world)
    world.store.labels.add([world.label(0.5, "b0", labeller="file")])
    assert not world.store.reviews.renew(ANA, item.token, hold=HOLD, now=NOW)
    assert take(world) is None


def test_what_is_labelled_between_looking_and_taking_is_not_taken(world: World):
    fill(world, 2)
    database = world.store._database
    with database.reading() as connection:
        found = connection.execute(candidates(label_revisions, BEN, GATES, NOW)).all()
    give(world, have(world), 0.0)
    taken = database.writing(
        lambda connection: [
            take_row(connection, label_revisions, row, BEN, until=NOW + HOLD, now=NOW) for row in found
        ]
    )
    assert taken == [False, True]
    assert len(world.rows("SELECT * FROM review_claims")) == 1
