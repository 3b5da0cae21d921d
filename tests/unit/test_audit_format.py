"""The test vectors of docs/audit-format.md say what the program does.

``python -m tests.unit.test_audit_format`` writes them anew.
"""

import base64
import contextlib
import json
import math
import random
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import sqlalchemy as sa
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from streamer.audit.signing import Signer
from streamer.calibration import registry
from streamer.calibration.calibrators.bb import Bb
from streamer.calibration.calibrators.rbwa import Rbwa
from streamer.calibration.full_fit import Prompts
from streamer.calibration.groups import LabelledGroup
from streamer.calibration.history import NO_HISTORY, History
from streamer.calibration.keyed_weights import KeyedWeights
from streamer.calibration.specification import Calibrator, Sample
from streamer.events.actions import action_id
from streamer.events.desk import desk_id
from streamer.gates.batch_key import BatchKey
from streamer.gates.gate import gate_batch
from streamer.gates.policy import Policy, segment_of
from streamer.gates.policy_gate import PolicyGate
from streamer.gates.rule import CalibrationLosses, Cut, Full, rule_from_json, rule_to_json
from streamer.gates.settings import GateSettings
from streamer.gates.uniforms import keyed_bits, uniform_of, uniforms_for
from streamer.journal import LabelRevision, Partition, Record
from streamer.labels.signing import statement as label_statement
from streamer.recalibration.candidates import decide, for_gate
from streamer.recalibration.comparison import Reading, direction
from streamer.scoring.blank import is_blank
from streamer.signing import merkle
from streamer.signing.canonical_json import canonical_json, salt_commitment, seed_commitment
from streamer.signing.policies import statement
from streamer.store.audit import control
from streamer.store.db.schema import label_revisions
from streamer.store.desk.release_desk import text_mac
from streamer.store.labels.revisions import Severities, severities_given
from streamer.store.log import leaves
from streamer_verify import (
    actions,
    all_signals,
    calibrators,
    run_again,
    runs,
    samples,
    signatures,
    values,
    waits,
)
from streamer_verify import decisions as alone_decisions
from streamer_verify import logs as alone_logs
from streamer_verify import verifier as alone_verifier
from tests import programs
from tests.services.requirements import missing

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "audit-format.md"
FILE: Final = ROOT / "docs" / "audit-format.vectors.json"
GIVEN: Final = json.loads(FILE.read_text("utf-8"))
VECTORS: Final[dict[str, Callable[[Any], Any]]] = {}
"""What the program makes of each vector that is given."""
BY_THE_ONE_FILE: Final[dict[str, Callable[[Any], Any]]] = {}
"""What the verifier of one file makes of it."""


def by_program(vector: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Take a function for the vector of its name."""
    VECTORS[vector.__name__.strip("_").replace("_", "-")] = vector
    return vector


def by_one_file(vector: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same for a name that ends with `alone`."""
    BY_THE_ONE_FILE[vector.__name__.strip("_").removesuffix("_alone").replace("_", "-")] = vector
    return vector


@by_program
def _blanks(given: list[Any]) -> list[Any]:
    return [[text, is_blank(text)] for text, _ in given]


@by_program
def _rules(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made = []
    for one in given:
        gate = PolicyGate(
            unit=one["unit"], cut=Cut(one["state"], one.get("threshold")), rule=rule_from_json(one["rule"])
        )
        ruling = gate.decide(
            one["scores"], **{name: one.get(name) for name in ("blank", "uniforms", "segment")}
        )
        found = {"shipped": list(ruling.gate.shipped), "selected": ruling.gate.selected}
        made.append(one | found | {"cut": _lambda(ruling.cut.value)})
    return made


@by_program
def _segments(given: list[Any]) -> list[Any]:
    return [[value, segment_of({"key": value}, "key")] for value, _ in given]


@by_program
def _deadlines(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made = []
    for one in given:
        settings = GateSettings(
            encoder="a@12345678", decision_deadline_seconds=one.get("decision_deadline_seconds")
        )
        now, created = datetime.fromisoformat(one["decided_at"]), one["created_at"]
        record = Record(Partition("l", "t", 0), 0, b"", b"", (), one["timestamp_ms"], one.get("deadline_ms"))
        moment = None if created is None else datetime.fromisoformat(created)
        late = record.is_overdue(now) or settings.is_late(moment, one["timestamp_ms"], now)
        made.append(one | {"late": late})
    return made


@by_program
def _desk(given: dict[str, Any]) -> dict[str, Any]:
    settings = GateSettings(
        encoder="a@12345678",
        mode="enforce",
        hold_action="escalate",
        desk_deadline_seconds=given["desk_deadline_seconds"],
    )
    until = settings.at_desk_until("escalate", 1, datetime.fromisoformat(given["decided_at"]))
    return given | {
        "id": desk_id(BatchKey(*given["batch"])),
        "text_mac": text_mac(bytes.fromhex(given["salt"]), given["text"]).hex(),
        "until": until.isoformat(timespec="microseconds"),
    }


@by_program
def _judgement(given: dict[str, Any]) -> dict[str, Any]:
    return given | {
        "content_mac": leaves.judgement_mac(bytes.fromhex(given["salt"]), given["exchanges"]).hex()
    }


@by_program
def _severities(given: dict[str, Any]) -> dict[str, Any]:
    """From a database with these labels, as a calibration run reads it."""
    engine = sa.create_engine("sqlite://")
    made = []
    with engine.begin() as connection:
        label_revisions.create(connection)
        for number, one in enumerate(given["labels"], 1):
            moment = {
                name: datetime.fromisoformat(one["effective_at"])
                for name in ("labelled_at", "received_at", "effective_at")
            }
            row = given["response"] | one | moment | {"id": number, "source": "file"}
            connection.execute(label_revisions.insert().values(row))
        response = given["response"]
        key = BatchKey(response["gate"], response["batch_id"], response["attempt"])
        for one in given["read"]:
            labels = sa.select(label_revisions)
            if one["labellers"] is not None:
                labels = labels.where(label_revisions.c.labeller.in_(one["labellers"]))
            table = labels.subquery()
            mean = Severities.read(connection, table, response["gate"], one["kind"])
            highest = severities_given(table, response["gate"], one["kind"])
            (most,) = connection.execute(sa.select(highest.c.severity)).scalars()
            made.append(one | {"mean": mean.get(key, response["response_id"]), "highest": most})
    engine.dispose()
    return given | {"read": made}


@by_program
def _order(given: dict[str, Any]) -> dict[str, Any]:
    """By the verifier of `audit verify`, which the one file has."""

    def verifier() -> alone_verifier.Verifier:
        made = alone_verifier.Verifier([])
        made._control_size = given["control_size"]
        made._control_roots = {size: f"{size}" for size in range(made._control_size + 1)}
        for index, version, closes in given["policies"]:
            row = {"gate": "best", "version": version, "state": "closed"}
            row |= dict.fromkeys(("calibration_run", "threshold"))
            row["rule"] = None if closes else '{"curve":null,"kind":"smooth","parameters":{}}'
            row["valid_from"] = "2026-11-20T12:00:00.000000+00:00"
            made._keep("policies", row, {"index": index}, "")
        return made

    decisions = []
    for one in given["decisions"]:
        found = verifier()
        facts = {"batch": ["best", "b", 1], "control": [one["control"], ""]}
        facts |= {"newest_seen": one["newest_seen"]} if one["newest_seen"] else {}
        found._in_force(facts, one["policy"], "")
        decisions.append(one | {"fits": not found.faults})
    logs = []
    for one in given["logs"]:
        found = verifier()
        for index, size in enumerate(one["controls"]):
            found._how_far(("l", "t", 0), index, [size, f"{size}"], "")
        logs.append(one | {"fits": not found.faults})
    return given | {"decisions": decisions, "logs": logs}


@by_program
def _waits(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def reading(one: dict[str, Any]) -> Reading:
        rule = {"kind": "indicator", "parameters": {}, "curve": None} if one["rule"] is None else one["rule"]
        return Reading(Cut(one["state"], one["threshold"]), rule_from_json(rule))

    return [
        one | {"looser": direction(reading(one["before"]), reading(one["after"])) == "looser"}
        for one in given
    ]


@by_program
def _label_signature(given: dict[str, Any]) -> dict[str, Any]:
    said = given["label"]
    label = LabelRevision(
        key=BatchKey(said["gate"], said["batch_id"], said["attempt"]),
        labelled_at=datetime.fromisoformat(said["labelled_at"]),
        severities=tuple(said["severities"].items()),
        **{name: said[name] for name in ("response_id", "severity", "raw_severity", "kind", "labeller")},
    )
    text, signer = (
        label_statement(label, record_id=bytes.fromhex(given["record"])),
        _signer(given["private_key"]),
    )
    return given | {"key_id": signer.key_id, "statement": text.decode(), "signature": signer.sign(text)}


@by_program
def _canonical(given: dict[str, Any]) -> dict[str, Any]:
    return given | {"output": canonical_json(json.loads(given["input"])).decode()}


@by_program
def _merkle(given: dict[str, Any]) -> dict[str, Any]:
    log, roots = merkle.Edge(), [merkle.EMPTY_ROOT.hex()]
    for one in given["leaves"]:
        log.append(merkle.leaf_hash(one.encode()))
        roots.append(log.root().hex())
    return given | {"roots": roots}


@by_program
def _control_leaf(given: dict[str, Any]) -> dict[str, Any]:
    said = {name: given[name] for name in ("index", "kind", "row")}
    at = datetime.fromisoformat(given["recorded_at"])
    leaf = control.leaf(bytes.fromhex(given["record"]), recorded_at=at, **said)
    return given | {"leaf": leaf.hex()}


@by_program
def _commitments(given: dict[str, Any]) -> dict[str, Any]:
    gate, salt = given["gate"], bytes.fromhex(given["salt"])
    return given | {
        "salt_commitment": salt_commitment(gate, salt),
        "seed_commitment": seed_commitment(gate, given["seed"]),
    }


@by_program
def _outcome_leaf(given: dict[str, Any]) -> dict[str, Any]:
    outcome = dict(zip(("log_id", "topic", "partition", "offset"), given["source"], strict=True))
    outcome |= {"kind": given["kind"], "leaf_index": given["index"]}
    outcome["recorded_at"] = datetime.fromisoformat(given["recorded_at"])
    return given | {"leaf": leaves.leaf(outcome, given["facts"]).hex()}


@by_program
def _seals(given: dict[str, Any]) -> dict[str, Any]:
    batch = {name: given[name] for name in ("prompt", "references", "metadata")}
    batch |= {"content_hash": bytes.fromhex(given["content_hash"]), "salt": bytes.fromhex(given["salt"])}
    headers = tuple((name, base64.b64decode(value)) for name, value in json.loads(given["headers"]))
    key, value = base64.b64decode(given["key"]), base64.b64decode(given["value"])
    return given | {
        "content_mac": leaves.batch_mac(batch, given["texts"]).hex(),
        "action": leaves.message_digest(given["topic"], key, value, headers),
        "action_id": action_id(BatchKey(*given["batch"])),
    }


def _signer(private: str) -> Signer:
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(private))
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Signer(pem.decode())


@by_program
def _checkpoint(given: dict[str, Any]) -> dict[str, Any]:
    signer = _signer(given["private_key"])
    root = merkle.leaf_hash(canonical_json(given["head"]))
    note = signer.checkpoint(f"streamer/{given['head']['record']}", 1, root)
    return given | {"checkpoint": note.decode()}


@by_program
def _decisions(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made = []
    for one in given:
        asked = {name: one[name] for name in ("unit", "state", "threshold", "blank")}
        gate = gate_batch(one["scores"], **asked)
        made.append(one | {"shipped": list(gate.shipped), "selected": gate.selected})
    return made


@by_program
def _transductive(given: dict[str, Any]) -> dict[str, Any]:
    gate = PolicyGate(unit="response", cut=Cut("open", None), rule=rule_from_json(given["rule"]))
    cuts = [one | {"cut": _lambda(gate.decide(one["scores"]).cut.value)} for one in given["cuts"]]
    return given | {"cuts": cuts}


@by_program
def _draws(given: dict[str, Any]) -> dict[str, Any]:
    salt, response = bytes.fromhex(given["salt"]), given["response"]
    batch = gate, name, attempt = given["gate"], given["batch_id"], str(given["attempt"])
    key = BatchKey(gate, name, int(attempt))
    (dither,) = uniforms_for(salt, key, [response], "response")
    return given | {
        "audit": keyed_bits(salt, "audit", *batch),
        "draw": keyed_bits(salt, "draw", *batch, response),
        "dither": dither,
        "severity": uniform_of(salt, key, "severity"),
    }


@by_program
def _policy_signature(given: dict[str, Any]) -> dict[str, Any]:
    # Settings that came after the page was written have the value that leaves them out, as in rows of that time.
    flat, row = given["settings"], given["row"]
    settings = GateSettings(**flat | {"labellers": tuple(flat["labellers"])})
    given_apart = {
        "settings": settings,
        "seed": given["seed"],
        "valid_from": datetime.fromisoformat(row["valid_from"]),
    }
    names = {one.name for one in fields(Policy)} & row.keys() - given_apart.keys() - {"rule"}
    policy = Policy(**given_apart, **{name: row[name] for name in names})
    text = statement(
        policy, record_id=bytes.fromhex(given["record"]), audit_salt=bytes.fromhex(given["salt"])
    )
    signature = _signer(given["private_key"]).sign(text)
    return given | {"statement": text.decode(), "signature": signature}


@by_program
def _weights(given: dict[str, Any]) -> dict[str, Any]:
    keys, group, items = KeyedWeights(given["seed"]), given["group"], given["items"]
    return given | {
        "pick": items[keys.pick(group, items)],
        "coin": keys.coin(group),
        "order": [["a#1", "b#1", "c#1"][i] for i in keys.order(["a#1", "b#1", "c#1"])],
        "bb": Bb(given["draws"]).keyed(group, items, keys).tolist(),
        "rbwa": [round(one, 12) for one in Rbwa(given["eta"]).keyed(group, items, keys).tolist()],
    }


@by_program
def _calibrators(given: dict[str, Any]) -> dict[str, Any]:
    groups = tuple(
        LabelledGroup(
            one["id"], tuple(one["items"]), np.array(one["scores"]), np.array(one["severities"], np.float64)
        )
        for one in given["groups"]
    )

    def drawn(cuts: Sequence[float] = ()) -> Sample:
        return Sample(
            groups=groups,
            segments={one["id"]: one["segment"] for one in given["groups"]},
            alpha=given["alpha"],
            seed=given["seed"],
            drawn=2,
            history=History(prompts=100, cuts=tuple(cuts)) if cuts else NO_HISTORY,
        )

    def calibrator(method: str, asked: dict[str, Any]) -> Calibrator:
        named = {one: asked.get(one, given.get(one)) for one in registry.every()[method].ranges()}
        return registry.calibrator(method, {one: value for one, value in named.items() if value is not None})

    def calibrated(
        method: str, *, cuts: Sequence[float] = (), label_floor: float | None = None, **asked: Any
    ) -> tuple[float, dict[str, Any]]:
        """By a gate of the method, in its shape and with its segments."""
        settings = GateSettings(
            encoder="a@12345678",
            unit="response",
            audit_draws=2,
            calibrator=calibrator(method, asked),
            label_floor=label_floor,
            **{
                name: asked[name]
                for name in asked.keys() & {"shape", "width", "segment_by", "segment_fallback"}
            },
        )
        found = decide(settings, drawn(cuts))
        return found.threshold.value, rule_to_json(found.rule)

    plain = for_gate(GateSettings(encoder="a@12345678", unit="response", audit_draws=2), drawn())
    thresholds = {
        name: _lambda(calibrator(name, {}).calibrate(plain).threshold.value)
        for name, kind in sorted(registry.every().items())
        if kind.diagnostic
    }
    cases = []
    for one in given["cases"]:
        asked = {name: value for name, value in one.items() if name not in ("threshold", "rule")}
        value, rule = calibrated(**asked)
        cases.append(asked | {"threshold": _lambda(value)} | ({"rule": rule} if rule["parameters"] else {}))
    return given | {"thresholds": thresholds, "cases": cases}


def _lambda(value: float) -> float | str:
    """Lambda as the page writes it: a number, `open` or `closed`."""
    return "closed" if value == math.inf else "open" if value == -math.inf else value


@by_program
def _all_signals(given: dict[str, Any]) -> dict[str, Any]:
    signals, bad, segments = zip(*given["prompts"], strict=True)
    rows = np.frombuffer(bytes.fromhex("".join(signals)), "<f4").reshape(len(signals), -1)
    cases = []
    for one in given["cases"]:
        segmented = one["segment_by"] is not None
        rule = Full.of(
            Prompts(tuple(map(str, range(len(rows)))), rows, np.array(bad), segments if segmented else None),
            signals="",
            budget=one["alpha"],
            attempts=one["max_attempts"],
            segment_by=one["segment_by"],
            pooled=one["segment_fallback"] == "pooled",
        )
        asked = []
        for batch in one["asked"]:
            ((count, groups, _),) = rule.counts(
                np.frombuffer(bytes.fromhex(batch["signals"]), "<f4"), batch["segment"]
            )
            asked.append(batch | {"budget": [count, groups]})
        (fit,) = rule_to_json(rule)["parameters"]["fits"]
        cases.append(one | {"fit": fit, "asked": asked})
    scores = given["by_score"]
    losses = CalibrationLosses(scores["scores"], scores["severities"])
    found = [
        [score, [losses.needed(score).count, losses.needed(score).groups]] for score, _ in scores["asked"]
    ]
    return given | {"cases": cases, "by_score": scores | {"asked": found}}


def test_the_page_has_all_vectors():
    named = re.findall(r"\[`([a-z-]+)`\]\(audit-format.vectors.json\)", PAGE.read_text("utf-8"))
    assert sorted(named) == sorted(VECTORS) == sorted(BY_THE_ONE_FILE) == sorted(GIVEN)


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_is_what_the_program_computes(name: str):
    given = GIVEN[name]
    assert json.dumps(VECTORS[name](given), sort_keys=True) == json.dumps(given, sort_keys=True)


@pytest.mark.node
def test_the_verifier_in_javascript_computes_every_vector():
    if shutil.which("node") is None:
        missing("no node", "install Node 20 or newer (nodejs.org, or apt-get install nodejs)")
    program = ROOT / "verifiers" / "javascript" / "vectors.mjs"
    done = programs.run("node", program, FILE)
    assert done.stdout.split() == sorted(VECTORS.keys() - {"calibrators", "weights"})


@by_one_file
def _canonical_alone(given: dict[str, Any]) -> dict[str, Any]:
    return {"output": values.canonical_json(values.strict_json(given["input"].encode())).decode()}


@by_one_file
def _checkpoint_alone(given: dict[str, Any]) -> dict[str, Any]:
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(given["private_key"])).public_key()
    raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    verifier = alone_verifier.Verifier([raw])
    verifier.checkpoints([given["checkpoint"].encode()], origin="here")
    verifier.log_of_heads([values.canonical_json(given["head"])], given["head"]["record"])
    return {"checkpoint": None if verifier.faults else given["checkpoint"]}


@by_one_file
def _draws_alone(given: dict[str, Any]) -> dict[str, Any]:
    salt, attempt = bytes.fromhex(given["salt"]), str(given["attempt"])
    batch = (given["gate"], given["batch_id"], attempt)
    return {
        "audit": actions.keyed_number(salt, "audit", *batch),
        "draw": actions.keyed_number(salt, "draw", *batch, given["response"]),
        "dither": actions.uniform_of(salt, "dither", batch, given["response"]),
        "severity": actions.uniform_of(salt, "severity", batch),
    }


@by_one_file
def _decisions_alone(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made = []
    for one in given:
        asked = {name: one[name] for name in ("unit", "state", "threshold", "scores", "blank")}
        derived = actions.derive_action({"kind": "indicator"}, facts={}, **asked)
        assert derived is not None
        shipped, best, _ = derived
        made.append({"shipped": shipped, "selected": best if best is not None and shipped[best] else None})
    return made


@by_one_file
def _policy_signature_alone(given: dict[str, Any]) -> dict[str, Any]:
    gate = given["row"]["gate"]
    salt = values.sha256(b"streamer.salt.v1\x00" + values.canonical_json([gate, given["salt"]]))
    of_gate = {"name": gate, "seed": given["seed"], "audit_salt": salt}
    text = signatures.policy_statement(given["row"], given["settings"], of_gate, given["record"])
    return {"statement": text.decode()}


@by_one_file
def _weights_alone(given: dict[str, Any]) -> dict[str, Any]:
    nothing = [0.0] * len(given["items"])
    group = samples.Group(given["group"], given["items"], nothing, nothing)
    seed = str(given["seed"])
    sample = samples.Sample([group], 0.1, seed, {"draws": given["draws"], "eta": given["eta"]})
    named = [samples.Group(name, ["x"], [0.0], [0.0]) for name in ("a#1", "b#1", "c#1")]
    return {
        "pick": given["items"][samples.pick(seed, group)],
        "coin": samples.coin(seed, group.id),
        "order": [one.id for one in samples.reading_order(seed, named)],
        "bb": samples.WEIGHTS["bb"](sample, group),
        "rbwa": [round(one, 12) for one in samples.WEIGHTS["rbwa"](sample, group)],
    }


@by_one_file
def _calibrators_alone(given: dict[str, Any]) -> dict[str, Any]:
    groups = [samples.Group(**one) for one in given["groups"]]
    parameters = {name: given[name] for name in ("delta", "draws", "eta", "rho")}

    def calibrated(
        method: str, *, cuts: Sequence[float] = (), label_floor: float | None = None, **asked: Any
    ) -> tuple[float, dict[str, Any]]:
        own = {name: asked.pop(name) for name in ("shape", "width", "segment_by") if name in asked}
        own["fallback"] = asked.pop("segment_fallback", None)
        sample = samples.Sample(
            groups,
            given["alpha"],
            str(given["seed"]),
            parameters | asked,
            drawn=2,
            floor=label_floor,
            cuts=cuts,
        )
        return calibrators.calibrate(sample, method, **own)

    cases = []
    for one in given["cases"]:
        value, rule = calibrated(
            **{name: said for name, said in one.items() if name not in ("threshold", "rule")}
        )
        near = values.same_json(_lambda(value), one["threshold"], run_again._NEAR)
        found = one["threshold"] if near and one.get("shape") in ("smooth", "ramp") else _lambda(value)
        cases.append(one | {"threshold": found} | ({"rule": rule} if "rule" in one else {}))
    return {
        "thresholds": {name: _lambda(calibrated(name)[0]) for name in sorted(calibrators.METHODS)},
        "cases": cases,
    }


@by_one_file
def _merkle_alone(given: dict[str, Any]) -> dict[str, Any]:
    log, roots = alone_logs.Log(), []
    for one in (*given["leaves"], None):
        roots.append(log.root())
        if one is not None:
            log.append(bytes.fromhex(values.sha256(b"\x00" + one.encode())))
    return {"roots": roots}


@by_one_file
def _control_leaf_alone(given: dict[str, Any]) -> dict[str, Any]:
    line = {name: given[name] for name in ("index", "kind", "recorded_at", "row", "leaf")}
    control = {"size": 1, "root": given["leaf"]}
    line["root"] = given["leaf"]
    head = {"record_id": given["record"], "control": control, "partitions": []}
    verifier = alone_verifier.Verifier([])
    with contextlib.suppress(KeyError):  # the row is no whole one
        verifier.control(head, [line])
    wrong = {fault["detail"] for fault in verifier.faults if fault["check"] == "log"}
    return {"leaf": None if wrong else given["leaf"]}


@by_one_file
def _outcome_leaf_alone(given: dict[str, Any]) -> dict[str, Any]:
    verifier = alone_verifier.Verifier([])
    line = {name: given[name] for name in ("source", "index", "kind", "recorded_at", "facts", "leaf")}
    verifier.outcomes([line | {"root": given["leaf"]}])
    wrong = [fault for fault in verifier.faults if fault["check"] == "log"]
    return {"leaf": None if wrong else given["leaf"]}


@by_one_file
def _commitments_alone(given: dict[str, Any]) -> dict[str, Any]:
    verifier = alone_verifier.Verifier([])
    verifier._committed = {given["gate"]: {(given["salt_commitment"], given["seed_commitment"]): 1}}
    row = {"name": given["gate"], "seed": given["seed"], "audit_salt": given["salt_commitment"]}
    verifier._keep_gate(row, {"audit_salt": given["salt"]}, "")
    assert verifier._salts == {given["gate"]: bytes.fromhex(given["salt"])}
    names = ("salt_commitment", "seed_commitment")
    return {name: None if verifier.faults else given[name] for name in names}


@by_one_file
def _seals_alone(given: dict[str, Any]) -> dict[str, Any]:
    verifier = alone_verifier.Verifier([])
    content = {
        name: given[name] for name in ("salt", "content_hash", "prompt", "references", "metadata", "texts")
    }
    action = {name: given[name] for name in ("topic", "key", "headers", "value")}
    facts = {name: given[name] for name in ("content_mac", "action")}
    verifier._seal_of_batch({"content": content, "action": action}, facts, "")
    assert verifier.faults == []
    return facts | {"action_id": actions.action_id_of(values.canonical_json(given["batch"]))}


@by_one_file
def _blanks_alone(given: list[Any]) -> list[Any]:
    return [{"blank": actions.is_blank(text)} for text, _ in given]


@by_one_file
def _rules_alone(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made = []
    for one in given:
        derived = actions.derive_action(
            one["rule"],
            unit=one["unit"],
            state=one["state"],
            threshold=one.get("threshold"),
            scores=one["scores"],
            blank=one.get("blank") or [False] * len(one["scores"]),
            facts=one,
        )
        assert derived is not None
        shipped, best, cut = derived
        selected = best if best is not None and shipped[best] else None
        made.append({"shipped": shipped, "selected": selected, "cut": cut[1] if cut[0] == "cut" else cut[0]})
    return made


@by_one_file
def _segments_alone(given: list[Any]) -> list[Any]:
    return [{"segment": actions.segment_of(value)} for value, _ in given]


@by_one_file
def _transductive_alone(given: dict[str, Any]) -> dict[str, Any]:
    return {"cuts": [one | {"cut": actions.own_level(given["rule"], one["scores"])} for one in given["cuts"]]}


@by_one_file
def _deadlines_alone(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made = []
    for one in given:
        moments = (one[name] for name in ("created_at", "timestamp_ms", "decided_at"))
        late = actions.is_late(one.get("decision_deadline_seconds"), *moments)
        made.append({"late": late or actions.is_overdue(one.get("deadline_ms"), one["decided_at"])})
    return made


@by_one_file
def _desk_alone(given: dict[str, Any]) -> dict[str, Any]:
    """What became of the batch fits its decision, and any other id, seal or deadline does not."""

    def faults(**changes: Any) -> list[str]:
        verifier = alone_verifier.Verifier([])
        row = dict(zip(("gate", "batch_id", "attempt"), given["batch"], strict=True))
        row |= {"at": given["decided_at"], "reason": "person", "action": "released"}
        row |= {"response_id": "a", "claims": None, "edited": False}
        row |= {name: given[name] for name in ("id", "text_mac", "until")} | changes
        content = {"text": given["text"], "salt": given["salt"]}
        verifier._keep_desk(row, {"index": 1, "content": content}, "")
        facts = {name: given[name] for name in ("batch", "decided_at")} | {"control": [0, ""]}
        facts |= {"outcome": "escalate", "unit": "best", "mode": "enforce"}
        facts |= {"responses": [["a", 0.1, None, "escalate", False]]}
        settings = {"desk_deadline_seconds": given["desk_deadline_seconds"]}
        line = {"content": {"texts": [given["text"]]}}
        verifier._at_desk(alone_decisions.Decision(line, facts, {}, settings, ""), None)
        return [fault["detail"] for fault in verifier.faults]

    later = "2027-01-01T00:00:00.000000+00:00"
    for name, value in {"id": "1", "text_mac": "00", "until": later}.items():
        assert faults(**{name: value})
    names = ("id", "text_mac", "until")
    return {name: None if faults() else given[name] for name in names}


@by_one_file
def _judgement_alone(given: dict[str, Any]) -> dict[str, Any]:
    """The words fit this seal, and no other."""
    content = {name: given[name] for name in ("exchanges", "salt")}
    found = alone_verifier.Verifier([])
    assert not found._words({"content": content}, given["content_mac"], "", "judged")
    assert not found.faults
    found._words({"content": content}, "00" * 32, "", "judged")
    assert [fault["check"] for fault in found.faults] == ["seal"]
    return given


@by_one_file
def _severities_alone(given: dict[str, Any]) -> dict[str, Any]:
    labels = [
        runs.Label(one["kind"], one["labeller"], one["severity"], one["effective_at"], "", None, at, at, {})
        for at, one in enumerate(given["labels"], 1)
    ]
    made = []
    for one in given["read"]:
        kept = [
            label
            for label in labels
            if label.kind == one["kind"] and (one["labellers"] is None or label.labeller in one["labellers"])
        ]
        (mean,), (highest,) = run_again.severities(kept, "mean"), run_again.severities(kept, "highest")
        made.append(one | {"mean": mean, "highest": highest})
    return {"read": made}


@by_one_file
def _waits_alone(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"looser": waits.is_looser(waits.Served.of(one["before"]), waits.Served.of(one["after"]))}
        for one in given
    ]


@by_one_file
def _label_signature_alone(given: dict[str, Any]) -> dict[str, Any]:
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(given["private_key"])).public_key()
    pem = key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    ).decode()
    ((key_id, (labeller, raw)),) = signatures.read_label_keys(
        f"labeller:  {given['label']['labeller']} \n{pem}"
    ).items()
    assert labeller == given["label"]["labeller"]
    text = signatures.label_statement(given["label"], given["record"])
    good = signatures.ed25519_verify(raw, text, base64.b64decode(given["signature"]))
    return {"key_id": key_id, "statement": text.decode(), "signature": given["signature"] if good else None}


@by_one_file
def _all_signals_alone(given: dict[str, Any]) -> dict[str, Any]:
    prompts = [
        samples.Group("", [], [], [], segment=segment, signals=bytes.fromhex(signals), bad=bad)
        for signals, bad, segment in given["prompts"]
    ]
    cases = []
    for one in given["cases"]:
        fit = all_signals.fitted(prompts, one)
        pooled = one["segment_fallback"] == "pooled"
        parameters = {"segment_by": one["segment_by"], "pooled": pooled}
        parameters |= {"least_alike": 20, "fits": [fit]}
        by = all_signals.BySignals({"parameters": parameters}, [prompts])
        asked = [batch | {"budget": by.needed(batch, by.fits())} for batch in one["asked"]]
        cases.append(one | {"fit": fit, "asked": asked})
    scores = given["by_score"]
    pairs = zip(scores["scores"], scores["severities"], strict=True)
    losses = all_signals.ByScore([samples.Group("", [], [score], [severity]) for score, severity in pairs])
    plain = {"unit": "best"}, {"kind": "indicator", "parameters": {}}
    found = [[score, losses.needed({"responses": [["", score]]}, *plain)] for score, _ in scores["asked"]]
    return {"cases": cases, "by_score": scores | {"asked": found}}


BY_THE_ONE_FILE["order"] = _order


@pytest.mark.parametrize("name", BY_THE_ONE_FILE)
def test_the_one_file_computes_a_vector(name: str):
    given = GIVEN[name]
    made = BY_THE_ONE_FILE[name](given)
    pairs = zip(given, made, strict=True) if isinstance(given, list) else [(given, made)]
    for said, found in pairs:
        assert found
        if isinstance(said, list):  # a value and what it is
            assert [said[-1]] == list(found.values())
        else:
            assert {name: said[name] for name in found} == found


@pytest.mark.parametrize("seed", range(4))
def test_the_one_file_compares_thresholds_as_the_program_does(seed: int):
    """Of every two kinds of rules, with levels that are often equal."""
    rng = random.Random(seed)

    def one() -> dict[str, Any]:
        def cut() -> dict[str, Any]:
            state = rng.choice(["closed", "cut", "cut", "open"])
            return {"state": state, "lambda": rng.choice([0.2, 0.5, 0.8]) if state == "cut" else None}

        kind = rng.choice(["indicator", "quantile", "rank", "smooth", "segments", "transductive"])
        parameters: dict[str, Any] = {}
        curve = None
        if kind == "quantile":
            parameters = {"quantile": rng.choice([0.1, 0.2])}
        elif kind == "smooth":
            parameters = {"width": rng.choice([0.1, 0.2])}
        elif kind == "segments":
            own = {name: cut() for name in "abc" if rng.random() < 0.6}
            parameters = {"key": rng.choice(["k", "k", "l"]), "own": own}
        elif kind == "transductive":
            groups, floor = rng.choice([4, 5]), rng.choice([None, 0.1, 0.3])
            parameters = {"alpha": 0.3, "groups": groups, "labelled": rng.choice([1, 1, 2]), "floor": floor}
            levels = sorted(rng.sample([0.1, 0.2, 0.4, 0.6, 0.9], 3))
            totals = sorted((rng.choice([0.25, 0.5, 1.0, 1.5]) for _ in levels), reverse=True)
            curve = [list(pair) for pair in zip([None, *levels[1:]], totals, strict=True)]
        found = cut()
        rule = {"kind": kind, "parameters": parameters, "curve": curve}
        return {"state": found["state"], "threshold": found["lambda"], "rule": rule}

    pairs = [{"before": one(), "after": one()} for _ in range(1500)]
    pairs += [{"before": kept["before"], "after": kept["before"]} for kept in pairs[:50]]
    said = [made["looser"] for made in _waits(pairs)]
    assert [made["looser"] for made in _waits_alone(pairs)] == said
    assert 0.1 < sum(said) / len(said) < 0.9


@pytest.mark.parametrize("seed", range(3))
def test_the_one_file_calibrates_as_the_program_does(seed: int):
    """Every method, with ties of scores, and severities between 0 and 1."""
    rng = np.random.default_rng(seed)
    parameters = {"delta": 0.3, "draws": 20, "eta": 0.4, "rho": 0.98}
    groups = []
    for number in range(60):
        count = 1 + number % 4
        scores, severities = rng.integers(0, 40, count) / 40, rng.choice([0.0, 0.0, 0.0, 0.25, 1.0], count)
        names = tuple(f"r{i}" for i in range(count))
        groups.append((f"b{number}#1", names, scores, severities))
    sample = Sample(
        groups=tuple(LabelledGroup(*one) for one in groups),
        alpha=0.2,
        seed=seed,
        drawn=2,
        largest=4,
        history=NO_HISTORY,
    )
    lists = [samples.Group(name, items, s.tolist(), v.tolist()) for name, items, s, v in groups]
    again = samples.Sample(lists, 0.2, str(seed), parameters, drawn=2)
    names = {name: kind for name, kind in registry.every().items() if kind.diagnostic}
    assert names.keys() == calibrators.METHODS.keys()
    finite = 0
    for name, kind in names.items():
        given = {one: parameters[one] for one in kind.ranges() if one in parameters}
        said = registry.calibrator(name, given).calibrate(sample).threshold.value
        assert calibrators.calibrate(again, name)[0] == said, name
        finite += math.isfinite(said)
    assert finite >= 8


def main() -> None:
    """Write the vectors anew."""
    made = {name: VECTORS[name](given) for name, given in GIVEN.items()}
    parts = []
    for name, one in made.items():
        texts = [
            *(json.dumps(each, ensure_ascii=name == "blanks") for each in one if isinstance(one, list)),
            *(
                f"{json.dumps(key)}: {json.dumps(one[key], ensure_ascii=False)}"
                for key in one
                if isinstance(one, dict)
            ),
        ]
        begin, end = "[]" if isinstance(one, list) else "{}"
        parts.append(f"{json.dumps(name)}: {begin}" + ",\n ".join(texts) + end)
    FILE.write_text("{" + ",\n\n".join(parts) + "}\n", "utf-8")


if __name__ == "__main__":
    main()
