"""What every decision needed of its policy's labelled prompts, derived again by `audit verify` and by both verifiers."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from streamer import wiring
from streamer.audit.rescoring import Rescorer
from streamer.calibration.signal_order import UNREAD
from streamer.errors import UsageError
from streamer.gates.policy import burst_of
from streamer.gates.rule import Full
from streamer.recalibration.comparison import Reading
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.scoring.signals.signal_list import signal_list
from streamer.settings.settings import Settings
from streamer.store.audit.forgetting import prune
from streamer.whatif.replay import replay
from streamer_verify.bundle import Bundle
from streamer_verify.command import verify_bundle as by_one_file
from tests.integration.audit.alone import verify_bundle
from tests.integration.audit.attacker import breaking_in, rebuild_control, rebuild_outcomes
from tests.integration.audit.history import KEYS, Scribe, event, export, scribing, settings_for, verify
from tests.migrated import migrated
from tests.run_folder import made_once
from tests.unit.deciding.test_decider import HashingEncoder

ENCODER = HashingEncoder()
BEFORE, AFTER = 60, 12
GATES: dict[str, dict[str, Any]] = {
    "all": {"max_attempts": 2, "alpha": 0.4, "signals": ("retrieval=0..1", "score")},
    "kinds": {"unit": "batch", "segment_by": "kind", "segment_fallback": "closed", "audit_draws": 2},
    "pooled": {"segment_by": "kind", "segment_fallback": "pooled", "alpha": 0.04},
    "above": {"ship_above": 0.85},
    "bursts": {"group_by": "session"},
    "unread": {},
    "unread-few": {},
    "unread-most": {},
    "unread-never": {"least_alike": 5001},
    "unread-text": {"least_alike": 0},
    "few": {"ship_above": 0.4, "group_by": "prompt"},
    "by-kind": {"method": "crc", "scorer": "gram", "signals": (), "segment_by": "kind"},
    "by-session": {
        "method": "rbwa",
        "scorer": "gram",
        "signals": (),
        "segment_by": "session",
        "segment_fallback": "pooled",
        "alpha": 0.2,
    },
    "one-call": {"scorer": "likelihood", "encoder": "none", "signals": ("logprob", "low_logprob")},
    "mean": {"unit": "batch", "method": "mean", "scorer": "gram", "signals": ()},
}
"""Prompts that calibrate: all but for `FEW`, which have too few for all signals."""
FEW = ("few", "unread-few")


def words(gate: str, number: int) -> bytes:
    """Answers that agree less the higher the number's digit, and numbers that say a little."""
    rng = np.random.default_rng(number)
    content = json.loads(event(gate, number))
    del content["embedding_encoder"]
    content["metadata"] = {
        "kind": "odd" if number % 3 else "even",
        "session": number % 45 if number % 45 > 4 else "five",
    }
    content["prompt"] = f"Which  {'TOWN' if number % 2 else 'town'} is {number % 15}?"
    for i, one in enumerate(content["responses"]):
        del one["embedding"]
        one["text"] = f"It is {'Bern' if rng.uniform() > number % 7 / 7 else f'town {i}'}, of {number % 5}"
        one["signals"] = {"retrieval": round(float(rng.uniform()), 3)} if number % 4 else {}
        one["score"] = round(float(rng.uniform()), 3)
        if gate.startswith("unread"):
            one["text"] += " too long" * (number % 12 == 0) + " ☃" * (
                number % (5 if gate == "unread-most" else 2) > 0
            )
        if gate == "one-call":
            one["token_logprobs"] = (-rng.exponential(0.2, 9)).round(3).tolist()
    content["responses"] = content["responses"][: 1 if gate == "one-call" else None]
    return json.dumps(content).encode()


def severity(number: int, _answer: int) -> float:
    """Half of the labels lie between 0 and 1: a draw of the gate's says what they count as."""
    return float(np.random.default_rng(number + 1000).integers(0, 3) / 2) * (number % 7 > 2)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A copy of a record with a gate of every kind that says what its decisions needed, calibrated, and decided by."""
    shutil.copytree(made_once("budgets", write), tmp_path, dirs_exist_ok=True)
    return settings_for(f"sqlite:///{tmp_path / 'record.db'}", tmp_path)


def write(folder: Path) -> None:
    folder.mkdir()
    settings = settings_for(f"sqlite:///{folder / 'record.db'}", folder)
    migrated(settings)
    with wiring.open_store(settings) as store:
        scribe = Scribe(store, settings, encoder=CachedEncoder(ENCODER))
        for name, given in GATES.items():
            listed = signal_list(given.get("signals", ("retrieval=0..1",))).text
            scribe.gate(
                name,
                **{"method": "full", "scorer": "choice", "alpha": 0.3, "pending": "worst", "encoder": ENCODER.identity.id}
                | given | {"signals": listed if given.get("method") is None else None}
                | {"embeddings": "refuse", "dimension": None},
            )  # fmt: skip
            count = 20 if name in FEW else BEFORE
            scribe.deliver(words(name, n) for n in range(count))
            scribe.deliver(scribe.drawn_labels(name, range(count - 2), severity), topic="labels")
            scribe.recalibrate(name)
            scribe.deliver(words(name, n) for n in range(count, count + AFTER))
        scribe.checkpoint()


def places(settings: Settings, folder: Path) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """What `audit verify` and what the one file finds, and where; the one in JavaScript has to find what the one file does."""
    export(settings, folder / "bundle")
    report, alone = verify(settings, outside=[]), verify_bundle(folder / "bundle", KEYS, [])
    return [(one.place, one.detail) for one in report.faults], [
        (one["place"], one["detail"]) for one in alone.faults
    ]


def found(settings: Settings, folder: Path) -> tuple[list[str], ...]:
    """The same without places."""
    return tuple([detail for _, detail in some] for some in places(settings, folder))


def test_a_record_of_every_kind_of_budget_fits(settings: Settings, tmp_path: Path):
    assert found(settings, tmp_path) == ([], [])
    counted = verify(settings).counts["budgets derived again"]
    assert counted == by_one_file(Bundle(tmp_path / "bundle"), [], None).counts["budgets derived again"]
    assert counted == AFTER * len(GATES) - 7, "what was not read is compared with no score"
    with wiring.open_store(settings) as store, store._database.reading() as connection:
        rows = connection.exec_driver_sql(
            "SELECT gate, count(*), count(DISTINCT budget_count), max(budget_groups) FROM decisions"
            " WHERE budget_count IS NOT NULL GROUP BY gate ORDER BY gate"
        ).all()
        kinds = dict(
            connection.exec_driver_sql("SELECT gate, state FROM policies WHERE version = 2").all()  # type: ignore[arg-type]
        )
        above = connection.exec_driver_sql(
            "SELECT d.outcome, d.budget_count <= 0.3 * 61, max(r.score) > 0.85 FROM decisions d JOIN responses r ON r.batch = d.batch"
            " WHERE d.gate = 'above' AND d.budget_count IS NOT NULL GROUP BY d.batch"
        ).all()
        segments = [
            connection.exec_driver_sql(
                f"SELECT outcome = 'ship', budget_count <= {alpha} * (budget_groups + 1) FROM decisions WHERE gate = ? AND budget_count > 0",
                (name,),
            ).all()
            for name, alpha in (("by-kind", 0.3), ("by-session", 0.2))
        ]
    assert all((one.outcome == "ship") == (one[1] and one[2]) for one in above)
    there = {tuple(one[1:]) for one in above}
    assert there >= {(1, 1), (1, 0)}, "what passes all fits is held where its score is low"
    there = [{tuple(one) for one in some} for some in segments]
    assert there == [{(1, 1), (0, 0)}] * 2, "it ships iff p is within"
    expected = [(name, AFTER - 7 if name == "unread-few" else AFTER) for name in sorted(GATES)]
    assert [row[:2] for row in rows] == expected
    assert all(different > 2 for name, _, different, _ in rows if name != "unread-few")
    wanted = [BEFORE, BEFORE, 41, 40, BEFORE, 15, 40, *[BEFORE] * 4, 20, *[BEFORE] * 3]
    assert [row[3] for row in rows] == wanted
    assert {name for name, state in kinds.items() if state == "full"} == {
        *("above", "all", "bursts", "kinds", "one-call", "pooled"),
        *("unread", "unread-most", "unread-never", "unread-text"),
    }


def test_what_was_read_or_not_ships_by_labels_of_its_like_alone(settings: Settings):
    with wiring.open_store(settings) as store, store._database.reading() as connection:
        rows = connection.exec_driver_sql(
            "SELECT d.gate, b.batch_id, d.reason, d.outcome, d.signals, d.budget_count, d.budget_groups FROM decisions d"
            " JOIN batches b ON b.id = d.batch WHERE d.gate LIKE 'unread%' AND d.policy_version = 2"
        ).all()
    assert len(rows) == 5 * AFTER
    for row in rows:
        number = int(row.batch_id.rpartition("-")[2])
        marks = np.frombuffer(row.signals, "<f4")[UNREAD].tolist()
        assert marks == [number % 12 == 0, number % (5 if row.gate == "unread-most" else 2) > 0, 0]
        few = number % 12 == 0
        most = row.gate == "unread-most" and (few or not any(marks))
        held = {"unread": few, "unread-text": False, "unread-most": most}.get(row.gate, any(marks))
        wanted = ("not_read" if any(marks) else "too_few_alike") if held else "scored"
        assert row.reason == wanted, (
            "30 labelled prompts had a snowman, 5 were too long, and of the most 11 were read"
        )
        if held:
            assert row.outcome == "abstain"
            assert row[5:] == ((None, None) if row.gate == "unread-few" else (BEFORE + 1, BEFORE))
    shipped = [
        row for row in rows if row.outcome == "ship" and np.frombuffer(row.signals, "<f4")[UNREAD].any()
    ]
    assert shipped, "labels of their like let snowmen out"


@pytest.mark.parametrize("key", [None, "prompt"])
def test_bursts_with_a_bad_label_are_held_and_no_others(settings: Settings, key: str | None):
    name, count = ("bursts", BEFORE) if key is None else ("few", 20)
    with wiring.open_store(settings) as store, store._database.reading() as connection:
        found = connection.exec_driver_sql(
            "SELECT b.batch_id, b.prompt, b.metadata, d.reason, d.outcome, d.burst, d.policy_version, d.budget_count FROM decisions d "
            "JOIN batches b ON b.id = d.batch WHERE d.gate = ? ORDER BY d.batch",
            (name,),
        ).all()
        (bad,) = connection.exec_driver_sql(
            "SELECT group_concat(b.batch_id) FROM calibration_inputs i JOIN batches b ON b.id = i.batch WHERE b.gate = ? "
            "AND i.bad AND i.severity > 0",
            (name,),
        ).one()
    named = {one.batch_id: burst_of(one.prompt, json.loads(one.metadata), key or "session") for one in found}
    held = {named[one] for one in bad.split(",")}
    assert len(found) == count + AFTER
    for one in found:
        by_burst = one.policy_version == 2 and named[one.batch_id] in held
        assert (one.reason == "bad_burst") == by_burst
        assert one.outcome == "abstain" or not by_burst
        assert (one.burst is not None) == (one.policy_version == 2)
        wanted = one.policy_version == 2
        assert (one.budget_count is not None) == wanted, "what it needed is said all the same"
    reasons = [one.reason for one in found if one.policy_version == 2]
    assert {*reasons} == {"bad_burst", "scored"}
    with wiring.open_store(settings) as store:
        asking = wiring.what_if(store, name, since=wiring.now() - timedelta(days=1), now=wiring.now())
        assert asking.differences() == ()
        past, policy = asking._past(None), store.policies.get(name, 2)
        after = np.repeat(past.versions == 2, past.sizes)
        again = replay(past, policy.settings, Reading.of_policy(policy), salt=b"")
        assert again[after].tolist() == past.shipped[after].tolist()
        without = replay(past, policy.settings, replace(Reading.of_policy(policy), bursts=None), salt=b"")
        assert (without & ~again).any(), "but for the label of its burst it would have shipped"


def test_an_erased_key_ends_recognition_and_the_record_still_fits(settings: Settings, tmp_path: Path):
    with wiring.open_store(settings) as store:
        scribe = Scribe(store, settings, encoder=CachedEncoder(ENCODER))
        scribe.recalibrate("bursts")
        assert None not in [store.policies.get("bursts", version).bursts.secret for version in (2, 3)]  # type: ignore[union-attr]
    later = wiring.now() + timedelta(days=200)
    assert prune(settings.database.url, older_than=timedelta(days=190), now=later).burst_keys == 1
    with wiring.open_store(settings) as store:
        secrets = [store.policies.get("bursts", version).bursts.secret for version in (2, 3)]  # type: ignore[union-attr]
        assert (secrets[0], secrets[1] is None) == (None, False), "the policy in force goes on"
        with store._database.reading() as connection:
            kept = connection.exec_driver_sql(
                "SELECT count(*) FROM calibration_runs WHERE burst_key IS NOT NULL"
            ).scalar_one()
        with pytest.raises(UsageError, match="was erased"):
            store.policies.rollback("bursts", 2, by="ana", reason="it was better")
    assert kept == 2  # of bursts and of few
    assert found(settings, tmp_path) == ([], [])


@pytest.mark.parametrize("segments", [{}, {"segment_by": "kind", "segment_fallback": "pooled"}])
def test_where_the_newest_prompts_are_worse_both_fits_are_derived_again(
    tmp_path: Path, segments: dict[str, str]
):
    with scribing(tmp_path) as (settings, store, scribe):
        given = {"method": "full", "scorer": "choice", "signals": signal_list(()).text, "pending": "worst"}
        scribe.gate("worse", unit="best", alpha=0.2, **given | segments)
        for first, end, share in ((0, 120, 0.1), (120, 200, 0.6)):
            scribe.deliver(event("worse", n) for n in range(first, end))
            labels = scribe.drawn_labels(
                "worse",
                range(first, end),
                lambda n, _, share=share: float(np.random.default_rng(n).uniform() < share),
            )
            scribe.deliver(labels, topic="labels")
            scribe.recalibrate("worse")
        scribe.deliver(event("worse", n) for n in range(200, 220))
        rule = store.policies.newest("worse").rule
    assert isinstance(rule, Full)
    assert len(rule.fits) == 2
    assert found(settings, tmp_path) == ([], [])
    with breaking_in(settings.database.url) as connection:
        of_rule(f'"groups":{rule.fits[1].groups}', f'"groups":{rule.fits[1].groups - 1}')(connection, "worse")
        rebuild_control(connection)
        rebuild_outcomes(connection)
    for details in found(settings, tmp_path / "changed"):
        assert any("another rule" in one for one in details), details


def test_rows_of_signals_are_measured_again_from_texts(settings: Settings):
    def again() -> Any:
        embed = CachedEncoder(ENCODER).embed
        return verify(settings, outside=[], rescorer=Rescorer({ENCODER.identity.id: embed}))

    report = again()
    assert report.faults == ()
    assert report.counts["rows of signals measured again"] == 10 * (BEFORE + AFTER) + 2 * (20 + AFTER)
    with breaking_in(settings.database.url) as connection:  # a signal that no calibration has read
        changed_row(connection, "WHERE gate = 'few' AND budget_count IS NOT NULL")
        rebuild_outcomes(connection)
    (fault,) = (one for one in again().faults if one.check == "score")
    assert "a signal differs by" in fault.detail


def test_rows_that_were_carried_are_measured_again_from_texts(settings: Settings):
    def again() -> Any:
        embed = CachedEncoder(ENCODER).embed
        return verify(settings, outside=[], rescorer=Rescorer({ENCODER.identity.id: embed}))

    before = again().counts["rows of signals measured again"]
    with wiring.open_store(settings) as store:
        listed = store.gates.get("kinds").settings.signal_list
        with store._database.reading() as connection:
            rows = connection.exec_driver_sql(
                "SELECT batch, signals FROM decisions WHERE gate = 'kinds' LIMIT 9"
            ).all()
        store.carried_scores.keep_signals(listed.hash, {row.batch: row.signals for row in rows})
    report = again()
    assert report.faults == ()
    assert report.counts["rows of signals measured again"] == before + 9
    with breaking_in(settings.database.url) as connection:
        row = np.frombuffer(rows[4].signals, "<f4").copy()
        row[3] += 0.1
        connection.exec_driver_sql(
            "UPDATE carried_signals SET signals = ? WHERE batch = ?", (row.tobytes(), rows[4].batch)
        )
        rebuild_control(connection)
        rebuild_outcomes(connection)
    (fault,) = (one for one in again().faults if one.check == "score")
    assert fault.place.startswith("carried_signals (kinds/batch-")
    assert "a signal differs by" in fault.detail


def changed_row(connection: sa.Connection, where: str) -> None:
    number, row = connection.exec_driver_sql(f"SELECT batch, signals FROM decisions {where} LIMIT 1").one()
    signals = np.frombuffer(row, "<f4").copy()
    signals[:6] = -signals[:6] - 1
    connection.exec_driver_sql(
        "UPDATE decisions SET signals = ? WHERE batch = ?", (signals.tobytes(), number)
    )


NEEDED = "the budget that it needed is"
ONE = "WHERE batch = (SELECT max(batch) FROM decisions WHERE gate = '{gate}' AND policy_version = 2 AND budget_count > 1)"
READ = "WHERE gate = '{gate}' AND batch IN (SELECT batch FROM calibration_inputs WHERE severity = 1)"
OF_RUN = "run IN (SELECT id FROM calibration_runs WHERE gate = '{gate}')"


def of_rule(old: str, new: str) -> Callable[[sa.Connection, str], None]:
    """Change the rule of a run and of its policy, by a regular expression."""

    def change(connection: sa.Connection, gate: str) -> None:
        for table, of in (("policies", "calibration_run"), ("calibration_candidates", "run")):
            where = f"FROM {table} WHERE rule LIKE '%\"fits\"%' AND {of} IN (SELECT id FROM calibration_runs WHERE gate = ?)"
            rule, *_ = connection.exec_driver_sql(
                f"SELECT rule {where} ORDER BY {of} DESC", (gate,)
            ).scalars()
            changed = re.sub(old, new, rule, count=1)
            assert changed != rule
            connection.exec_driver_sql(f"UPDATE {table} SET rule = ? WHERE rule = ?", (changed, rule))

    return change


def of_row(where: str) -> Callable[[sa.Connection, str], None]:
    return lambda connection, gate: changed_row(connection, where.format(gate=gate))


TOGETHER: dict[str, dict[str, tuple[Any, str]]] = {
    # What somebody does to different gates at once, every log being computed anew, and what is said of each.
    "what decisions needed": {
        "all": (of_row(ONE), NEEDED),
        "kinds": (f"UPDATE decisions SET budget_count = budget_count + 1 {ONE}", NEEDED),
        "pooled": (f"UPDATE decisions SET budget_groups = budget_groups + 1 {ONE}", NEEDED),
        "above": (f"UPDATE decisions SET budget_count = NULL, budget_groups = NULL {ONE}", NEEDED),
        "bursts": (f"UPDATE decisions SET signals = NULL {ONE}", NEEDED),
        "mean": (f"UPDATE decisions SET budget_count = budget_count + 0.25 {ONE}", NEEDED),
        "by-kind": (f"UPDATE decisions SET budget_count = budget_count + 1 {ONE}", NEEDED),
    },
    "what runs have read and found": {
        "all": (of_row(READ), "another rule"),
        "above": (f"UPDATE calibration_inputs SET bad = NOT bad WHERE severity = 1 AND {OF_RUN}", "by its severity 1"),
        "pooled": (f"UPDATE calibration_inputs SET bad = NOT bad WHERE severity = 0.5 AND {OF_RUN}", "by its severity 0.5"),
        "bursts": (f"UPDATE calibration_inputs SET severity = 0, bad = (1 = 0) WHERE severity = 1 AND {OF_RUN}", "another rule"),
        "kinds": (of_rule(r'"ridge":100.0', '"ridge":30.0'), "another rule"),
        "unread": (of_rule(r'"rows":"[0-9a-f]{8}', '"rows":"00000000'), "another rule"),
        "unread-text": (of_rule(r'"allowed":1', '"allowed":11'), "another rule"),
        "unread-never": (
            f"DELETE FROM calibration_inputs WHERE {OF_RUN} AND batch = (SELECT min(batch) FROM calibration_inputs WHERE {OF_RUN})",
            "another number of groups",
        ),
    },
    "a hold for a burst, one said to be of another, and one without a bad label": {
        "bursts": (
            "UPDATE decisions SET reason = 'scored' WHERE reason = 'bad_burst' AND gate = '{gate}'",
            "should be 'bad_burst'",
        ),
        "few": (
            "UPDATE decisions SET burst = (SELECT max(burst) FROM decisions WHERE gate = '{gate}' AND reason = 'scored') "
            "WHERE gate = '{gate}' AND reason = 'bad_burst'",
            "not that of its question",
        ),
        "above": (
            "UPDATE decisions SET reason = 'bad_burst', outcome = 'abstain', selected = NULL WHERE gate = '{gate}' AND policy_version = 2",
            "should be 'scored'",
        ),
    },
    "a batch of a run by burst, and one that was held": {
        "bursts": (
            "DELETE FROM calibration_inputs WHERE batch = (SELECT max(batch) FROM calibration_inputs WHERE {run})",
            "it did not read the drawn batch",
        ),
        "few": ("UPDATE decisions SET burst = NULL WHERE reason = 'bad_burst' AND gate = '{gate}'", "its burst in run"),
    },
    "which batch of a burst counts": {
        "bursts": (
            "UPDATE calibration_inputs SET spare = NOT spare WHERE burst IN (SELECT burst FROM calibration_inputs WHERE {run} "
            "GROUP BY burst HAVING count(DISTINCT batch) = 2)",
            "burst",
        ),
    },
    "a batch of a burst that counts alone": {
        "bursts": (f"UPDATE calibration_inputs SET burst = NULL, spare = 0 WHERE spare AND {OF_RUN}", "another rule"),
    },
    "a burst that a run has read": {
        "bursts": (
            "UPDATE calibration_inputs SET burst = printf('%064d', batch) WHERE NOT spare AND burst IN (SELECT burst FROM "
            "calibration_inputs WHERE {run} GROUP BY burst HAVING count(DISTINCT batch) = 1)",
            "its burst in run",
        ),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", TOGETHER)
def test_what_was_changed_is_named_though_every_chain_was_computed_anew(
    settings: Settings, tmp_path: Path, name: str
):
    with breaking_in(settings.database.url) as connection:
        for gate, (attack, _) in TOGETHER[name].items():
            if callable(attack):
                attack(connection, gate)
            else:
                run = OF_RUN.format(gate=gate)
                assert connection.exec_driver_sql(attack.format(gate=gate, run=run)).rowcount
        rebuild_control(connection)
        rebuild_outcomes(connection)
    for named in places(settings, tmp_path):
        for gate, (_, said) in TOGETHER[name].items():
            of_gate = (f"({gate}/", f" gate {gate} ")
            assert any(said in detail and any(one in place for one in of_gate) for place, detail in named), (
                gate,
                named,
            )
