"""Case 13, by the rule `auto`: whatever hostile labels come by the topic is recorded, and loosens no policy by itself."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
import sqlalchemy as sa

from streamer import wiring
from streamer.gates.policy import Policy
from streamer.recalibration.comparison import Reading, direction
from streamer.recalibration.one_gate import FinishedRun, recalibrate_by_hand, recalibrate_by_rule
from streamer.store.db.schema import batches, label_revisions, responses
from tests.faults.agreement import agree
from tests.faults.matrix import LONG, Matrix
from tests.faults.site import GATE, Site, calibrated_now, publish, wait_until
from tests.made import a_label

BATCHES = 80
FLOOD = 10_000 if LONG else 1_000
LATER, FAR, FURTHER, FURTHEST = "2026-02-01T00:00:00Z", *(f"299{n}-01-01T00:00:00Z" for n in (7, 8, 9))
"""Later than the honest labels; and from the future, where each counts from the moment at which it came."""

Label = tuple[bytes, bytes]


def label(batch: str, response: str, severity: float, **changes: Any) -> Label:
    return batch.encode(), json.dumps(a_label(GATE, batch, response, severity, **changes)).encode()


class Attacked:
    """A gate under the rule `auto`, without limits that could stand in for the rule, and labels that were honest."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.published = 0
        site.store.gates.revise(
            GATE,
            {
                "alpha": 0.2, "recalibrate": "auto", "least_groups": 1, "max_lambda_step": 1.0, "max_ship_rate_step": 1.0,
            },
            by="ana", reason="by itself",
        )  # fmt: skip
        site.start_worker()
        publish(site, 0, BATCHES)
        wait_until(lambda: site.decided() == BATCHES, "all batches are decided")
        with site.store._database.engine.connect() as connection:
            found = connection.execute(
                sa.select(batches.c.batch_id, responses.c.response_id, responses.c.drawn)
                .join_from(responses, batches, batches.c.id == responses.c.batch)
                .order_by(batches.c.id, responses.c.position)
            ).all()
        self.drawn = [(batch, response) for batch, response, drawn in found if drawn]
        self.undrawn = [(batch, response) for batch, response, drawn in found if not drawn]
        self.tell(self.all_drawn(lambda place: float(place % 3 == 0)))
        done = recalibrate_by_hand(
            site.store.calibration, site.store.policies, site.store.gates.get(GATE),
            clock=wiring.now, by="ana", reason="the first",
        )  # fmt: skip
        assert done.after.state == "cut"
        self.honest = done.after

    def all_drawn(self, severity: Any, **changes: Any) -> list[Label]:
        return [
            label(batch, response, severity(place), **changes)
            for place, (batch, response) in enumerate(self.drawn)
        ]

    def tell(self, labels: Iterable[Label]) -> None:
        """Publish labels and wait until each has its outcome."""
        labels = list(labels)
        before = self.site.recorded()
        with wiring.publisher(self.site.settings) as publisher:
            for key, value in labels:
                publisher.send(wiring.topics(self.site.settings).labels, value, key=key)
        self.published += len(labels)
        wait_until(lambda: self.site.recorded() == before + len(labels), "every label has an outcome")

    def recorded(self) -> int:
        with self.site.store._database.engine.connect() as connection:
            return connection.execute(sa.select(sa.func.count()).select_from(label_revisions)).scalar_one()

    def run(self) -> tuple[FinishedRun, Policy]:
        """What the recalibrator does now, and the policy that is in force after it."""
        store = self.site.store
        done = recalibrate_by_rule(store.calibration, store.policies, store.gates.get(GATE), clock=wiring.now)
        return done, store.policies.newest(GATE)

    def assert_holds(self) -> None:
        """The plain run would loosen, so that there is something to hold; and the policy stays."""
        done, after = self.run()
        assert direction(Reading.of_policy(self.honest), done.run.reading) == "looser"
        assert done.outcome == "proposed"
        assert "highest severities that anybody ever gave" in done.why
        assert after == self.honest


@pytest.mark.slow
def test_no_label_loosens_a_policy_by_itself(site: Site, matrix: Matrix) -> None:
    world = Attacked(site)
    zero = {"severity": 0.0}
    done, after = world.run()
    assert (done.outcome, after) == ("unchanged", world.honest)

    # Somebody else says that all is well, as the same labeller, as another, and from the future.
    for who, when in (("ana", LATER), ("mallory", LATER), ("ana", FAR), ("eve", FAR)):
        world.tell(world.all_drawn(lambda _place: 0.0, labeller=who, labelled_at=when))
    world.assert_holds()

    # A flood of labels for one response, by a hundred labellers.
    batch, response = world.drawn[0]
    world.tell(
        label(
            batch,
            response,
            0.0,
            labeller=f"bot-{number % 100}",
            labelled_at=f"2026-03-01T00:00:00.{number:06}Z",
        )
        for number in range(FLOOD)
    )
    world.assert_holds()

    # What nobody drew, what nobody decided, and other kinds of label: recorded, and read by no run.
    groups = read_now(world)
    strange = [
        *(label(batch, response, **zero, labeller="eve") for batch, response in world.undrawn),
        *(label(f"nowhere-{number}", "r0", **zero) for number in range(200)),
        *(label(batch, f"r{number}", **zero) for number in range(4, 104)),
        *(label(batch, response, **zero, kind="complaint") for batch, response in world.drawn),
        *(label(batch, response, **zero, kind="judge", labelled_at=FAR) for batch, response in world.drawn),
        *(label(batch, response, **zero, attempt=2) for batch, response in world.drawn),
    ]
    world.tell(strange)
    assert read_now(world) == groups
    world.assert_holds()
    assert world.recorded() == world.published, "everything is on record"

    # A complaint about everything does not tighten either: it is of another kind. A severe label does, at once, and
    # taking it back does not loosen.
    world.tell(world.all_drawn(lambda _place: 1.0, kind="complaint", labeller="customers", labelled_at=LATER))
    world.assert_holds()
    world.tell(world.all_drawn(lambda _place: 1.0, labeller="ana", labelled_at=FURTHER))
    for who in ("mallory", "eve"):
        world.tell(world.all_drawn(lambda _place: 1.0, labeller=who, labelled_at=FURTHER))
    done, tight = world.run()
    assert done.outcome == "applied"
    assert direction(Reading.of_policy(world.honest), Reading.of_policy(tight)) == "tighter"
    for who in ("ana", "mallory", "eve"):
        world.tell(world.all_drawn(lambda _place: 0.0, labeller=who, labelled_at=FURTHEST))
    done, after = world.run()
    assert (done.outcome, after) == ("proposed", tight)
    wiring.publish_pending(site.settings)
    assert agree(site) == tight
    assert world.recorded() == world.published
    found = site.check()
    assert (found.labels, found.dead_letters) == (world.published, 0)
    matrix.add("13 labels flipped, flooded, of nothing drawn, of other kinds, by the rule `auto`", found)


def read_now(world: Attacked) -> Any:
    """What a run reads now: groups, items and severities."""
    return calibrated_now(world.site.store).groups
