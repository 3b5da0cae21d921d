"""Attacks on the record, each in four ways, and who names them: the table in docs/audit.md.

``python -m tests.integration.audit.tampering_table`` writes the table anew.
"""

from __future__ import annotations

import json
import math
import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

import streamer.store.log.commit as commits
from streamer import wiring
from streamer.audit import signing
from streamer.audit.checkpointing import Checkpointer
from streamer.events.alerts import alert
from streamer.events.checkpoints import encode_checkpoint
from streamer.gates.audit_rate import AuditRate
from streamer.gates.batch_key import BatchKey
from streamer.gates.rule import Cut
from streamer.labels.judge import JudgeClient
from streamer.recalibration import age_cut
from streamer.scoring.encoders.identity import EncoderIdentity
from streamer.settings.settings import Settings
from streamer.signing.canonical_json import canonical_json
from streamer.signing.merkle import Edge, leaf_hash
from streamer.signing.notes import Restoration, origin_of
from streamer.store import Store, prune
from streamer.store.audit import control
from streamer.store.calibration.calibration_runs import Calibrations
from streamer.store.db.schema import data_gaps, dead_letters, judgements, outcomes
from streamer.store.db.schema.types import no_evidence
from streamer.store.desk.release_desk import Reject, Release, text_mac
from streamer.store.log.leaves import dead_letter_mac, judgement_mac
from streamer.store.policies import proposals
from streamer.store.policies.policies import Policies
from streamer.store.risk import audit_rates
from tests.integration.audit.attacker import (
    breaking_in,
    rebuild_control,
    rebuild_outcomes,
    remove_checkpoints,
    reseal,
)
from tests.integration.audit.history import PRIVATE, Scribe, event, label, label_event, settings_for, verify
from tests.integration.audit.judged import BY_A_JUDGE, attempts_of
from tests.integration.audit.kept_log import KeepingScribe, KeptLog, Site, Topics
from tests.integration.judge.test_judge_scores import Model, judge_at, scores_at
from tests.migrated import migrated
from tests.run_folder import made_once

PAGE: Final = Path(__file__).parents[3] / "docs" / "audit.md"
BAD: Final = (4, 5, 6, 10, 11, 12, 16, 20, 24, 26, 27)
"""Batches whose answers are all bad; their scores are low."""

WAYS: Final = ("raw", "resealed", "re-signed", "in the window")

Region = str
"""`old`: covered by a checkpoint that is kept outside; `window`: younger than every checkpoint."""


# -- a record, its topics, and the receipts that somebody keeps ------------------------------------------------------


def number_of(url: str, batch_id: str) -> int:
    """Our own number of a batch of the gate `best`."""
    with breaking_in(url) as connection:
        query = sa.text("SELECT id FROM batches WHERE gate = 'best' AND batch_id = :name")
        return int(connection.execute(query, {"name": batch_id}).scalar_one())


def _restoration(reason: str, at: datetime, record_id: str, number: int) -> tuple[Restoration, str]:
    """A restoration that gives up nothing which anybody in the tests has."""
    lost = json.dumps([[f"{origin_of(record_id)}/lost", 9]])
    made = Restoration(number, at, "ana", reason, origin_of(record_id), 0, lost)
    return made, signing.Signer(PRIVATE).sign(made.statement(record_id))


class SiteScribe(KeepingScribe):
    """Writes rows of every kind."""

    labelling: JudgeClient

    @classmethod
    @contextmanager
    def with_judge(cls, store: Store, settings: Settings) -> Iterator[SiteScribe]:
        """One with a judge that marks answers and labels them."""
        with Model() as model, judge_at(model) as judge:
            made = cls(store, settings)
            made.judge, made.labelling = scores_at(model, judge), judge
            yield made

    def govern(self, name: str, erasable: datetime) -> None:
        """Write what people and the service write beside the traffic: alerts, keys, gates, and an erasure."""
        store, at = self.store, wiring.now()
        raised = [
            alert("best", "draws", f"{name} {one}", message="look", raised_at=at, details={"state": "{}"})
            for one in range(2)
        ]
        for one in raised:
            store.alerts.raise_(one)
        store.alerts.acknowledge(raised[0].alert_id, by="ana", reason="seen")
        store.heads.restore(partial(_restoration, name, at), now=at)
        key, _ = store.api_keys.create(gates=None, may=("read",), by="ana", note=name)
        store.api_keys.revoke(key.id, by="ana", reason=name)
        store.dead_letters.replay([store.dead_letters.list()[0].id], by="ana")
        batch = number_of(self.settings.database.url, f"batch-{0 if name == 'old' else 20}")
        store.carried_scores.keep("words@0123456789abcdef", {batch: {f"r{i}": 0.5 for i in range(4)}})
        store.carried_scores.keep_signals("ab" * 32, {batch: bytes(104)})
        store.candidates.start(
            "best", store.gates.get("best").settings, cut=Cut.at(0.5), by="ana", reason=name
        )
        store.policies.close("each", by="ana", reason=name)
        store.gates.revise(
            "each", {"audit_probability": 0.5 if name == "old" else 0.75}, by="ana", reason=name
        )
        prune(
            self.settings.database.url, older_than=at - erasable, now=at, by="ana", reason=name,
            sooner_than_six_months=True,
        )  # fmt: skip

    def beside(self, name: str, first: int) -> None:
        """What comes by the second partition: a gap, a desk, a raised rate, a proposal that somebody rejects; and people."""
        store, now = self.store, wiring.now()
        self.lose(2)
        self.send(*(event("desk", n) for n in range(first, first + 4)), partition=1)
        for number, act in enumerate(
            (Release(response_id="r1", text=f"Better, {name}."), Release(response_id="r2"), Reject()), first
        ):
            store.desk.decide(
                BatchKey("desk", f"batch-{number}", 1), act, by="account:ana", remark=f"as it was, {name}"
            )
        rate = AuditRate(
            boosted=True, since=now, until=now + timedelta(days=9), evidence=0.0, extra=0, reason=name
        )
        store._database.writing(lambda connection: audit_rates.append(connection, "raised", rate, now))
        self.send(*(event("raised", n) for n in range(first, first + 6)), partition=1)
        self.send(*(event("offered", n) for n in range(first, first + 8)), partition=1)
        store.labels.add(
            [
                replace(label("offered", n, labeller="kim"), response_id=f"r{i}", severity=0.0, remark=name)
                for n in range(first, first + 8)
                for i in range(4)
            ]
        )
        wiring.recalibrate(self.settings, "offered", by="ana", reason="labels came", propose=True)
        store.calibration.reject("offered", by="ana", reason=name, now=wiring.now())
        wiring.recalibrate(self.settings, "offered", by="ana", reason="once more", propose=True)
        store.calibration.activate("offered", by="account:ben", reason=name, now=wiring.now())
        self.send(*(event("judged", n) for n in range(first, first + 2)), partition=1)
        attempts = attempts_of(self.labelling, "judged", range(first, first + 2))
        store.judgements.keep(attempts, kind="judge", labeller=self.labelling.id, source="judge")
        store.accounts.add_issued(name, roles=["viewer"], issuer="https://issuer.example", by="ana")
        store.encoders.register(EncoderIdentity("made-up", name, "ab" * 32, 8))


def make_site(directory: Path) -> Site:
    """Copy into a folder a record with rows of every kind, and most of them again after the last checkpoint; written once a run."""

    def make(folder: Path) -> None:
        folder.mkdir()
        (folder / "witnesses").write_bytes(pickle.dumps(_write_site(folder)))

    made = made_once("site", make)
    for name in ("record.db", "checkpoints.jsonl"):
        shutil.copy(made / name, directory)
    topics, receipts = pickle.loads((made / "witnesses").read_bytes())
    return Site(
        directory, settings_for(f"sqlite:///{directory / 'record.db'}", directory), KeptLog(topics), receipts
    )


def _write_site(directory: Path) -> tuple[Topics, list[bytes]]:
    """Write the record; its topics and its receipts."""
    settings = settings_for(f"sqlite:///{directory / 'record.db'}", directory)
    migrated(settings)
    with ExitStack() as stack, wiring.open_store(settings) as store:
        scribe = stack.enter_context(SiteScribe.with_judge(store, settings))
        scribe.gate("best", unit="best", alpha=0.2, pending="worst")
        scribe.gate("each", unit="response", alpha=0.3)
        scribe.gate("desk", hold_action="escalate", desk_deadline_seconds=86_400.0)
        scribe.gate("raised", audit_probability=0.25, audit_boost=4.0)
        scribe.gate("offered", unit="best", alpha=0.5, pending="worst", two_people=True)
        scribe.gate("judged", unit="best", severity_kind="judge", **BY_A_JUDGE)
        scribe.checkpoint()
        erasable = {}
        for number, name in enumerate(("old", "window")):
            scribe.send(event("each", 900 + number), partition=1)
            erasable[name] = wiring.now()
        for name, first in (("old", 0), ("window", 20)):
            scribe.send(*(event("best", n) for n in range(first, first + 8)), b"rubbish of " + name.encode())
            numbers = (n for n in range(max(0, first - 12), first + 8) if not 17 < n < 20)
            scribe.send(*scribe.drawn_labels("best", numbers, lambda n, _: float(n in BAD)), topic="labels")
            scribe.import_labels("best", range(first, first + 2), labeller="eve")
            scribe.recalibrate("best")
            scribe.send(*(event("best", n) for n in range(first + 8, first + 14)))
            scribe.govern(name, erasable[name])
            scribe.beside(name, first + 100)
            signed = json.loads(label_event("best", first + 10)) | {
                "signature": f"of {name}",
                "key_id": "ana",
            }
            scribe.send(label_event("best", first + 9), json.dumps(signed).encode(), topic="labels")
            scribe.send(*(event("best", n) for n in range(first + 14, first + 18)))
            if name == "old":
                scribe.checkpoint()
        receipts = scribe.publish()
    assert len(receipts) == 84
    return scribe.kept, receipts


# -- what somebody does to it ------------------------------------------------------------------------------------------


@dataclass
class Target:
    """Where somebody has broken in, and which part of the record is meant."""

    connection: sa.Connection
    region: Region
    site: Site

    def run(self, statement: str, **values: object) -> list[Any]:
        result = self.connection.execute(sa.text(statement), values)
        return list(result.mappings()) if result.returns_rows else []

    def one(self, statement: str, **values: object) -> Any:
        return self.run(statement, **values)[0]

    def decision(self, outcome: str | None = None, sampled: bool = True) -> int:
        """A decision after the run of the region, by preference in the middle."""
        first = 8 if self.region == "old" else 28
        for number in range(first + 1, first + 6):
            row = self.one(
                "SELECT d.batch, d.outcome, d.sampled FROM decisions d JOIN batches b ON b.id = d.batch"
                " WHERE d.gate = 'best' AND b.batch_id = :name",
                name=f"batch-{number}",
            )
            if (outcome is None or row["outcome"] == outcome) and bool(row["sampled"]) == sampled:
                return int(row["batch"])
        raise AssertionError(f"there is no {outcome} in {self.region}")

    def decided(self, assignment: str, table: str = "decisions", where: str = "") -> int:
        """Change rows of a decision, and return its batch."""
        batch = self.decision()
        self.run(f"UPDATE {table} SET {assignment} WHERE batch = :b {where}", b=batch)
        return batch

    def refused(self, assignment: str) -> None:
        name = b"rubbish of " + self.region.encode()
        self.run(f"UPDATE dead_letters SET {assignment} WHERE value = :v", v=name)

    @property
    def labelled(self) -> str:
        """A batch whose labels no run has read."""
        return f"batch-{9 if self.region == 'old' else 29}"

    def label(self, assignment: str, number: int = 9) -> None:
        statement = f"UPDATE label_revisions SET {assignment} WHERE source = 'topic' AND batch_id = :n"
        self.run(statement, n=f"batch-{number if self.region == 'old' else number + 20}")

    def control(self, kind: str, which: int = 0, where: str = "1 = 1") -> int:
        """The index of the leaf of a control row of the region."""
        edge = self.one(
            "SELECT json_extract(data, '$.control.size') AS h FROM heads ORDER BY leaf_index DESC"
        )["h"]
        side = "<" if self.region == "old" else ">="
        rows = self.run(
            f"SELECT leaf_index FROM control_log WHERE kind = :kind AND leaf_index {side} :edge AND {where}"
            " ORDER BY leaf_index",
            kind=kind,
            edge=edge,
        )
        return int(rows[which]["leaf_index"])

    def subject(self, index: int) -> Any:
        return json.loads(
            self.one("SELECT subject FROM control_log WHERE leaf_index = :i", i=index)["subject"]
        )

    def event(self, batch: int, change: Callable[[dict[str, Any]], None]) -> None:
        value = self.one("SELECT action_value AS v FROM decisions WHERE batch = :b", b=batch)["v"]
        content = json.loads(value)
        change(content)
        self.run(
            "UPDATE decisions SET action_value = :v WHERE batch = :b",
            v=json.dumps(content, separators=(",", ":")).encode(),
            b=batch,
        )

    def scores(self, batch: int, change: Callable[[float], float], *, event: bool = True) -> dict[str, float]:
        """Change the scores of a batch, in their order, and in the event too."""
        new = {}
        for row in self.run("SELECT response_id, score FROM responses WHERE batch = :b", b=batch):
            new[row["response_id"]] = round(change(row["score"]), 6)
            change_it = "UPDATE responses SET score = :s WHERE batch = :b AND response_id = :r"
            self.run(change_it, s=new[row["response_id"]], b=batch, r=row["response_id"])
        if event:
            self.event(batch, lambda e: [one.update(score=new[one["id"]]) for one in e["responses"]])
            self.budget(batch)
        return new

    def budget(self, batch: int) -> None:
        """Say, in the event too, that a batch of the unit `best` needed the budget that its policy and its scores give."""
        answers = self.run(
            "SELECT response_id AS r, score FROM responses WHERE batch = :b ORDER BY position", b=batch
        )
        best = max(answers, key=lambda one: one["score"])
        prompts = self.run(
            "SELECT max(i.score) AS score, avg(coalesce(i.severity, 1)) AS severity FROM calibration_inputs i JOIN calibration_runs r"
            " ON r.id = i.run JOIN policies p ON p.calibration_run = r.id JOIN decisions d ON d.gate = p.gate"
            " AND d.policy_version = p.version JOIN decisions read ON read.batch = i.batch AND read.decided_at < r.older_than"
            " WHERE d.batch = :b GROUP BY i.batch",
            b=batch,
        )
        count = groups = None
        if prompts:
            count = 1 + math.fsum(one["severity"] for one in prompts if one["score"] >= best["score"])
            groups = len(prompts)
        change_it = "UPDATE decisions SET budget_count = :c, budget_groups = :g WHERE batch = :b"
        self.run(change_it, c=count, g=groups, b=batch)

        def change(said: dict[str, Any]) -> None:
            for one in said["responses"]:
                one.pop("budget_needed", None)
                if count is not None and groups is not None and one["id"] == best["r"]:
                    one["budget_needed"] = count / (groups + 1)

        self.event(batch, change)


def decide_again(at: Target) -> None:
    """Chain a decision once more, at the end of its partition."""
    at.run("DROP INDEX uq_outcomes_decided_once")
    batch = at.decision()
    where = "topic = 'streamer.responses' AND partition = 0"
    last = at.one(f"SELECT * FROM outcomes WHERE {where} ORDER BY leaf_index DESC LIMIT 1")
    again = dict(last) | {
        "kind": "decision", "batch": batch, "offset": last["offset"] + 1, "leaf_index": last["leaf_index"] + 1,
        "dead_letter": None, "label": None, "label_signature": None,
    }  # fmt: skip
    names = [name for name in again if name != "id"]
    columns, values = ", ".join(f'"{name}"' for name in names), ", ".join(f":{name}" for name in names)
    at.run(f"INSERT INTO outcomes ({columns}) VALUES ({values})", **{name: again[name] for name in names})
    at.run(f"UPDATE progress SET next_offset = next_offset + 1, log_size = log_size + 1 WHERE {where}")


def ship_to_hold(at: Target) -> None:
    batch = at.decision("ship")
    at.scores(batch, lambda score: score * 0.001)
    at.run("UPDATE responses SET action = 'abstain' WHERE batch = :b", b=batch)
    at.run("UPDATE decisions SET outcome = 'abstain', selected = NULL WHERE batch = :b", b=batch)

    def change(said: dict[str, Any]) -> None:
        said.update(action="abstain", selected=None)
        for one in said["responses"]:
            one["action"] = "abstain"

    at.event(batch, change)


def hold_to_ship(at: Target) -> None:
    batch = at.decision("abstain")
    new = at.scores(batch, lambda score: 1 - (1 - score) * 0.01 if score else 0.0)
    best = max(new, key=lambda name: (new[name], -int(name[1:])))
    at.run("UPDATE responses SET action = 'ship' WHERE batch = :b AND response_id = :r", b=batch, r=best)
    at.run("UPDATE decisions SET outcome = 'ship', selected = :r WHERE batch = :b", b=batch, r=best)

    def change(said: dict[str, Any]) -> None:
        said.update(action="ship", selected=best)
        for one in said["responses"]:
            one["action"] = "ship" if one["id"] == best else "abstain"

    at.event(batch, change)


def another_moment(at: Target, *, event: bool) -> None:
    batch = at.decided("decided_at = datetime(decided_at, '-1 hour') || '.000000'")
    if event:
        moment = at.one("SELECT decided_at AS t FROM decisions WHERE batch = :b", b=batch)["t"]
        at.event(batch, lambda said: said.update(decided_at=moment.replace(" ", "T") + "Z"))


SAW_LESS = """control_size = (SELECT max(o.control_size) FROM outcomes o WHERE o.topic = outcomes.topic
 AND o.partition = outcomes.partition AND o.leaf_index < outcomes.leaf_index)"""


def older_policy(at: Target, *, hide: bool = False) -> None:
    """Say that the policy before decided it: the first decision under the newest one, which ships, or is held, by both."""
    name = f"batch-{8 if at.region == 'old' else 28}"
    row = at.one(
        "SELECT d.batch, d.policy_version AS v FROM decisions d JOIN batches b ON b.id = d.batch WHERE b.batch_id = :n",
        n=name,
    )
    batch = row["batch"]
    before = at.one("SELECT * FROM policies WHERE gate = 'best' AND version = :v", v=row["v"] - 1)
    at.run("UPDATE decisions SET policy_version = :v WHERE batch = :b", v=row["v"] - 1, b=batch)
    at.event(
        batch,
        lambda said: said["policy"].update(
            version=row["v"] - 1, state=before["state"], **{"lambda": before["threshold"]}
        ),
    )
    at.budget(batch)
    if hide:
        at.run(f"UPDATE outcomes SET {SAW_LESS} WHERE batch = :b AND kind = 'decision'", b=batch)


def another_text(at: Target, *, same_hash: bool = False) -> None:
    batch = at.decided("text = 'something else'", "responses", "AND position = 0")
    if not same_hash:
        at.run("UPDATE batches SET content_hash = randomblob(32) WHERE id = :b", b=batch)
    reseal(at.connection, batch)


def of_batch(at: Target, assignment: str) -> None:
    """What came with a batch, sealed anew."""
    batch = at.decision()
    at.run(f"UPDATE batches SET {assignment} WHERE id = :b", b=batch)
    reseal(at.connection, batch)


def _forget(at: Target, batch: int) -> None:
    at.run("DELETE FROM outcomes WHERE batch = :b", b=batch)
    for table, column in (("responses", "batch"), ("decisions", "batch"), ("batches", "id")):
        at.run(f"DELETE FROM {table} WHERE {column} = :b", b=batch)


def remove_a_decision(at: Target) -> None:
    _forget(at, at.decision(sampled=True))


def hide_a_decision_in_a_gap(at: Target) -> None:
    """Its offset is said to have been lost by Kafka's retention, in an entry at the end of the control log."""
    batch = at.decision(sampled=True)
    place = at.one(
        'SELECT log_id, topic, partition, "offset" AS from_offset FROM outcomes WHERE batch = :b', b=batch
    )
    _forget(at, batch)
    now = wiring.now()
    row = dict(place) | {"to_offset": place["from_offset"] + 1, "epoch": 1, "recorded_at": now}
    control.insert(at.connection, data_gaps, row, now=now)


def cut_the_end_off(at: Target) -> None:
    number = 14 if at.region == "old" else 34
    rows = at.run(
        "SELECT o.batch, o.\"offset\" FROM outcomes o JOIN batches b ON b.id = o.batch WHERE b.gate = 'best'"
        " AND CAST(substr(b.batch_id, 7) AS INTEGER) >= :n",
        n=number,
    )
    for row in rows:
        _forget(at, row["batch"])
    first, here = min(row["offset"] for row in rows), "topic = 'streamer.responses' AND partition = 0"
    at.run(f'DELETE FROM outcomes WHERE {here} AND "offset" >= :o', o=first)
    at.run(f"UPDATE progress SET next_offset = :o WHERE {here}", o=first)


def hide_a_draw(at: Target) -> None:
    batch = at.decided("sampled = 0")
    at.run("UPDATE responses SET drawn = 0 WHERE batch = :b", b=batch)
    at.event(batch, lambda said: said["audit"].update(sampled=False, label=[]))


def another_draw(at: Target) -> None:
    batch = at.decided("drawn = 1 - drawn", "responses", "AND position < 2")
    drawn = [
        row["response_id"]
        for row in at.run("SELECT response_id FROM responses WHERE batch = :b AND drawn", b=batch)
    ]
    at.event(batch, lambda said: said["audit"].update(label=drawn))


def in_its_event(at: Target, assignment: str, change: Callable[[dict[str, Any]], None]) -> None:
    """A column of a decision, in its event as well."""
    at.event(at.decided(assignment), change)


def refused_bytes(at: Target) -> None:
    name = b"rubbish of " + at.region.encode()
    table = dead_letters.c
    row = at.connection.execute(sa.select(dead_letters).where(table.value == name)).mappings().one()
    changed = dict(row) | {"value": b"other rubbish"}
    at.connection.execute(
        sa.update(dead_letters)
        .where(table.id == row["id"])
        .values(value=changed["value"], content_mac=dead_letter_mac(changed))
    )


def when_a_label_came(at: Target) -> None:
    """At the label and at its link: what counts is the earlier of when it was given and when it came."""
    at.label("received_at = datetime(received_at, '-1 second') || '.000000'")
    at.label("effective_at = min(labelled_at, received_at)")
    at.run(
        "UPDATE outcomes SET recorded_at = (SELECT received_at FROM label_revisions l WHERE l.id = outcomes.label)"
        " WHERE label IN (SELECT id FROM label_revisions WHERE source = 'topic' AND batch_id = :n)",
        n=at.labelled,
    )


def a_signature(at: Target, assignment: str) -> None:
    at.run(f"UPDATE label_signatures SET {assignment} WHERE signature = :s", s=f"of {at.region}")


def seen_by_a_label(at: Target) -> None:
    at.run(
        f"UPDATE outcomes SET {SAW_LESS} WHERE label IN"
        " (SELECT id FROM label_revisions WHERE source = 'topic' AND batch_id = :n)",
        n=at.labelled,
    )


def refuse_a_label(at: Target) -> None:
    """The label goes, and its event, whose bytes are those on the topic, is said to be one that could not be stored."""
    label = at.one("SELECT id FROM label_revisions WHERE source = 'topic' AND batch_id = :n", n=at.labelled)
    mine = outcomes.c.label == label["id"]
    for one in at.connection.execute(sa.select(outcomes).where(mine)).mappings().all():
        place = {name: one[name] for name in ("log_id", "topic", "partition", "offset")}
        (record,) = (
            record
            for record in at.site.log.read(one["topic"], {one["partition"]: one["offset"] + 1})
            if record.offset == one["offset"]
        )
        letter = place | {
            "timestamp_ms": 0, "code": "internal_error", "detail": "a fault", "key": record.key, "value": record.value,
            "headers": (), "salt": bytes(32), "recorded_at": one["recorded_at"],
        }  # fmt: skip
        letter["content_mac"] = dead_letter_mac(letter)
        made = at.connection.execute(sa.insert(dead_letters).values(letter)).inserted_primary_key
        at.connection.execute(
            sa.update(outcomes)
            .where(mine, outcomes.c.offset == one["offset"])
            .values(kind="dead_letter", dead_letter=made[0], label=None, label_signature=None)
        )
    at.run("DELETE FROM label_revisions WHERE id = :i", i=label["id"])


def said_to_be_erased(at: Target) -> None:
    at.run("UPDATE batches SET erased_at = datetime('now') || '.000000' WHERE id = :b", b=at.decision("ship"))


def remove_a_label(at: Target) -> None:
    row = at.one("SELECT id FROM label_revisions WHERE source = 'topic' AND batch_id = :n", n=at.labelled)
    at.run("DELETE FROM outcomes WHERE label = :i", i=row["id"])
    at.run("DELETE FROM label_revisions WHERE id = :i", i=row["id"])


def _to_control(statement: str, kind: str, where: str) -> Callable[[Target], None]:
    """A statement about a row that the control log seals."""

    def change(at: Target) -> None:
        table = next(one for one in control.SEALED_TABLES if one.name == kind)
        names = [column.name for column in table.primary_key.columns]
        key = dict(zip(names, at.subject(at.control(kind, where=where)), strict=True))
        at.run(f"{statement} WHERE " + " AND ".join(f'"{name}" = :{name}' for name in names), **key)

    return change


def _change_control(kind: str, assignment: str, where: str = "1 = 1") -> Callable[[Target], None]:
    return _to_control(f"UPDATE {kind} SET {assignment}", kind, where)


def _remove_control(kind: str, where: str = "1 = 1") -> Callable[[Target], None]:
    return _to_control(f"DELETE FROM {kind}", kind, where)


def _desk_outcome(at: Target, where: str) -> str:
    return str(at.subject(at.control("desk_outcomes", where=where))[0])


def released_text(at: Target) -> None:
    """Sealed anew under its own salt, which stands beside it."""
    one = _desk_outcome(at, "json_extract(sealed, '$.edited') = 1")
    salt = at.one("SELECT salt FROM desk_texts WHERE outcome = :o", o=one)["salt"]
    at.run("UPDATE desk_texts SET text = 'something else' WHERE outcome = :o", o=one)
    at.run("UPDATE desk_outcomes SET text_mac = :m WHERE id = :o", m=text_mac(salt, "something else"), o=one)


def rejected_to_released(at: Target) -> None:
    one = _desk_outcome(at, "json_extract(sealed, '$.action') = 'rejected'")
    text = at.one(
        "SELECT r.text FROM responses r JOIN batches b ON b.id = r.batch JOIN desk_outcomes o ON o.gate = b.gate"
        " AND o.batch_id = b.batch_id AND o.attempt = b.attempt WHERE o.id = :o AND r.response_id = 'r1'",
        o=one,
    )["text"]
    salt = bytes(32)
    at.run("INSERT INTO desk_texts (outcome, text, salt) VALUES (:o, :t, :s)", o=one, t=text, s=salt)
    at.run(
        "UPDATE desk_outcomes SET action = 'released', response_id = 'r1', text_mac = :m WHERE id = :o",
        m=text_mac(salt, text),
        o=one,
    )


def stop_waiting_at_the_desk(at: Target) -> None:
    """The last batch that was sent to the desk waits for nobody any more."""
    number = 103 if at.region == "old" else 123
    at.run(
        "DELETE FROM desk_items WHERE batch = (SELECT id FROM batches WHERE gate = 'desk' AND batch_id = :n)",
        n=f"batch-{number}",
    )


def other_words_of_a_guarantee(at: Target) -> None:
    """At the run, at its calibrator and at the policy."""
    (run,) = at.subject(at.control("calibration_runs"))
    for table, where in (
        ("calibration_runs", "id"),
        ("calibration_candidates", "run"),
        ("policies", "calibration_run"),
    ):
        at.run(f"UPDATE {table} SET guarantee = 'All is well.' WHERE {where} = :r", r=run)


def remove_from_the_desk(at: Target) -> None:
    one = _desk_outcome(at, "json_extract(sealed, '$.action') = 'released'")
    at.run("DELETE FROM desk_texts WHERE outcome = :o", o=one)
    at.run("DELETE FROM desk_outcomes WHERE id = :o", o=one)


def remove_a_policy(at: Target, which: int = -1) -> None:
    """One of the gate `each`, by its place among those of the region; nothing was decided under it. With its story."""
    subject = at.subject(at.control("policies", which=which, where="subject LIKE '[\"each\"%'"))
    at.run("DELETE FROM policy_events WHERE gate = 'each' AND version = :v", v=subject[1])
    at.run("DELETE FROM policies WHERE gate = 'each' AND version = :v", v=subject[1])


def erase_a_text(at: Target) -> None:
    batch = at.decision("ship")
    at.run("UPDATE responses SET text = NULL WHERE batch = :b", b=batch)
    at.run(
        'UPDATE batches SET prompt = NULL, "references" = NULL, metadata = NULL, content_hash = NULL, salt = NULL,'
        " erased_at = datetime('now') || '.000000' WHERE id = :b",
        b=batch,
    )


def erase_one_answer(at: Target) -> None:
    at.run("UPDATE responses SET text = NULL WHERE batch = :b AND position = 0", b=at.decision("ship"))


def _judgement(at: Target, which: str) -> dict[str, Any]:
    """What a judge was asked and said: `for_score`, or `NOT for_score`, for a label."""
    name = f"batch-{100 if at.region == 'old' else 120}"
    return dict(
        at.one(f"SELECT * FROM judgements WHERE batch_id = :n AND mark IS NOT NULL AND {which}", n=name)
    )


def other_words(at: Target, which: str, change: Callable[[Any], None]) -> None:
    """Sealed anew under their own salt, which stands beside them."""
    one = _judgement(at, which)
    words = json.loads(one["exchanges"])
    change(words)
    at.run(
        "UPDATE judgements SET exchanges = :w, content_mac = :m WHERE id = :i", w=json.dumps(words),
        m=judgement_mac(one["salt"], words), i=one["id"],
    )  # fmt: skip


def other_reply(words: Any) -> None:
    words["exchanges"][-1]["reply"] = '{"score": 100}'


def other_rubric(words: Any) -> None:
    words["messages"][0]["content"] = "Whatever it says, it is good."


def other_mark(at: Target) -> None:
    at.run("UPDATE judgements SET mark = 33 WHERE id = :i", i=_judgement(at, "for_score")["id"])


def remove_a_judgement(at: Target, which: str) -> None:
    at.run("DELETE FROM judgements WHERE id = :i", i=_judgement(at, which)["id"])


def remove_all_judgements(at: Target) -> None:
    one = _judgement(at, "for_score")
    at.run("DELETE FROM judgements WHERE for_score AND batch_id = :n", n=one["batch_id"])


def erase_a_judges_words(at: Target) -> None:
    at.run(
        "UPDATE judgements SET exchanges = NULL, salt = NULL, erased_at = datetime('now') || '.000000' WHERE id = :i",
        i=_judgement(at, "for_score")["id"],
    )


def remove_a_checkpoint(at: Target) -> None:
    at.run("DELETE FROM heads WHERE leaf_index = (SELECT max(leaf_index) FROM heads)")


EDITS: Final[dict[str, Callable[[Target], Any]]] = {
    "a held answer's score": lambda at: at.scores(at.decision("abstain"), lambda score: score * 0.5, event=False),
    "a held answer's score, in its event as well": lambda at: at.scores(at.decision("abstain"), lambda score: score * 0.5),
    "a ship becomes a hold: scores, action, event": ship_to_hold,
    "a hold becomes a ship: scores, action, event": hold_to_ship,
    "when it was decided": lambda at: another_moment(at, event=False),
    "when it was decided, in its event as well": lambda at: another_moment(at, event=True),
    "an older policy is said to have decided it": older_policy,
    "an older policy, and a control log that was not further then": lambda at: older_policy(at, hide=True),
    "an answer's text and the content hash": another_text,
    "an answer's text under the same content hash": lambda at: another_text(at, same_hash=True),
    "the prompt under the same content hash": lambda at: of_batch(at, "prompt = 'something else'"),
    "metadata": lambda at: of_batch(at, "metadata = '{}'"),
    "a decision put into the log once more": decide_again,
    "a decision removed, with its offset": remove_a_decision,
    "a decision removed, and its offset said to be lost": hide_a_decision_in_a_gap,
    "the last decisions cut off, and progress set back": cut_the_end_off,
    "a drawn batch said not to be drawn": hide_a_draw,
    "another answer said to be drawn": another_draw,
    "the probability of the draw": lambda at: in_its_event(
        at, "sampling_probability = 0.9", lambda said: said["audit"].update(probability=0.9)
    ),
    "who made the embeddings": lambda at: in_its_event(
        at, "embedding_source = 'encoder'", lambda said: said["scorer"].update(embedding_source="encoder")
    ),
    "shadow mode": lambda at: in_its_event(at, "mode = 'shadow'", lambda said: said.update(enforced=False)),
    "a raw energy": lambda at: at.decided("raw_energy = 0.123", "responses"),
    "headers of the published action": lambda at: at.decided("action_headers = '[]'"),
    "the bytes of a refused message": refused_bytes,
    "why a message was refused": lambda at: at.refused("code = 'not_utf8'"),
    "where a refused message came from, at the message alone": lambda at: at.refused('"offset" = 1000000'),
    "when a leaf was recorded, a day back": lambda at: at.decided("recorded_at = datetime(recorded_at, '-1 day') || '.000000'", "outcomes"),
    "the severity of a label of the topic": lambda at: at.label("severity = 1"),
    "who gave a label of the topic": lambda at: at.label("labeller = 'ann'"),
    "when a label of the topic was given": lambda at: at.label(
        "labelled_at = datetime(labelled_at, '-1 hour') || '.000000',"
        " effective_at = datetime(labelled_at, '-1 hour') || '.000000'",
    ),
    "when a label of the topic came": lambda at: at.label(
        "received_at = datetime(received_at, '+1 hour') || '.000000'"
    ),
    "when a label of the topic came, and its leaf": when_a_label_came,
    "the raw severity of a label of the topic": lambda at: at.label("raw_severity = 3"),
    "a remark beside a label of the topic": lambda at: at.label("remark = 'all is well'"),
    "the signature of a label of the topic": lambda at: a_signature(at, "signature = 'other'"),
    "which label of the topic a signature is of": lambda at: a_signature(at, "label = label - 1"),
    "how much of the control log the leaf of a label saw": seen_by_a_label,
    "who gave a label that a run has read": lambda at: at.label("labeller = 'ann'", 7),
    "a label of the topic said to have been refused": refuse_a_label,
    "a label of the topic removed": remove_a_label,
    "the severity of a label of a file, not drawn": _change_control(
        "label_revisions", "severity = 1 - severity, raw_severity = NULL"
    ),
    "who gave a label of a file": _change_control("label_revisions", "labeller = 'ann'"),
    "the threshold of a policy": _change_control(
        "policies", "threshold = threshold * 0.5", "json_extract(sealed, '$.threshold') IS NOT NULL"
    ),
    "why a policy came into force": _change_control("policies", "reason = 'other'"),
    "a policy removed under which nothing was decided": remove_a_policy,
    "a policy removed that is not the newest": lambda at: remove_a_policy(at, which=-2),
    "when a policy came into force, at the policy alone": _change_control(
        "policies", "valid_from = datetime(valid_from, '-1 hour') || '.000000'"
    ),
    "when a label of a file came, at the label alone": _change_control(
        "label_revisions", "received_at = datetime(received_at, '+1 hour') || '.000000'"
    ),
    "who closed a gate": _change_control("policy_events", "by = 'ann'"),
    "why a gate was revised": _change_control("gate_revisions", "reason = 'other'", "subject LIKE '[\"each\"%'"),
    "who asked for a run": _change_control("calibration_runs", "requested_by = 'ann'"),
    "until when a run has its threshold wait": _change_control("calibration_runs", "held_until = '2099-01-01 00:00:00.000000'"),
    "the threshold that a run found": _change_control("calibration_runs", "threshold = threshold * 0.5"),
    "when a run read": _change_control("calibration_runs", "heads = '[]'"),
    "an alert's words": _change_control("alerts", "message = 'all is well'"),
    "an alert removed that nobody acknowledged": _remove_control("alerts", "subject IN (SELECT json_array(id) FROM alerts WHERE id NOT IN (SELECT alert FROM alert_acknowledgements))"),
    "who acknowledged an alert": _change_control("alert_acknowledgements", "by = 'ann'"),
    "an acknowledgement removed": _remove_control("alert_acknowledgements"),
    "the alarm's state in its alert": _change_control("alerts", "details = '{}'"),
    "who made a policy": _change_control("policies", "created_by = 'ann'"),
    "who sent a refused message again": _change_control("dead_letter_replays", "by = 'ann'"),
    "who sent it again, at the message alone": lambda at: at.refused("replayed_by = 'ann'"),
    "a score that a candidate brought along": _change_control("carried_scores", "score = 0.9"),
    "a row of signals that a candidate brought along": _change_control("carried_signals", "signals = x'00'"),
    "who set a candidate policy": _change_control("candidate_policies", "\"by\" = 'ann'"),
    "the rights of an API key": _change_control("api_keys", "may = '[\"decide\"]'"),
    "a revocation of an API key removed": _remove_control("api_key_revocations"),
    "all texts of a batch erased, minutes after it shipped": erase_a_text,
    "one answer's text erased": erase_one_answer,
    "texts said to be erased that are there": said_to_be_erased,
    "why texts were erased": _change_control("erasures", "reason = 'other'"),
    "an erasure removed whose texts are erased": _remove_control("erasures"),
    "who released an answer at the desk": _change_control("desk_outcomes", "\"by\" = 'account:ann'"),
    "a remark at the desk": _change_control("desk_outcomes", "remark = 'other'"),
    "a text that was released at the desk": released_text,
    "what the desk rejected is said to be released": rejected_to_released,
    "an outcome at the desk removed": remove_from_the_desk,
    "what waits at the desk removed": stop_waiting_at_the_desk,
    "until when it waits at the desk": lambda at: at.run("UPDATE desk_items SET until = '2099-01-01 00:00:00.000000'"),
    "the words of a guarantee, wherever they stand": other_words_of_a_guarantee,
    "the author of a run said to have put it in force": _change_control("policies", "created_by = 'account:ana'", "subject LIKE '[\"offered\"%' AND json_extract(sealed, '$.calibration_run') IS NOT NULL"),
    "what an account may do": _change_control("accounts", "roles = '[\"administrator\"]'"),
    "why an audit rate was raised": _change_control("audit_rates", "reason = 'other'"),
    "the evidence that an audit rate was raised for": _change_control("audit_rates", "evidence = 0.9"),
    "when a raised audit rate began": _change_control("audit_rates", "since = '2020-01-01 00:00:00.000000'"),
    "who rejected a proposal": _change_control("proposal_rejections", "rejected_by = 'ann'"),
    "a rejection of a proposal removed": _remove_control("proposal_rejections"),
    "the dimension of an encoder": _change_control("encoders", "dimension = 9"),
    "how many offsets were lost": _change_control("data_gaps", "to_offset = to_offset + 1"),
    "what a judge said of an answer, for its score": lambda at: other_words(at, "for_score", other_reply),
    "the rubric that a judge was asked by": lambda at: other_words(at, "for_score", other_rubric),
    "a judge's mark, which a score is made of": other_mark,
    "a judge's words removed that made a score": lambda at: remove_a_judgement(at, "for_score"),
    "all that a judge said of a batch removed": remove_all_judgements,
    "a judge's words erased, minutes after it was asked": erase_a_judges_words,
    "what a judge said of an answer, for a label": lambda at: other_words(at, "NOT for_score", other_reply),
    "a judge's words removed that made a label": lambda at: remove_a_judgement(at, "NOT for_score"),
    "the newest checkpoint removed from the database": remove_a_checkpoint,
}  # fmt: skip
"""What somebody changes, by its name in the table."""


# -- what is added at the end, for which there is nothing to change -----------------------------------------------------


def invent_a_decision(site: Site) -> None:
    """By the program itself, past Kafka."""
    with wiring.open_store(site.settings) as store:
        Scribe(store, site.settings).deliver([event("best", 500)])


def invent_a_label(site: Site) -> None:
    with wiring.open_store(site.settings) as store:
        Scribe(store, site.settings).deliver([label_event("best", 21, severity=1.0)], topic="labels")


def invent_a_label_by_file(site: Site) -> None:
    with wiring.open_store(site.settings) as store:
        Scribe(store, site.settings).import_labels("best", [30], labeller="nobody")


def release_past_the_topic(site: Site) -> None:
    """By the program itself, without Kafka."""
    with wiring.open_store(site.settings, publish=False) as store:
        (waiting, *_) = store.desk.waiting()
        store.desk.decide(waiting.key, Release(response_id="r2"), by="account:nobody")


def make_an_administrator(site: Site) -> None:
    with wiring.open_store(site.settings) as store:
        store.accounts.add_issued("eve", roles=["administrator"], issuer="https://issuer.example", by="ana")


def make_a_key(site: Site) -> None:
    with wiring.open_store(site.settings) as store:
        store.api_keys.create(gates=None, may=("decide",), by="ana", note="nobody's")


def acknowledge_an_alert(site: Site) -> None:
    with breaking_in(site.settings.database.url) as connection:
        query = "SELECT alert_id FROM alerts WHERE id NOT IN (SELECT alert FROM alert_acknowledgements)"
        alert_id = str(connection.exec_driver_sql(query).first()[0])  # type: ignore[index]
    with wiring.open_store(site.settings) as store:
        store.alerts.acknowledge(alert_id, by="ana", reason="seen")


def alert_in_no_chain(site: Site) -> None:
    with breaking_in(site.settings.database.url) as connection:
        connection.exec_driver_sql(
            "INSERT INTO alerts (alert_id, gate, kind, level, message, details, raised_at)"
            " VALUES ('a', 'best', 'risk', 'page', 'look', '{}', '2026-01-01 00:00:00.000000')"
        )


def judge_in_no_chain(site: Site) -> None:
    with breaking_in(site.settings.database.url) as connection:
        names = ", ".join(one.name for one in judgements.columns if one.name != "id")
        connection.exec_driver_sql(
            f"INSERT INTO judgements ({names}) SELECT {names} FROM judgements WHERE NOT for_score LIMIT 1"
        )


def roll_back(site: Site) -> None:
    with wiring.open_store(site.settings) as store:
        store.policies.rollback("best", 2, by="ana", reason="it was better")


def erase_by_a_rule_of_ones_own(site: Site) -> None:
    prune(
        site.settings.database.url, older_than=timedelta(0), now=wiring.now(), by="ana",
        reason="no reason", sooner_than_six_months=True,
    )  # fmt: skip


def run_without_a_drawn_batch(site: Site) -> None:
    """By a program that was changed: the bad ones are not read."""
    read = Calibrations.audit_sample
    try:
        Calibrations.audit_sample = lambda self, *a, **k: read(self, *a, **k)[2:]  # type: ignore[method-assign]
        wiring.recalibrate(site.settings, "best", by="ana", reason="labels came")
    finally:
        Calibrations.audit_sample = read  # type: ignore[method-assign]


def decide_by_an_older_policy(site: Site) -> None:
    """By a program that was changed: the fence is off, and the policy is the one before the newest."""
    read = Policies.active

    def older(self: Policies, names: Any = None) -> Any:
        found = read(self, names)
        for gate, active in list(found.items()):
            before = self.version(gate, max(1, active.policy.version - 1)).active
            if before is not None:
                found[gate] = before
        return found

    check = commits.check_current
    try:
        Policies.active = older  # type: ignore[method-assign]
        commits.check_current = lambda *_: None
        with wiring.open_store(site.settings) as store:
            Scribe(store, site.settings).deliver([event("best", 501)])
    finally:
        Policies.active = read  # type: ignore[method-assign]
        commits.check_current = check


def choose_an_age_cut(site: Site) -> None:
    """By a program that was changed: labels are said to come at once, so that draws that wait for theirs count as wrong."""
    choose = age_cut.choose
    with wiring.open_store(site.settings) as store:
        store.labels.add(
            [replace(label("raised", 100, labeller="kim"), response_id=f"r{i}") for i in range(4)]
        )
    try:
        age_cut.choose = lambda *a, **k: choose(*a, **k | {"earlier": [0.001] * 30})
        wiring.recalibrate(site.settings, "raised", by="ana", reason="labels came")
    finally:
        age_cut.choose = choose


def approve_ones_own_run(site: Site) -> None:
    """By a program that was changed: whoever asks for a run puts it in force."""
    check = proposals.require_another_person
    try:
        proposals.require_another_person = lambda *_: None
        wiring.recalibrate(site.settings, "offered", by="ana", reason="labels came", propose=True)
        with wiring.open_store(site.settings) as store:
            store.calibration.activate("offered", by="ana", reason="approved", now=wiring.now())
    finally:
        proposals.require_another_person = check


ADDITIONS: Final[dict[str, Callable[[Site], None]]] = {
    "a decision invented": invent_a_decision,
    "a label of the topic invented": invent_a_label,
    "a label of a file invented": invent_a_label_by_file,
    "a release at the desk invented": release_past_the_topic,
    "an administrator invented": make_an_administrator,
    "an API key invented": make_a_key,
    "an acknowledgement invented": acknowledge_an_alert,
    "an alert invented that is in no log": alert_in_no_chain,
    "what a judge said for a label invented, in no log": judge_in_no_chain,
    "a rollback invented": roll_back,
    "texts erased by a rule of one's own, which is on record": erase_by_a_rule_of_ones_own,
    "a run by a changed program that leaves drawn batches out": run_without_a_drawn_batch,
    "a run by a changed program that chooses its age cut": choose_an_age_cut,
    "a proposal put in force by its own author": approve_ones_own_run,
    "a decision by a changed program under an older policy": decide_by_an_older_policy,
}


# -- the four ways -----------------------------------------------------------------------------------------------------


def attack(copy: Site, name: str, way: str) -> None:
    """Change a copy of the record in one of the ways."""
    edit(copy, name, "window" if way == "in the window" else "old")
    if way != "raw":
        rebuild_chains(copy)
    if way == "re-signed":
        sign_again(copy)


def edit(copy: Site, name: str, region: Region) -> None:
    """Change the rows alone."""
    with breaking_in(copy.settings.database.url) as connection:
        EDITS[name](Target(connection, region, copy))


def rebuild_chains(copy: Site) -> None:
    """Compute all logs anew, and have runs say that they have read what is there now, which changes what comes behind them."""
    with breaking_in(copy.settings.database.url) as connection:
        runs = connection.exec_driver_sql("SELECT count(*) FROM calibration_runs").scalar_one()
        there: dict[str, dict[str, dict[str, Any]]] = {}
        for _ in range(runs + 1):
            rebuild_control(connection, there)
            rebuild_outcomes(connection)
            if not _read_now(connection):
                return
            there.pop("calibration_runs", None)  # no other row says what was read


def _read_now(connection: sa.Connection) -> bool:
    """Write what the logs are now into the heads of runs; returns whether any were another."""
    logs = "SELECT log_id, topic, partition, leaf_index, root FROM outcomes"
    logs += " UNION ALL SELECT 'control', '', 0, leaf_index, root FROM control_log"
    roots = {tuple(row[:4]): row[4].hex() for row in connection.exec_driver_sql(logs)}
    changed = False
    for run, said in connection.exec_driver_sql("SELECT id, heads FROM calibration_runs").all():
        heads = [[*head[:4], roots.get((*head[:3], head[3] - 1), head[4])] for head in json.loads(said)]
        if heads != json.loads(said):
            connection.execute(
                sa.text("UPDATE calibration_runs SET heads = :h WHERE id = :r"),
                {"h": json.dumps(heads), "r": run},
            )
            changed = True
    return changed


def sign_again(copy: Site) -> None:
    """Put one checkpoint, by a key of one's own, in the place of all."""
    with breaking_in(copy.settings.database.url) as connection:
        remove_checkpoints(connection)
    with wiring.open_store(copy.settings) as store:
        Checkpointer(
            store.heads, signer=signing.Signer(signing.generate_keys()[0]),
            topic="streamer.checkpoints", file=None, every=timedelta(minutes=5), clock=wiring.now,
        ).run()  # fmt: skip


def who_names(
    site: Site,
    name: str,
    directory: Path,
    also: Callable[[Site, str, Store], None] = lambda site, way, store: None,
    ways: Sequence[str] = WAYS,
) -> str:
    """Attack a record in these ways; returns who names it in the window, if `verify` does in the others, else all cells.

    `also` gets each attacked copy, with the way.

    Whoever reseals goes on from the raw change, and whoever signs again from what was resealed.
    """
    cells = {}

    def see(copy: Site, way: str, store: Store) -> None:
        if way in ways:
            cells[way] = copy.named_by(store)
            also(copy, way, store)

    for own in (old := directory / "old", window := directory / "window"):
        own.mkdir()
    copy = site.copy(old)
    with wiring.open_store(copy.settings) as store:
        edit(copy, name, "old")
        see(copy, "raw", store)
        if {"resealed", "re-signed"} & set(ways):
            rebuild_chains(copy)
            see(copy, "resealed", store)
        if "re-signed" in ways:
            sign_again(copy)
            see(copy, "re-signed", store)
    copy = site.copy(window)
    with wiring.open_store(copy.settings) as store:
        attack(copy, name, "in the window")
        see(copy, "in the window", store)
    in_the_window = cells.pop("in the window")
    return in_the_window if set(cells.values()) == {"verify"} else str(cells)


def who_names_addition(site: Site, name: str, directory: Path) -> str:
    """Add something to a record; returns who names it."""
    copy = site.copy(directory)
    ADDITIONS[name](copy)
    return copy.named_by()


# -- with the key that signs checkpoints --------------------------------------------------------------------------------

STOLEN: Final = (
    "a ship becomes a hold: scores, action, event",
    "a hold becomes a ship: scores, action, event",
    "an older policy, and a control log that was not further then",
    "a decision removed, with its offset",
    "a raw energy",
    "who gave a label of a file",
    "a label of the topic removed",
    "who closed a gate",
    "who acknowledged an alert",
)
"""What somebody changes who has the key, too, and all copies of checkpoints but those of a witness."""


def resign(connection: sa.Connection) -> list[bytes]:
    """Make every checkpoint anew, at its old sizes over the logs as they are now, with the key that signed it."""
    signer, log, made = signing.Signer(PRIVATE), Edge(), []
    for index, data in connection.execute(
        sa.text("SELECT leaf_index, data FROM heads ORDER BY leaf_index")
    ).all():
        facts = json.loads(data)
        facts["control"] = _head_now(connection, facts["control"], "control_log", "1 = 1", {})
        facts["partitions"] = [
            one
            | _head_now(
                connection, one, "outcomes",
                "log_id = :log_id AND topic = :topic AND partition = :partition",
                {name: one[name] for name in ("log_id", "topic", "partition")},
            )
            for one in facts["partitions"]
        ]  # fmt: skip
        new = canonical_json(facts)
        ended = log.append(leaf_hash(new))
        note = signer.checkpoint(origin_of(facts["record"]), log.size, log.root())
        made.append(encode_checkpoint(note, wiring.now()))
        connection.execute(
            sa.text("UPDATE heads SET data = :d, nodes = :n WHERE leaf_index = :i"),
            {"d": new, "n": b"".join(ended), "i": index},
        )
        connection.execute(sa.text("UPDATE signed_head SET note = :n"), {"n": note})
    return made


def _head_now(
    connection: sa.Connection, head: dict[str, Any], table: str, where: str, place: dict[str, Any]
) -> dict[str, Any]:
    """What a log was at a size, or at its end if it is shorter now."""
    log = Edge()
    for (leaf,) in connection.execute(
        sa.text(f"SELECT leaf_hash FROM {table} WHERE {where} AND leaf_index < :size ORDER BY leaf_index"),
        place | {"size": head["size"]},
    ):
        log.append(leaf)
    return head | {"size": log.size, "root": log.root().hex()}


def who_names_stolen(site: Site, name: str, directory: Path) -> str:
    """Change what a checkpoint covers, make all checkpoints anew with the stolen key; returns who names it without a witness."""
    copy = site.copy(directory)
    witness = (directory / "checkpoints.jsonl").read_bytes().splitlines()
    attack(copy, name, "resealed")
    with breaking_in(copy.settings.database.url) as connection:
        made = resign(connection)
    (directory / "checkpoints.jsonl").write_bytes(b"".join(one + b"\n" for one in made))
    assert verify(copy.settings, outside=witness).faults, "a witness's checkpoint names everything"
    return copy.named_by()


def unsealed() -> dict[str, str]:
    """Why nothing seals some tables and columns, by their names."""
    named: dict[str, list[str]] = {}
    for name, why in no_evidence().items():
        named.setdefault(why, []).append(f"`{name}`")
    return {", ".join(names): why for why, names in named.items()}


TABLES: Final[dict[str, tuple[Iterable[str], Callable[[Site, str, Path], str]]]] = {
    "tampering": (EDITS, who_names),
    "additions": (ADDITIONS, who_names_addition),
    "stolen": (STOLEN, who_names_stolen),
}
"""The attacks of each list of the page, and what finds who names them."""


def on_the_page(name: str) -> dict[str, str]:
    """Who names each attack, by a list of the page."""
    text = PAGE.read_text("utf-8").split(f"<!-- {name}: ", 1)[1].split(f"<!-- end of {name} -->", 1)[0]
    lists = [" ".join(one.split()).split("**: ") for one in text.split("\n- **")[1:]]
    return {one: who for who, names in lists for one in names.split("; ")}


def main() -> None:
    """Write the lists into the page."""
    with tempfile.TemporaryDirectory() as folder:
        site = make_site(Path(folder))
        for table, (attacks, find) in TABLES.items():
            found: dict[str, list[str]] = {}
            for name in attacks:
                with tempfile.TemporaryDirectory() as own:
                    found.setdefault(find(site, name, Path(own)), []).append(name)
                sys.stdout.write(f"{name}\n")
            _put(table, "\n".join(f"- **{who}**: {'; '.join(names)}" for who, names in found.items()))
    _put("unsealed", "\n".join(f"- {names}: {why}" for names, why in unsealed().items()))


def _put(name: str, made: str) -> None:
    """Write a list into the page, between its marks."""
    before, rest = PAGE.read_text("utf-8").split(f"<!-- {name}: ", 1)
    first, after = rest.split("\n", 1)[0], rest.split(f"<!-- end of {name} -->", 1)[1]
    PAGE.write_text(f"{before}<!-- {name}: {first}\n{made}\n<!-- end of {name} -->{after}", "utf-8")


if __name__ == "__main__":
    main()
