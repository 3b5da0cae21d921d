"""The test vectors of docs/audit-format.md say what the program does.

``python -m tests.unit.test_audit_format`` writes them anew.
"""

from __future__ import annotations

import base64
import json
import math
import re
import shutil
import subprocess
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from streamer.audit.signing import Signer
from streamer.audit.standalone import verify_bundle as alone
from streamer.calibration import registry
from streamer.calibration.groups import LabelledGroup
from streamer.calibration.history import NO_HISTORY
from streamer.calibration.keyed_weights import KeyedWeights
from streamer.calibration.specification import Sample
from streamer.events.actions import action_id
from streamer.gates.batch_key import BatchKey
from streamer.gates.folds import fold_of
from streamer.gates.gate import gate_batch
from streamer.gates.keyed_hash import keyed_bits
from streamer.gates.policy import Policy
from streamer.gates.policy_gate import PolicyGate
from streamer.gates.rule import Cut, rule_from_json
from streamer.gates.settings import GateSettings
from streamer.gates.uniforms import uniforms_for
from streamer.journal import Partition
from streamer.signing.canonical_json import canonical_json
from streamer.signing.commitments import salt_commitment, seed_commitment
from streamer.signing.policies import statement
from streamer.store.audit import control
from streamer.store.log import chain
from tests.services.requirements import missing

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "audit-format.md"
BLOCK: Final = re.compile(r"<!-- vector: ([a-z-]+) -->\n```json\n(.*?)```", re.DOTALL)


def _canonical(given: dict[str, Any]) -> dict[str, Any]:
    return given | {"output": canonical_json(json.loads(given["input"])).decode()}


def _control_chain(given: dict[str, Any]) -> dict[str, Any]:
    first = control.genesis(bytes.fromhex(given["record_id"]))
    second = control.link(
        first,
        height=given["height"],
        kind=given["kind"],
        recorded_at=datetime.fromisoformat(given["recorded_at"]),
        row=given["row"],
    )
    return given | {"hash_0": first.hex(), "hash_1": second.hex()}


def _commitments(given: dict[str, Any]) -> dict[str, Any]:
    gate, salt = given["gate"], bytes.fromhex(given["salt"])
    return given | {
        "salt_commitment": salt_commitment(gate, salt),
        "seed_commitment": seed_commitment(gate, given["seed"]),
    }


def _partition_chain(given: dict[str, Any]) -> dict[str, Any]:
    log, topic, number, offset = given["source"]
    first = chain.genesis(Partition(log, topic, number))
    outcome = {
        "kind": given["kind"],
        "log_id": log,
        "topic": topic,
        "partition": number,
        "offset": offset,
        "chain_height": given["height"],
        "recorded_at": datetime.fromisoformat(given["recorded_at"]),
    }
    return given | {
        "hash_0": first.hex(),
        "hash_1": chain.link(first, outcome, given["facts"]).hex(),
    }


def _seals(given: dict[str, Any]) -> dict[str, Any]:
    batch = {name: given[name] for name in ("prompt", "references", "metadata")}
    batch |= {"content_hash": bytes.fromhex(given["content_hash"]), "salt": bytes.fromhex(given["salt"])}
    headers = tuple((name, base64.b64decode(value)) for name, value in json.loads(given["headers"]))
    key, value = base64.b64decode(given["key"]), base64.b64decode(given["value"])
    return given | {
        "content_mac": chain.batch_mac(batch, given["texts"]).hex(),
        "action": chain.message_digest(given["topic"], key, value, headers),
        "action_id": action_id(BatchKey(*given["batch"])),
    }


def _signer(private: str) -> Signer:
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(private))
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Signer(pem.decode())


def _checkpoint(given: dict[str, Any]) -> dict[str, Any]:
    signer = _signer(given["private_key"])
    signed = given["unsigned"] | {"key_id": signer.key_id}
    return given | {
        "key_id": signer.key_id,
        "signature": signer.sign(b"streamer.checkpoint.v1\x00" + canonical_json(signed)),
    }


def _decisions(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made = []
    for one in given:
        asked = {name: one[name] for name in ("unit", "state", "threshold", "blank")}
        gate = gate_batch(one["scores"], **asked)
        made.append(one | {"shipped": list(gate.shipped), "selected": gate.selected})
    return made


def _transductive(given: dict[str, Any]) -> dict[str, Any]:
    gate = PolicyGate(unit="response", cut=Cut("open", None), rule=rule_from_json(given["rule"]))
    cuts = [one | {"cut": _lambda(gate.decide(one["scores"]).cut.value)} for one in given["cuts"]]
    return given | {"cuts": cuts}


def _draws(given: dict[str, Any]) -> dict[str, Any]:
    salt, gate, batch, response = (
        bytes.fromhex(given["salt"]),
        given["gate"],
        given["batch_id"],
        given["response"],
    )
    key = BatchKey(gate, batch, given["attempt"])
    attempt = str(given["attempt"])
    (dither,) = uniforms_for(salt, key, [response], "response")
    return given | {
        "audit": keyed_bits(salt, "audit", gate, batch, attempt),
        "draw": keyed_bits(salt, "draw", gate, batch, attempt, response),
        "dither": dither,
        "fold": fold_of(salt, gate, batch),
    }


def _policy_signature(given: dict[str, Any]) -> dict[str, Any]:
    # Settings that came after the page was written have the value that leaves them out, as in rows of that time.
    flat, row = given["settings"], given["row"]
    settings = GateSettings(**flat | {"labellers": tuple(flat["labellers"])})
    policy = Policy(
        gate=row["gate"],
        version=row["version"],
        gate_revision=row["gate_revision"],
        settings=settings,
        state=row["state"],
        threshold=row["threshold"],
        calibrated=row["calibrated"],
        calibration_run=row["calibration_run"],
        seed=given["seed"],
        valid_from=datetime.fromisoformat(row["valid_from"]),
        guarantee=row["guarantee"],
        created_by=row["created_by"],
        reason=row["reason"],
    )
    text = statement(
        policy, record_id=bytes.fromhex(given["record"]), audit_salt=bytes.fromhex(given["salt"])
    )
    domain, _, said = text.partition(b"\x00")
    assert domain == b"streamer.policy.v1"
    return given | {
        "statement": said.decode(),
        "signature": _signer(given["private_key"]).sign(text),
    }


def _weights(given: dict[str, Any]) -> dict[str, Any]:
    keys, group, items = KeyedWeights(given["seed"]), given["group"], given["items"]
    return given | {
        "pick": items[keys.pick(group, items)],
        "coin": keys.coin(group),
        "order": [["a#1", "b#1", "c#1"][i] for i in keys.order(["a#1", "b#1", "c#1"])],
        "bb": keys.bb(group, items, given["draws"]).tolist(),
        "rbwa": [round(one, 12) for one in keys.rbwa(group, items, given["eta"]).tolist()],
    }


def _calibrators(given: dict[str, Any]) -> dict[str, Any]:
    groups = tuple(
        LabelledGroup(
            one["id"], tuple(one["items"]), np.array(one["scores"]), np.array(one["severities"], np.float64)
        )
        for one in given["groups"]
    )
    sample = Sample(
        groups=groups, alpha=given["alpha"], seed=given["seed"], drawn=2, largest=2, history=NO_HISTORY
    )
    thresholds = {}
    for name, kind in sorted(registry.every().items()):
        if kind.diagnostic:
            parameters = {one: given[one] for one in kind.ranges() if one in given}
            found = registry.calibrator(name, parameters).calibrate(sample).threshold
            thresholds[name] = _lambda(found.value)
    return given | {"thresholds": thresholds}


def _lambda(value: float) -> float | str:
    """Lambda as the page writes it: a number, `open` or `closed`."""
    return "closed" if value == math.inf else "open" if value == -math.inf else value


VECTORS: dict[str, Callable[[Any], Any]] = {
    "canonical": _canonical,
    "control-chain": _control_chain,
    "commitments": _commitments,
    "partition-chain": _partition_chain,
    "seals": _seals,
    "checkpoint": _checkpoint,
    "decisions": _decisions,
    "transductive": _transductive,
    "draws": _draws,
    "policy-signature": _policy_signature,
    "weights": _weights,
    "calibrators": _calibrators,
}


def test_the_page_has_all_vectors() -> None:
    assert sorted(name for name, _ in BLOCK.findall(PAGE.read_text("utf-8"))) == sorted(VECTORS)


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_is_what_the_program_computes(name: str) -> None:
    given = json.loads(dict(BLOCK.findall(PAGE.read_text("utf-8")))[name])
    assert json.dumps(VECTORS[name](given), sort_keys=True) == json.dumps(given, sort_keys=True)


@pytest.mark.node
def test_the_verifier_in_javascript_computes_every_vector() -> None:
    if shutil.which("node") is None:
        missing("no node", "install Node 20 or newer (nodejs.org, or apt-get install nodejs)")
    program = ROOT / "verifiers" / "javascript" / "vectors.mjs"
    done = subprocess.run(
        ["node", str(program), str(PAGE)], capture_output=True, text=True, check=False, encoding="utf-8"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == sorted(VECTORS)


def _canonical_alone(given: dict[str, Any]) -> dict[str, Any]:
    return {"output": alone.canonical_json(alone.strict_json(given["input"].encode())).decode()}


def _checkpoint_alone(given: dict[str, Any]) -> dict[str, Any]:
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(given["private_key"])).public_key()
    raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    signed = alone.canonical_json(given["unsigned"] | {"key_id": given["key_id"]})
    good = alone.ed25519_verify(
        raw, b"streamer.checkpoint.v1\x00" + signed, base64.b64decode(given["signature"])
    )
    return {"key_id": alone.sha256(raw), "signature": given["signature"] if good else None}


def _draws_alone(given: dict[str, Any]) -> dict[str, Any]:
    salt, attempt = bytes.fromhex(given["salt"]), str(given["attempt"])
    batch = (given["gate"], given["batch_id"], attempt)
    return {
        "audit": alone.keyed_number(salt, "audit", *batch),
        "draw": alone.keyed_number(salt, "draw", *batch, given["response"]),
        "dither": alone.uniform_of(salt, batch, given["response"]),
        "fold": "fit" if alone.fits_a_score(salt, given["gate"], given["batch_id"]) else "calibrate",
    }


def _decisions_alone(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made = []
    for one in given:
        asked = {name: one[name] for name in ("unit", "state", "threshold", "scores", "blank")}
        derived = alone.derive_action({"kind": "indicator"}, facts={}, **asked)
        assert derived is not None
        shipped, best, _ = derived
        made.append({"shipped": shipped, "selected": best if best is not None and shipped[best] else None})
    return made


def _statement_alone(given: dict[str, Any]) -> dict[str, Any]:
    gate = given["row"]["gate"]
    salt = alone.sha256(b"streamer.salt.v1\x00" + alone.canonical_json([gate, given["salt"]]))
    of_gate = {"name": gate, "seed": given["seed"], "audit_salt": salt}
    text = alone.policy_statement(given["row"], given["settings"], of_gate, given["record"])
    return {"statement": text.partition(b"\x00")[2].decode()}


def _weights_alone(given: dict[str, Any]) -> dict[str, Any]:
    nothing = [0.0] * len(given["items"])
    group = alone.Group(given["group"], given["items"], nothing, nothing)
    seed = str(given["seed"])
    sample = alone.Sample([group], 0.1, seed, {"draws": given["draws"], "eta": given["eta"]})
    named = [alone.Group(name, ["x"], [0.0], [0.0]) for name in ("a#1", "b#1", "c#1")]
    return {
        "pick": given["items"][alone.pick(seed, group)],
        "coin": alone.coin(seed, group.id),
        "order": [one.id for one in alone.reading_order(seed, named)],
        "bb": alone.WEIGHTS["bb"](sample, group),
        "rbwa": [round(one, 12) for one in alone.WEIGHTS["rbwa"](sample, group)],
    }


def _calibrators_alone(given: dict[str, Any]) -> dict[str, Any]:
    groups = [alone.Group(**one) for one in given["groups"]]
    parameters = {name: given[name] for name in ("delta", "draws", "eta", "rho")} | {"edition": 2}
    sample = alone.Sample(groups, given["alpha"], str(given["seed"]), parameters, drawn=2)
    found = {name: _lambda(alone.calibrate(sample, name)[0]) for name in sorted(alone.METHODS)}
    return {"thresholds": found}


BY_THE_ONE_FILE: dict[str, Callable[[Any], Any]] = {
    "canonical": _canonical_alone,
    "checkpoint": _checkpoint_alone,
    "decisions": _decisions_alone,
    "draws": _draws_alone,
    "policy-signature": _statement_alone,
    "weights": _weights_alone,
    "calibrators": _calibrators_alone,
}


@pytest.mark.parametrize("name", BY_THE_ONE_FILE)
def test_the_one_file_computes_a_vector(name: str) -> None:
    given = json.loads(dict(BLOCK.findall(PAGE.read_text("utf-8")))[name])
    made = BY_THE_ONE_FILE[name](given)
    pairs = zip(given, made, strict=True) if isinstance(given, list) else [(given, made)]
    for said, found in pairs:
        assert found
        assert {name: said[name] for name in found} == found


@pytest.mark.parametrize("seed", range(3))
def test_the_one_file_calibrates_as_the_program_does(seed: int) -> None:
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
    lists = [alone.Group(name, items, s.tolist(), v.tolist()) for name, items, s, v in groups]
    again = alone.Sample(lists, 0.2, str(seed), parameters | {"edition": 2}, drawn=2)
    names = {name: kind for name, kind in registry.every().items() if kind.diagnostic}
    assert names.keys() == alone.METHODS.keys()
    finite = 0
    for name, kind in names.items():
        given = {one: parameters[one] for one in kind.ranges() if one in parameters}
        said = registry.calibrator(name, given).calibrate(sample).threshold.value
        assert alone.calibrate(again, name)[0] == said, name
        finite += math.isfinite(said)
    assert finite >= 8


def main() -> None:
    """Write the vectors into the page."""

    def write(found: re.Match[str]) -> str:
        made = VECTORS[found[1]](json.loads(found[2]))
        if isinstance(made, list):
            text = "[" + ",\n ".join(json.dumps(one, ensure_ascii=False) for one in made) + "]"
        else:
            lines = (
                f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in made.items()
            )
            text = "{" + ",\n ".join(lines) + "}"
        return f"<!-- vector: {found[1]} -->\n```json\n{text}\n```"

    PAGE.write_text(BLOCK.sub(write, PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
