"""What a signature covers never changes by itself: a text from today must come out the same for ever."""

import hashlib
import json
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from streamer.audit import signing
from streamer.gates.policy import ActivePolicy, Policy
from streamer.gates.settings import FLAT_NAMES, GateSettings
from streamer.signing import policies
from streamer.signing.canonical_json import canonical_json
from streamer.signing.policies import (
    FIRST_SETTINGS,
    NUMBERS,
    YOUNGER_SETTINGS,
    PolicyKeys,
    PolicyVersion,
    statement,
)
from streamer_verify import settings
from verifiers import generate

RECORD, SALT = bytes(range(32)), b"\xff" * 32
POLICY = Policy(
    gate="support-bot",
    version=3,
    gate_revision=2,
    settings=GateSettings(
        encoder="all-MiniLM-L6-v2@53aa5117",
        alpha=0.1,
        label_floor=0.0,
        decision_deadline_seconds=5,
        audit_boost=None,  # as gates had before there was this setting
        alarm_false_every=None,  # as gates had before there was this setting
    ),
    state="cut",
    threshold=0.1 + 0.2,
    calibrated=True,
    calibration_run=7,
    seed=11,
    valid_from=datetime(2026, 11, 20, 13, 30, 0, 5, tzinfo=timezone(timedelta(hours=1))),
    guarantee="holds",
    created_by="Ána",
    reason="\u2028 why",
)


def text(policy: Policy = POLICY) -> bytes:
    return statement(policy, record_id=RECORD, audit_salt=SALT)


def _said() -> Any:
    head, _, said = text().partition(b" {")
    assert head == b"DSSEv1 39 application/vnd.streamer.policy.v1+json %d" % len(b"{" + said)
    return json.loads(b"{" + said)


def test_every_setting_is_covered_and_a_new_one_has_a_place() -> None:
    names = set(FLAT_NAMES)
    assert set(FIRST_SETTINGS) | set(YOUNGER_SETTINGS) == names, (
        "a setting was added: put it into YOUNGER_SETTINGS with the value that its migration gives to old rows"
    )
    assert not set(FIRST_SETTINGS) & set(YOUNGER_SETTINGS)
    covered = _said()
    assert set(covered["settings"]) == set(FIRST_SETTINGS), "younger ones have the value of older gates"
    accepting = replace(POLICY, settings=replace(POLICY.settings, embeddings="accept", dimension=384))
    assert b'"dimension":384,' in text(accepting)
    assert b'"embeddings":"accept",' in text(accepting)
    forgiving = replace(POLICY, settings=replace(POLICY.settings, alarm_false_every=100_000))
    assert b'"alarm_false_every":100000,' in text(forgiving)
    own = {field.name for field in fields(Policy)} - {
        "settings", "threshold", "created_by", "losses", "bursts", "closing",
    }  # fmt: skip
    assert set(covered) - {"format", "record", "settings", "lambda", "by", "audit_salt"} == own


def test_the_text_is_that_of_the_first_signatures() -> None:
    covered = _said()
    assert {name: covered[name] for name in ("lambda", "valid_from", "by", "record")} == {
        "lambda": 0.30000000000000004,
        "valid_from": "2026-11-20T12:30:00.000005+00:00",
        "by": "Ána",
        "record": RECORD.hex(),
    }
    assert b'"decision_deadline_seconds":5.0' in text()
    assert SALT.hex().encode() not in text()
    # Whoever changes this makes every signature that exists a bad one.
    found = hashlib.sha256(text()).hexdigest()
    assert found == "0aceb8d223ab4da7a478ed3b3821b438fda7d3e4c951f0794bb8f1ff87973312"


def test_a_younger_setting_is_left_out_only_while_it_says_what_old_gates_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without = _said()
    assert without["settings"].pop("drift_delta") == 0.05
    monkeypatch.setitem(policies.YOUNGER_SETTINGS, "drift_delta", 0.05)
    assert _said() == without, "as a program signed it that did not know the setting"
    other = replace(POLICY, settings=replace(POLICY.settings, drift_delta=0.06))
    assert b'"drift_delta":0.06' in text(other)


def test_only_the_right_key_for_the_right_values_is_trusted() -> None:
    ours, other = (signing.Signer(signing.generate_keys()[0]) for _ in range(2))
    keys = PolicyKeys(
        trusted=[other.public_key, ours.public_key], verify=signing.verify, key_id=signing.key_id, signer=ours
    )
    signature = keys.sign(POLICY, record_id=RECORD, audit_salt=SALT)
    good = PolicyVersion(
        gate=POLICY.gate, version=POLICY.version, active=ActivePolicy(POLICY, SALT),
        signature=signature.value, key_id=signature.key_id, record_id=RECORD,
    )  # fmt: skip
    assert keys.refusal(good) is None
    assert good.stored_signature() == signature
    for changed, why in (
        (replace(good, signature=None), "unsigned"),
        (replace(good, key_id=None), "unsigned"),
        (replace(good, key_id="0" * 64), "unknown_key"),
        (replace(good, key_id=other.key_id), "bad_signature"),
        (replace(good, signature="!"), "bad_signature"),
        (replace(good, signature="\u00e9"), "bad_signature"),
        (replace(good, signature=signature.value[4:]), "bad_signature"),
        (replace(good, signature=other.sign(text())), "bad_signature"),
        # the signature of something else that the same key signs
        (replace(good, signature=ours.sign(canonical_json(_said()))), "bad_signature"),
        (replace(good, record_id=bytes(32)), "bad_signature"),
        (replace(good, active=ActivePolicy(POLICY, bytes(32))), "bad_signature"),
        (replace(good, active=ActivePolicy(replace(POLICY, guarantee="\ud800"), SALT)), "bad_signature"),
        (replace(good, active=None), "unreadable"),
    ):
        assert keys.refusal(changed) == why
    with pytest.raises(ValueError, match="not among those that are trusted"):
        PolicyKeys(trusted=[other.public_key], verify=signing.verify, key_id=signing.key_id, signer=ours)


def test_the_same_moment_in_another_zone_is_the_same_text() -> None:
    assert text() == text(replace(POLICY, valid_from=POLICY.valid_from.astimezone(UTC)))


def test_the_verifiers_tables_are_made_of_the_declarations() -> None:
    assert generate.stale() == [], "run python -m verifiers.generate"
    assert (settings.SIGNED_SETTINGS, settings.SIGNED_IF_OTHER) == (FIRST_SETTINGS, YOUNGER_SETTINGS)
    assert settings.SIGNED_AS_FLOATS == NUMBERS
