"""Case 25: labels by somebody else, in anybody's name, on a gate that names its labellers and demands signatures."""

import csv
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from streamer import wiring
from streamer.audit import signing
from streamer.events.labels import SCHEMA
from streamer.gates.batch_key import BatchKey
from streamer.journal import LabelRevision
from streamer.settings.settings import load_settings
from streamer.signing.labels import statement
from streamer.store import Store
from streamer.store.db.schema import batches, control_head, label_revisions, responses
from tests.faults.matrix import Matrix
from tests.faults.site import GATE, Site, calibrated_now, publish, wait_until

BATCHES = 40
INVENTED = 50
OTHER = "other-gate"
ANA, THIEF = "ana.pem", "thief.pem"


class Labelled:
    """A gate whose drawn responses ana labels, and a store that knows her public key."""

    def __init__(self, site: Site) -> None:
        self.site = site
        for name, file in (("ana", ANA), ("ana", THIEF)):
            site.command("label", "keygen", name, "--out", file)
        self.store = self.open(ANA)
        with site.store._database.engine.connect() as connection:
            self.record_id = bytes(connection.execute(sa.select(control_head.c.record_id)).scalar_one())
            self.drawn = list(
                connection.execute(
                    sa.select(batches.c.batch_id, responses.c.response_id)
                    .join_from(responses, batches, batches.c.id == responses.c.batch)
                    .where(responses.c.drawn)
                    .order_by(batches.c.id, responses.c.position)
                ).all()
            )
        self.published = 0

    def open(self, key: str) -> Store:
        public = (self.site.directory / f"{key}.pub").read_text("utf-8")
        store = wiring.open_store(
            load_settings(
                kafka=self.site.settings.kafka.model_dump(),
                database=self.site.settings.database.model_dump(),
                labels={"public_keys": public},
            )
        )
        self.site.stack.callback(store.close)
        return store

    def label(self, place: int, severity: float, **changes: Any) -> LabelRevision:
        batch, response = self.drawn[place]
        fields: dict[str, Any] = {
            "key": BatchKey(GATE, batch, 1), "response_id": response, "severity": severity, "raw_severity": None,
            "kind": "human", "labeller": "ana", "labelled_at": wiring.now().replace(microsecond=0),
        }  # fmt: skip
        return LabelRevision(**(fields | changes))

    def signed(self, label: LabelRevision, key: str = ANA) -> LabelRevision:
        pem = (self.site.directory / key).read_text("utf-8").partition("\n")[2]
        signer = signing.Signer(pem)
        value = signer.sign(statement(label, record_id=self.record_id))
        return replace(label, signature=value, key_id=signer.key_id)

    def tell(self, labels: list[LabelRevision]) -> None:
        """Publish labels and wait until each has its outcome."""
        before = self.site.recorded()
        with wiring.publisher(self.site.settings) as publisher:
            for one in labels:
                event = {
                    "schema": SCHEMA, "gate": one.key.gate, "batch_id": one.key.batch_id, "attempt": one.key.attempt,
                    "response_id": one.response_id, "severity": one.severity, "kind": one.kind,
                    "labeller": one.labeller, "labelled_at": one.labelled_at.isoformat(),
                    "signature": one.signature, "key_id": one.key_id,
                }  # fmt: skip
                publisher.send(
                    wiring.topics(self.site.settings).labels,
                    json.dumps(event).encode(),
                    key=one.key.batch_id.encode(),
                )
        self.published += len(labels)
        wait_until(lambda: self.site.recorded() == before + len(labels), "every label has an outcome")

    def said(self, store: Store | None = None) -> tuple[Any, ...]:
        """What the labels say: to the queue, to those who watch, and to a calibration."""
        store = store or self.store
        severities = store.labels.severities(GATE, "human")
        run = calibrated_now(store)
        return (
            [severities.get(BatchKey(GATE, batch, 1), response) for batch, response in self.drawn],
            store.labels.pending()[GATE],
            [one.threshold for one in run.candidates],
        )


@pytest.mark.slow
def test_nobody_else_speaks_for_ana(site: Site, matrix: Matrix) -> None:
    site.start_worker()
    publish(site, 0, BATCHES)
    wait_until(lambda: site.decided() == BATCHES, "all batches are decided")
    world = Labelled(site)
    site.store.gates.create(OTHER, site.store.gates.get(GATE).settings, by="test", reason="test")
    with (site.directory / "ana.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["gate", "batch_id", "response_id", "severity", "kind", "labeller"])
        for place, (batch, response) in enumerate(world.drawn[:-4]):
            table.writerow([GATE, batch, response, float(place % 5 == 0), "human", "ana"])
    keys = {"STREAMER_LABELS_PRIVATE_KEYS_FILE": ANA, "STREAMER_LABELS_PUBLIC_KEYS_FILE": f"{ANA}.pub"}
    site.command("label", "import", "ana.csv", "--sign", **keys)
    honest = world.said()

    later = wiring.now() + timedelta(seconds=1)
    attack = [world.label(place, 0.0, labelled_at=later) for place in range(len(world.drawn))]
    attack += [
        world.label(place, 0.0, labeller=f"person {n}", labelled_at=later)
        for n in range(INVENTED)
        for place in range(0, len(world.drawn), 7)
    ]
    attack += [
        world.signed(one, THIEF)
        for one in (
            world.label(place, 0.0, labelled_at=later + timedelta(seconds=1))
            for place in range(len(world.drawn))
        )
    ]
    with site.store._database.engine.connect() as connection:
        first = (
            connection.execute(sa.select(label_revisions).order_by(label_revisions.c.id)).mappings().first()
        )
    assert first is not None
    hers = world.signed(world.label(1, 0.0, labelled_at=first["labelled_at"]))
    worst = world.label(0, 1.0, labelled_at=first["labelled_at"])
    assert (hers.severity, worst.key.batch_id) == (0.0, first["batch_id"])
    attack += [
        replace(hers, key=worst.key, response_id=worst.response_id, labelled_at=later),
        replace(hers, key=BatchKey(OTHER, hers.key.batch_id, 1)),
        replace(hers, labelled_at=later + timedelta(seconds=2)),
        replace(hers, labeller="ben"),
    ]
    world.tell(attack)
    assert world.said() != honest, "whoever writes the topic speaks for everybody where nothing is demanded"

    site.command(
        "gate", "set", GATE, "--labellers", "ana", "--signed-labels", "--reason", "somebody forges labels"
    )
    assert site.store.policies.newest(GATE).state == "closed", (
        "its threshold may rest on labels that are not read"
    )
    assert world.said() == honest
    world.tell([replace(one, labelled_at=one.labelled_at + timedelta(minutes=1)) for one in attack])
    assert world.said() == honest
    unread = world.store.labels.unread()[GATE]
    assert unread.others >= INVENTED
    assert unread.unsigned >= 2 * len(world.drawn)
    shown = site.command("threshold", "show", GATE, **keys)
    assert f"{unread.others} by labellers that the gate does not read" in " ".join(shown.stdout.split())

    # Ana goes on by the topic, and a reader that lost trust in her key reads nothing of hers.
    world.tell([world.signed(world.label(len(world.drawn) - 1, 1.0))])
    after = world.said()
    assert after[0][-1] == 1.0
    assert after[1] == honest[1] - 1
    assert set(world.said(world.open(THIEF))[0]) <= {0.0, None}
    assert world.open(ANA).evidence.log_faults() == []
    found = site.check()
    assert (found.labels, found.dead_letters) == (world.published, 0)
    matrix.add("25 labels in others' names, invented, copied, of other keys", found)
