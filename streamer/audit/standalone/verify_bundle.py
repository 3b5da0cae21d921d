#!/usr/bin/env python3
"""Verify an audit bundle of conformal-streamer with nothing but Python's standard library (3.11 or later).

    python verify_bundle.py BUNDLE --public-key KEY.pem [--checkpoints FILE.jsonl] [--receipts FILE.jsonl]
                            [--policy-keys KEY.pem] [--label-keys KEYS.pem] [--report report.json]
                            [--embeddings FILE.jsonl]

BUNDLE is a folder or a .zip made by `streamer audit export`; its form is described in docs/audit-format.md. Everything is
recomputed: the Merkle logs, the seals of texts, the signatures of checkpoints (Ed25519, RFC 8032) and whether the
record still agrees with them, the audit draw from the revealed salt, each action from stored scores and policy, and each
calibration run from what it has read and the gate's seed. With embeddings of the answers, which no record has, also the
scores of Gram energy.

Exit status: 0 everything fits, 3 something does not (the first row that does not is named), 2 wrong usage, or a bundle
that cannot be read.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import io
import itertools
import json
import math
import re
import struct
import sys
import unicodedata
import uuid
import zipfile
from array import array
from binascii import a2b_base64
from bisect import bisect_left, bisect_right
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from operator import attrgetter, itemgetter, mul
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

ACTION_NAMESPACE = uuid.UUID("81e78adc-fc1e-4630-a18c-d59094748d62")
DESK_NAMESPACE = uuid.UUID("5b1f1f64-9d0f-4f0e-8d55-6a4f1b7d3f0c")
CONTROL = ("control", "", 0)
"""What a receipt names in place of log, topic and partition for a leaf of the control log."""
FILES = ("control.jsonl", "outcomes.jsonl", "heads.jsonl", "checkpoints.jsonl", "unchained.jsonl")
MOST_FAULTS = 100
HTTP_LOG = "http"
RECALIBRATOR, MONITOR, SIGNED_IN = "recalibrator", "monitor", "account:"
"""Who makes what the service makes by itself, an alarm's closings, and how the names of people begin who have signed in."""
DEEPEST = 200
"""How deep values may be nested in a line."""
CLOCKS_APART = timedelta(minutes=1)
SIX_MONTHS = timedelta(days=184)

_OF_SCORER = {"name": "scorer", "encoder": "encoder", "embedding_source": "embedding_source"}
"""What an action event calls what is recorded of the scorer."""

_LOG_OF = itemgetter("log_id", "topic", "partition")
"""Which log a checkpoint's head, or a gap, is of."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_10000_MS = 253_402_300_800_000

CALIBRATED_FOR = (
    "unit", "scorer", "encoder", "severity_kind", "alpha", "method", "eta", "draws", "delta", "rho",
    "shape", "width", "segment_by", "segment_fallback", "label_floor", "max_attempts", "upstream", "signals",
    "group_by",
)  # fmt: skip
MEANS_SOMETHING_UNDER = {
    "eta": ("method", ("rbwa",)),
    "draws": ("method", ("bb",)),
    "delta": ("method", ("hb", "betting", "selective", "bernstein")),
    "rho": ("method", ("age",)),
    "width": ("shape", ("smooth", "ramp")),
    "signals": ("method", ("full",)),
}

SIGNED_SETTINGS = (
    "unit", "scorer", "encoder", "severity_kind", "alpha", "method", "eta", "draws", "delta", "rho",
    "shape", "width", "segment_by", "segment_fallback", "label_floor", "hold_action", "max_attempts", "mode",
    "audit_probability", "audit_draws", "label_deadline_seconds", "decision_deadline_seconds", "keep_texts",
    "recalibrate", "recalibrate_every_seconds", "recalibrate_after_groups", "max_lambda_step", "max_ship_rate_step",
    "least_groups", "on_alarm", "monitor_delta", "alarm_delta", "alarm_tolerance", "monitor_deadline_seconds",
    "budget_period_days", "drift_delta", "judge_kind",
)  # fmt: skip
"""The settings that every signature of a policy covers."""
SIGNED_IF_OTHER: dict[str, Any] = {
    "embeddings": "refuse", "dimension": None, "labellers": None, "signed_labels": False, "parameters": None,
    "pending": "age", "window": None, "audit_boost": None, "audit_boost_most": 400, "on_selective_alarm": "report",
    "alarm_false_every": None, "two_people": False, "model": None, "desk_deadline_seconds": None,
    "upstream": None, "signals": None, "group_by": None,
}  # fmt: skip
"""Those that it covers where they have another value."""
SIGNED_AS_FLOATS = frozenset((
    "alpha", "eta", "delta", "rho", "width", "label_floor", "audit_probability", "audit_boost", "label_deadline_seconds",
    "decision_deadline_seconds", "desk_deadline_seconds", "recalibrate_every_seconds", "monitor_deadline_seconds",
    "max_lambda_step", "max_ship_rate_step", "monitor_delta", "alarm_delta", "drift_delta", "alarm_tolerance",
    "budget_period_days",
))  # fmt: skip

# -- bytes -----------------------------------------------------------------------------------------------------


def canonical_json(value: object) -> bytes:
    """Write a value as the one byte string that is hashed."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode()


def strict_json(line: bytes) -> Any:
    """Read JSON that says one thing to everybody. Raises `ValueError` for a key twice, NaN, or nesting without end."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        read = dict(pairs)
        if len(read) != len(pairs):
            raise ValueError("a key occurs twice in one object")
        return read

    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    try:
        # Decoded here: the parser would take UTF-16 and a byte order mark, too.
        value = json.loads(line.decode(), object_pairs_hook=once, parse_constant=refuse, parse_float=_finite)
        _shallow(value)
        return value
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def canonical_value(line: bytes) -> dict[str, Any]:
    """Read an object that is written as canonical JSON. Raises `ValueError`; so no key occurs twice, and no number has no value."""
    try:
        value = json.loads(line.decode())
        if canonical_json(value) != line:
            raise ValueError("it is not written as canonical JSON")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    if line.count(b"[") + line.count(b"{") > DEEPEST:
        _shallow(value)
    return value


def _shallow(value: Any, depth: int = 0) -> None:
    if depth > DEEPEST:
        raise ValueError("it is nested too deeply")
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _shallow(one, depth + 1)


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{text[:40]} is no number that a double has")
    return number


def sha256(data: bytes) -> str:
    """Return the digest in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


class Log:
    """A Merkle log (RFC 9162, section 2.1) while its leaves are read.

    `whole` is false once a leaf was missing: what its roots were is not known from there on.
    """

    __slots__ = ("edge", "size", "whole")

    def __init__(self, size: int = 0, edge: Iterable[bytes] = (), *, whole: bool = True) -> None:
        self.size, self.edge, self.whole = size, list(edge), whole

    def append(self, leaf: bytes) -> None:
        """Append a leaf by its hash."""
        for _ in range((~self.size & (self.size + 1)).bit_length() - 1 if self.whole else 0):
            leaf = hashlib.sha256(b"\x01" + self.edge.pop() + leaf).digest()
        self.edge.append(leaf)
        self.size += 1

    def root(self) -> str:
        """The root in hexadecimal; nothing where it is not known."""
        if not self.whole:
            return ""
        if not self.edge:
            return sha256(b"")
        root = self.edge[-1]
        for left in reversed(self.edge[:-1]):
            root = hashlib.sha256(b"\x01" + left + root).digest()
        return root.hex()


class _Marks:
    """What checkpoints saw of one log: each size that it had, the root then, the control log's size, and which one it was."""

    __slots__ = ("_at", "_roots", "controls", "due", "numbers", "sizes")

    def __init__(self) -> None:
        self._at, self._roots, self.due = 0, bytearray(), 0
        self.sizes, self.controls, self.numbers = array("q"), array("q"), array("q")

    def add(self, size: int, root: str, control: int, number: int) -> None:
        """Take what the next checkpoint saw. Raises `ValueError` where it saw less than the one before it."""
        raw = bytes.fromhex(root)
        if len(raw) != 32 or size < (self.sizes[-1] if self.sizes else 0):
            raise ValueError("it saw less than the checkpoint before it")
        if self.sizes and size == self.sizes[-1] and raw == self._roots[-32:]:
            return
        self.sizes.append(size)
        self.controls.append(control)
        self.numbers.append(number)
        self._roots += raw

    def reach(self, size: int) -> list[tuple[str, int]]:
        """The roots that a log of this size should have, and by which checkpoint. Sizes are asked for in their order."""
        found = []
        while self._at < len(self.sizes) and self.sizes[self._at] <= size:
            if self.sizes[self._at] == size:
                found.append((self._roots[32 * self._at : 32 * self._at + 32].hex(), self.numbers[self._at]))
            self._at += 1
        self.due = self.sizes[self._at] if self._at < len(self.sizes) else sys.maxsize
        return found


_NOTE = re.compile(
    r"(?P<text>(?P<origin>[^\x00-\x1f\x7f]+)\n(?P<size>[1-9][0-9]{0,17})\n(?P<root>[A-Za-z0-9+/]{43}=)\n(?:[^\x00-\x1f\x7f]+\n)*)\n"
    r"(?P<lines>(?:\u2014 [^\s+]+ [A-Za-z0-9+/]+={0,2}\n)+)"
)


class Note(NamedTuple):
    """A checkpoint (c2sp.org/tlog-checkpoint); `text` is what its `signatures` cover: name, hash of the key, signature."""

    origin: str
    size: int
    root: bytes
    text: bytes
    signatures: list[tuple[str, bytes, bytes]]


def read_note(note: str) -> Note:
    """Read a checkpoint; its signatures are not looked at. Raises `ValueError` where it is none."""
    found = _NOTE.fullmatch(note)
    if found is None:
        raise ValueError("this is no signed checkpoint")
    lines = [line.split(" ")[1:] for line in found["lines"].splitlines()]
    signatures = [(name, raw[:4], raw[4:]) for name, encoded in lines for raw in [base64.b64decode(encoded)]]
    root = base64.b64decode(found["root"])
    return Note(found["origin"], int(found["size"]), root, found["text"].encode(), signatures)


def key_hash(name: str, key: bytes) -> bytes:
    """The four bytes by which a signature names the key of a log (c2sp.org/signed-note)."""
    return hashlib.sha256(name.encode() + b"\n\x01" + key).digest()[:4]


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else a2b_base64(text)


def _hex(text: str | None) -> str | None:
    return None if text is None else a2b_base64(text).hex()


# -- the form of a bundle ------------------------------------------------------------------------------------------

_FORMS = """
nothing:
names = text*
batch = [text;text;count]
ends = [text;text;count;count;hash]*
given_up = [text;count]*
age cut: pending age|worst|labelled-only, seconds number, because text, draws count, waiting count,
 unused count, unused_labelled count, middle_seconds number, delays count, delay_seconds number?,
 deadline_seconds number, window count?
numbers = {number}
curve = [number?;number]*
parameters.width: width above
parameters.quantile: quantile number?
parameters.segments: key text, own {own}
own: state cut|open|closed|full, lambda cut:state
parameters.transductive: alpha inner, groups count, labelled count, floor number?
parameters.full: signals hash, ridge above, segment_by text?, pooled bool, ship_above number, least_alike count, fits
 fit*
fit: groups count, bad count, allowed count, rows hash, own {[count;count]}
rule.plain: kind indicator|rank, parameters nothing, curve null
rule.quantile: kind =quantile, parameters parameters.quantile, curve null
rule.width: kind smooth|ramp, parameters parameters.width, curve null
rule.segments: kind =segments, parameters parameters.segments, curve null
rule.transductive: kind =transductive, parameters parameters.transductive, curve curve
rule.full: kind =full, parameters parameters.full, curve null
rule = rule.plain/rule.quantile/rule.width/rule.segments/rule.transductive/rule.full
history: cuts number*, prompts count
inputs = [text;count;text;number;share?;share;count;text?;bool?;text?;bool]
candidates = [text;bool;cut|open|closed|full;number?;json:rule?;text]
input columns =
 [=batch_id;=attempt;=response_id;=score;=severity;=probability;=draws;=segment;=bad;=burst;=spare]
candidate columns = [=method;=decides;=state;=threshold;=rule;=guarantee]
input part: columns input_columns, rows count, sha256 hash
candidate part: columns candidate_columns, rows count, sha256 hash
said: exchanges any, salt hex
judgement: content? said, erased_at? time
judged: response text, judge text, judged_at time, mark number?, subscores numbers?, failure text?,
 requests count, input_tokens count, output_tokens count, cost number?, remembered bool, content_mac
 hash
headers = [text;base64?]*
texts: content_hash hash, prompt text?, references names?, metadata object?, texts text?*, salt hex
message: topic text, key base64?, value base64?, headers json:headers
refused: key base64?, value base64?, headers json:headers, detail text, salt hex
released: text text, salt hex
size: size count, root text
head: log_id text, topic text, partition count, size count, root text, next_offset count
logs: record_id hex, control size, partitions head*
file: sha256 hash, lines count
files: control.jsonl file, outcomes.jsonl file, heads.jsonl file, checkpoints.jsonl file,
 unchained.jsonl file
left out: texts bool, salts bool, other_gates_than text?
committed: gate text, salt hash, seed hash
manifest: format =streamer.bundle.v1, made_at made, head logs, left_out left_out, not_evidence
 {text}, files files
heads: record hex, index count, at time, control size, partitions head*, gates committed*
checkpoints: checkpoint text, schema? =streamer.checkpoints.v1, made_at? made
receipted = [text;text;count;count;hash;hash]
receipt = [receipted;hash?]
unchained: kind text, subject text
control.leaf: index count, kind text, recorded_at time, leaf hash, root hash
control.gates: name text, seed seed, audit_salt hash, created_at time
control.gates+: audit_salt? hex
control.gate_revisions: gate text, revision count, unit best|response|batch, scorer text, model
 text?, signals text?, encoder text, embeddings refuse|accept, dimension count?, upstream text?,
 severity_kind text, labellers json:names?, signed_labels bool, alpha inner, method text, eta above,
 draws some, delta inner, rho share, shape text, width above, parameters json:numbers?, segment_by
 text?, group_by text?, segment_fallback closed|pooled, label_floor number?, hold_action
 abstain|regenerate|escalate, desk_deadline_seconds seconds?, max_attempts count, mode
 shadow|enforce, audit_probability share, audit_draws count, audit_boost number?, audit_boost_most
 count, label_deadline_seconds seconds, pending age|worst|labelled-only, window count?,
 decision_deadline_seconds seconds?, keep_texts bool, two_people bool, recalibrate
 manual|propose|auto, recalibrate_every_seconds seconds?, recalibrate_after_groups count?,
 max_lambda_step number, max_ship_rate_step number, least_groups count, on_alarm report|close,
 on_selective_alarm report|close, monitor_delta inner, alarm_delta inner, alarm_false_every count?,
 alarm_tolerance number, monitor_deadline_seconds seconds, budget_period_days number, drift_delta
 inner, judge_kind text?, created_at time, created_by text, reason text
control.encoders: id text, revision text, weight_hash text, dimension count, first_seen_at time
control.data_gaps: log_id text, topic text, partition count, from_offset count, to_offset count,
 epoch count, recorded_at time
control.label_revisions: id count, gate text, batch_id text, attempt count, response_id text, kind
 text, labeller text, severity share, raw_severity number?, labelled_at time, received_at time,
 effective_at time, source text, remark text?
control.label_signatures: id count, label count, signature text, key_id text, received_at time,
 source text
control.calibration_runs: id count, gate text, gate_revision count, method text, alpha inner, seed
 seed, older_than time, groups count, items count, missing count, state cut|open|closed|full,
 threshold cut:state, guarantee text, requested_by text, started_at time, finished_at time,
 newer_than time?, since_version count?, severities mean|highest, outcome
  applied|proposed|unchanged, why text, labels_through count, age_cut json:age_cut, suffix
  json:object?, history json:history, heads json:ends, held_until time?, inputs input_part,
 candidates candidate_part
control.calibration_runs+: inputs inputs*, candidates candidates*
control.policies: gate text, version count, gate_revision count, state cut|open|closed|full,
 threshold cut:state, rule json:rule?, calibrated bool, calibration_run count?, guarantee text,
 valid_from time, created_by text, reason text, signature base64?, key_id text?
control.policy_events: id count, gate text, version count, event
 created|activated|superseded|closed, by text, reason text, at time
control.audit_rates: id count, gate text, boosted bool, since time, until time, evidence number,
 extra whole, reason text
control.api_keys: id text, digest hash, gates json:names?, may json:names, rate_requests count?,
 rate_seconds count?, note text, created_at time, created_by text, expires_at time?
control.api_key_revocations: id text, revoked_at time, revoked_by text, revoked_reason text
control.accounts: name text, revision count, roles json:names, password hash?, created_at time,
 created_by text, reason text
control.proposal_rejections: run count, rejected_at time, rejected_by text, reason text
control.alerts: id count, alert_id text, gate text, kind text, level page|ticket, message text,
 details object, policy_version count?, raised_at time
control.alert_acknowledgements: alert count, by text, reason text, at time, last_batch count
control.erasures: id text, at time, by text, reason text, before time, sooner bool
control.desk_outcomes: id text, gate text, batch_id text, attempt count, action released|rejected,
 reason person|deadline_passed, response_id text?, edited bool, text_mac hash?, by text?, remark
 text, until time, at time
control.desk_outcomes+: content? released, erased_at? time, missing? text
control.dead_letter_replays: id count, dead_letter count, at time, by text
control.restorations: id count, at time, by text, reason text, origin text, kept count, given_up
 json:given_up, signature base64
control.carried_scores: batch count, scorer text, response_id text, score share, of batch
control.carried_signals: list hash, batch count, signals hex, of batch
control.candidate_policies: id count, gate text, settings json:object?, state cut|open|closed|full?,
 threshold cut:state, rule json:rule?, guarantee text, by text, reason text, at time
control.judgements: id count, gate text, batch_id text, attempt count, response_id text, judge text,
 judged_at time, label count?, mark number?, subscores numbers?, failure text?, requests count,
 input_tokens count, output_tokens count, cost number?, content_mac hash, for_score bool, remembered
 bool
control.judgements+: content? said, erased_at? time
outcomes.leaf: index count, kind text, recorded_at time, leaf hash, root hash, source
 [text;text;count;count]
outcomes.decision: control [count;hash], batch batch, created_at time?, content_mac hash, policy
 count, unit best|response|batch, mode shadow|enforce, outcome
 ship|mixed|abstain|regenerate|escalate, reason text, selected text?, scorer text, encoder text,
 embedding_source encoder|event|none, sampled bool, sampling_probability share, decided_at time,
 action_id text, action hash, responses
 [text;share?;number?;ship|abstain|regenerate|escalate;bool]*, cut_state? cut|open|closed|full,
 cut_threshold? cut:cut_state, segment? text, burst? text, uniforms? share?*, not_read? cut|unread|twin?*,
 timestamp_ms? whole, deadline_ms? whole, audit_rate? count, extra_draw? bool, signals? hex, newest_seen? count, judged?
 judged*, budget? [number;count]
outcomes.decision+: content? texts, erased_at? time, action? message, judged? judgement*
outcomes.duplicate: control [count;hash], batch batch
outcomes.conflict: control [count;hash], batch batch, code text, timestamp_ms whole, content_mac
 hash
outcomes.conflict+: content? refused, erased_at? time
outcomes.dead_letter: control [count;hash], code text, timestamp_ms whole, content_mac hash
outcomes.dead_letter+: content? refused, erased_at? time
outcomes.label: control [count;hash], response [text;text;count;text], kind text, labeller text,
 severity share, raw_severity number?, labelled_at time, received_at time, signature? text, key_id?
 text
outcomes.label+: effective_at? time
"""
"""What a bundle's manifest and lines are: `name: members`, of which those with a `?` may be absent, or `name = what`.

What a member is: a basic form or a name, `?` after it also null, `*` a list of it, `{...}` an object of such by any name, `[...;...]` a list
of these, `a|b` one of some words, `=a` a word, `json:...` JSON in a text, `cut:NAME` a number beside the state `cut` of that member alone.
A name with `+` has what stands beside `row` or `facts`. docs/audit-format.schema.json is the same as JSON Schemas.
"""
_SAFE = 2**53 - 1
_TIME = r"[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]\.[0-9]{6}"
_64 = "[A-Za-z0-9+/]"
_BASIC: dict[str, dict[str, Any]] = {
    "any": {},
    "null": {"type": "null"},
    "text": {"type": "string"},
    "bool": {"type": "boolean"},
    "object": {"type": "object"},
    "whole": {"type": "integer", "minimum": -_SAFE, "maximum": _SAFE},
    "count": {"type": "integer", "minimum": 0, "maximum": _SAFE},
    "seed": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
    "number": {"type": "number", "minimum": -1e300, "maximum": 1e300},
    "share": {"type": "number", "minimum": 0, "maximum": 1},
    "seconds": {"type": "number", "minimum": 0, "maximum": 1e300},
    "above": {"type": "number", "exclusiveMinimum": 0, "maximum": 1e300},
    "inner": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "some": {"type": "integer", "minimum": 0, "maximum": 10**6},
    "hash": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    "hex": {"type": "string", "pattern": "^([0-9a-f]{2})*$"},
    "base64": {"type": "string", "pattern": f"^({_64}{{4}})*({_64}[AQgw]==|{_64}{{2}}[AEIMQUYcgkosw048]=)?$"},
    "time": {"type": "string", "format": "date-time", "pattern": f"^{_TIME}\\+00:00$"},
    "made": {"type": "string", "format": "date-time", "pattern": f"^{_TIME}Z$"},
}


def _schema_of(what: str, named: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Write what a member is as a JSON Schema."""
    if what.endswith("?"):
        schema = _schema_of(what[:-1], named)
        return (
            {"enum": [*schema["enum"], None]}
            if "enum" in schema
            else schema | {"type": [schema["type"], "null"]}
        )
    if what.endswith("*"):
        return {"type": "array", "items": _schema_of(what[:-1], named)}
    if what.startswith("json:"):
        inner = _schema_of(what[5:], named)
        return {"type": "string", "contentMediaType": "application/json", "contentSchema": inner}
    if what.startswith("{"):
        return {"type": "object", "additionalProperties": _schema_of(what[1:-1], named)}
    if what.startswith("["):
        parts = [_schema_of(one, named) for one in what[1:-1].split(";")]
        return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}
    if what.startswith("="):
        return {"const": what[1:]}
    if "|" in what:
        return {"enum": what.split("|")}
    if "/" in what:
        return {"anyOf": [named[one] for one in what.split("/")]}
    return named[what]


def _object_of(members: str, named: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    pairs = [one.split() for one in members.split(", ") if one]
    schema: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
    schema["required"] = [name for name, _ in pairs if not name.endswith("?")]
    for name, what in ((name.rstrip("?"), what) for name, what in pairs):
        if what.startswith("cut:"):
            state = what[4:]
            schema["if"] = {"properties": {state: {"const": "cut"}}, "required": [state]}
            schema["then"] = {"properties": {name: {"type": "number"}}, "required": [name]}
            schema["else"] = {"properties": {name: {"type": "null"}}}
            what = "number" if f"{name}? " in members else "number?"
        schema["properties"][name] = _schema_of(what, named)
    return schema


def _schemas() -> dict[str, dict[str, Any]]:
    named, lines = dict(_BASIC), {}
    for line in _FORMS.strip().replace("\n ", " ").split("\n"):
        name, sign, said = re.match(r"([^:=]+?)( =|:) ?(.*)", line).groups()  # type: ignore[union-attr]
        lines[name.replace(" ", "_")] = sign, said

    def made(name: str) -> dict[str, Any]:
        sign, said = lines[name]
        return _schema_of(said, named) if sign == " =" else _object_of(said, named)

    waiting = list(lines)
    while waiting:  # in the order in which they need each other
        name = waiting.pop(0)
        try:
            named[name] = made(name)
        except KeyError:
            waiting.append(name)
    parts = ("manifest", "heads", "checkpoints", "receipt", "unchained", "control.leaf", "outcomes.leaf")
    found = {name: named[name] for name in parts}
    for name in lines:
        file, _, kind = name.partition(".")
        if file not in ("control", "outcomes") or kind == "leaf" or kind.endswith("+"):
            continue
        leaf, part = named[f"{file}.leaf"], "row" if file == "control" else "facts"
        beside = (
            {"sealed": {"type": ["object", "null"]}} if file == "control" else {"missing": {"type": "string"}}
        )
        more = named.get(f"{name}+", {"properties": {}, "required": []})
        row = named[name] | {"type": ["object", "null"]}
        own = {"kind": {"const": kind}, part: row, **beside, **more["properties"]}
        needed = [*leaf["required"], part, *more["required"]]
        found[name] = leaf | {"properties": leaf["properties"] | own, "required": needed}
    return found


SCHEMAS = _schemas()
"""JSON Schemas of the manifest, checkpoints and lines, by file and `kind`."""

_SAID = {
    "string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false", "object": "an object",
    "array": "a list", "null": "null",
}  # fmt: skip
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "object": (dict,), "array": (list,),
    "null": (type(None),),
}  # fmt: skip
_Wrong = tuple[str, str] | None
"""Where in a value something is not of its form, and what; None: nothing."""


def checker(schema: dict[str, Any]) -> Callable[[Any], _Wrong]:
    """Return what compares a value with a schema, in the part of JSON Schema that `SCHEMAS` use.

    Stricter than the standard in one thing: a whole number has no point and no exponent.
    """
    tests: list[Callable[[Any], _Wrong]] = []
    if "enum" in schema or "const" in schema:
        words = schema.get("enum", [schema.get("const")])
        tests.append(
            lambda value: (
                None if value in words and type(value) in (str, type(None)) else ("", f"is none of {words}")
            )
        )
    if "type" in schema:
        names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        types, what = (
            {one for name in names for one in _TYPES[name]},
            " or ".join(_SAID[name] for name in names),
        )
        tests.append(lambda value: None if type(value) in types else ("", f"is not {what}"))
    if "minimum" in schema or "exclusiveMinimum" in schema:
        least, most = (
            schema.get(f"{one}imum", schema.get(f"exclusive{one.title()}imum")) for one in ("min", "max")
        )
        above, below = "exclusiveMinimum" in schema, "exclusiveMaximum" in schema
        tests.append(
            lambda value: (
                None
                if value is None
                or (
                    (least < value if above else least <= value)
                    and (value < most if below else value <= most)
                )
                else ("", f"is not between {least} and {most}")
            )
        )
    if "pattern" in schema:
        fits = re.compile(schema["pattern"]).fullmatch
        tests.append(lambda value: None if value is None or fits(value) else ("", "is not of its form"))
    if "format" in schema:
        tests.append(_no_moment)
    if "contentSchema" in schema:
        tests.append(_text_checker(checker(schema["contentSchema"])))
    if "prefixItems" in schema:
        tests.append(_tuple_checker([checker(one) for one in schema["prefixItems"]]))
    elif "items" in schema:
        tests.append(_list_checker(checker(schema["items"]), schema.get("minItems", 0)))
    if schema.get("properties") or "additionalProperties" in schema:
        tests.append(_object_checker(schema))
    if "if" in schema:
        holds, yes, no = (checker(schema[name]) for name in ("if", "then", "else"))
        tests.append(lambda value: None if value is None else no(value) if holds(value) else yes(value))
    if "anyOf" in schema:
        ways = [checker(one) for one in schema["anyOf"]]
        tests.append(lambda value: ("", "has none of its forms") if all(way(value) for way in ways) else None)
    if len(tests) == 1:
        return tests[0]

    def check(value: Any) -> _Wrong:
        for test in tests:
            wrong = test(value)
            if wrong is not None:
                return wrong
        return None

    return check


def _no_moment(value: str | None) -> _Wrong:
    try:
        if value is not None:
            datetime.fromisoformat(value)
    except ValueError:
        return "", "is no moment"
    return None


def _text_checker(inner: Callable[[Any], _Wrong]) -> Callable[[Any], _Wrong]:
    def check(value: str | None) -> _Wrong:
        try:
            return None if value is None else inner(strict_json(value.encode()))
        except ValueError as error:
            return "", f"is no JSON ({error})"

    return check


def _tuple_checker(parts: list[Callable[[Any], _Wrong]]) -> Callable[[Any], _Wrong]:
    size = len(parts)

    def check(value: list[Any] | None) -> _Wrong:
        if value is None:
            return None
        if len(value) != size:
            return "", f"has not {size} parts"
        for at, part in enumerate(parts):
            if wrong := part(value[at]):
                return f"[{at}]{wrong[0]}", wrong[1]
        return None

    return check


def _list_checker(each: Callable[[Any], _Wrong], least: int) -> Callable[[Any], _Wrong]:
    def check(value: list[Any] | None) -> _Wrong:
        if value is None:
            return None
        if len(value) < least:
            return "", f"has fewer than {least} parts"
        for at, one in enumerate(value):
            if wrong := each(one):
                return f"[{at}]{wrong[0]}", wrong[1]
        return None

    return check


def _object_checker(schema: dict[str, Any]) -> Callable[[Any], _Wrong]:
    known = {name: checker(one) for name, one in schema.get("properties", {}).items()}
    needed, more = schema.get("required", ()), schema.get("additionalProperties", True)
    other = checker(more) if isinstance(more, dict) else None

    def check(value: dict[str, Any] | None) -> _Wrong:
        if value is None:
            return None
        for name in needed:
            if name not in value:
                return f".{name}", "is missing"
        for name, one in value.items():
            test = known.get(name, other)
            if test is None:
                if not more:
                    return f".{name}", "is unknown"
            elif wrong := test(one):
                return f".{name}{wrong[0]}", wrong[1]
        return None

    return check


@lru_cache
def _form(name: str) -> Callable[[Any], _Wrong] | None:
    return checker(SCHEMAS[name]) if name in SCHEMAS else None


def wrong_form(name: str, value: Any) -> _Wrong:
    """Say what of a manifest (`manifest`), a checkpoint or a line of a file (`control`, `outcomes`, ...) is not of its form."""
    if name in ("control", "outcomes"):
        name = f"{name}.{value['kind']}" if isinstance(value.get("kind"), str) else ""
    form = _form(name)
    wrong = (".kind", "is unknown") if form is None else form(value)
    return _uneven(value) if wrong is None and name == "outcomes.decision" else wrong


def _uneven(line: dict[str, Any]) -> _Wrong:
    """What no schema says: lists about responses have a part for each, and either all responses have scores or none has."""
    facts = line["facts"] or {"responses": ()}
    count, judged = len(facts["responses"]), len(facts.get("judged", ()))
    for where, some, of in (
        ("facts.uniforms", facts.get("uniforms"), count),
        ("facts.not_read", facts.get("not_read"), count),
        ("content.texts", line.get("content", {}).get("texts"), count),
        ("judged", line.get("judged"), judged),
    ):
        if some is not None and len(some) != of:
            return f".{where}", f"has not {of} parts"
    if len({one[1] is None for one in facts["responses"]}) > 1:
        return ".facts.responses", "has scores of some responses alone"
    return None


def form_of(name: str, line: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """Return a line as far as it is of its form: whole, or what places its leaf, or None; and what is wrong with it."""
    wrong = wrong_form(name, line)
    if wrong is None:
        return line, ""
    placed = SCHEMAS.get(f"{name}.leaf", {"properties": ()})["properties"]
    kept = {one: line[one] for one in placed if one in line}
    beyond = wrong_form(f"{name}.leaf", kept) if placed else wrong
    if beyond is not None:
        return None, f"{beyond[0][1:]} {beyond[1]}"
    said, part = f"{wrong[0][1:]} {wrong[1]}", "row" if name == "control" else "facts"
    why = {} if part in line and line[part] is None else {"malformed": said}
    return kept | {part: None} | why, said


def formed(
    name: str, lines: Iterable[dict[str, Any]], fault: Callable[[str, str, str], None]
) -> Iterator[dict[str, Any]]:
    """Pass on the lines of a log as far as they are of their form. What cannot even be placed is a fault here."""
    for number, line in enumerate(lines, 1):
        kept, wrong = form_of(name, line)
        if kept is None:
            fault("form", f"{name}.jsonl, line {number}", wrong)
        else:
            yield kept


# -- Ed25519 (RFC 8032, section 5.1), verification alone ----------------------------------------------------------

_P = 2**255 - 19
_L = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT_OF_MINUS_ONE = pow(2, (_P - 1) // 4, _P)

_Point = tuple[int, int, int, int]


def _add(a: _Point, b: _Point) -> _Point:
    """Add two points in extended coordinates (X, Y, Z, T), x = X/Z, y = Y/Z, xy = T/Z."""
    m = (a[1] - a[0]) * (b[1] - b[0]) % _P
    n = (a[1] + a[0]) * (b[1] + b[0]) % _P
    o = 2 * a[3] * b[3] * _D % _P
    q = 2 * a[2] * b[2] % _P
    e, f, g, h = n - m, q - o, q + o, n + m
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _point(encoded: bytes) -> _Point | None:
    """Decode 32 bytes to a point; None when they are none."""
    number = int.from_bytes(encoded, "little")
    sign, y = number >> 255, number & ((1 << 255) - 1)
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT_OF_MINUS_ONE % _P
    if (x * x - square) % _P or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = _P - x
    return x, y, 1, x * y % _P


def _encoded(point: _Point) -> bytes:
    inverse = pow(point[2], -1, _P)
    x, y = point[0] * inverse % _P, point[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")


_BASE = _point(bytes.fromhex("58" + "66" * 31))


def ed25519_verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Report whether `signature` (64 bytes) by the key `public` (32 bytes) is good for `message`."""
    if len(public) != 32 or len(signature) != 64 or _BASE is None:
        return False
    key, s = _point(public), int.from_bytes(signature[32:], "little")
    if key is None or s >= _L:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % _L
    minus: _Point = (_P - key[0], key[1], 1, _P - key[3])
    both, total = _add(_BASE, minus), (0, 1, 1, 0)
    for bit in range(255, -1, -1):  # S B - k A, both products in one pass
        total = _add(total, total)
        pick = (s >> bit & 1) + 2 * (k >> bit & 1)
        if pick:
            total = _add(total, (_BASE, minus, both)[pick - 1])
    return _encoded(total) == signature[:32]


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _signed_rule(text: str | None) -> dict[str, Any]:
    """A policy's rule as its signature has it: real numbers as floats, however they were stored."""
    rule = _PLAIN if text is None else json.loads(text)
    given, curve = rule["parameters"], rule["curve"]
    parameters = dict(given)
    for name in ("width", "quantile", "alpha", "floor", "ridge", "ship_above"):
        if name in given:
            parameters[name] = _float(given[name])
    if rule["kind"] == "segments":
        parameters["own"] = {
            name: {"state": cut["state"], "lambda": _float(cut["lambda"])}
            for name, cut in given["own"].items()
        }
    if curve is not None:
        curve = [[_float(level), _float(total)] for level, total in curve]
    return {"kind": rule["kind"], "parameters": parameters, "curve": curve}


def policy_statement(
    policy: dict[str, Any], settings: dict[str, Any], gate: dict[str, Any], record_id: str
) -> bytes:
    """Write what the signature of a policy covers, from its row, its revision's, its gate's and the record's id."""
    signed = {}
    for name in (*SIGNED_SETTINGS, *SIGNED_IF_OTHER):
        value = settings.get(name)
        if name in ("labellers", "parameters") and isinstance(value, str):
            value = json.loads(value)
        if name in SIGNED_AS_FLOATS:
            value = _float(value)
        # Rows that are older than a setting do not have it, and their signatures neither.
        if name not in SIGNED_IF_OTHER or (name in settings and value != SIGNED_IF_OTHER[name]):
            signed[name] = value
    seed = sha256(b"streamer.seed.v1\x00" + canonical_json([gate["name"], gate["seed"]]))
    return b"streamer.policy.v1\x00" + canonical_json(
        {
            "format": 1,
            "record": record_id,
            "settings": signed,
            "lambda": _float(policy["threshold"]),
            "rule": _signed_rule(policy["rule"]),
            "seed": seed,
            "audit_salt": gate["audit_salt"],
            "by": policy["created_by"],
            **{
                name: policy[name]
                for name in (
                    "gate",
                    "version",
                    "gate_revision",
                    "state",
                    "calibrated",
                    "calibration_run",
                    "valid_from",
                    "guarantee",
                    "reason",
                )
            },
        }
    )


def read_public_keys(text: str) -> list[bytes]:
    """Read every Ed25519 public key (32 bytes) from PEM text. Raises `ValueError` when there is none."""
    keys = []
    for block in text.split("-----BEGIN PUBLIC KEY-----")[1:]:
        der = base64.b64decode("".join(block.partition("-----END")[0].split()))
        if len(der) != 44 or der[:12] != bytes.fromhex("302a300506032b6570032100"):
            raise ValueError("a public key is not an Ed25519 key")
        keys.append(der[12:])
    if not keys:
        raise ValueError("there is no public key in PEM form")
    return keys


def read_label_keys(text: str) -> dict[str, tuple[str, bytes]]:
    """Read whose labels which key signs, by the key's id: each block follows a line `labeller: NAME`. Raises `ValueError`."""
    found = {}
    for block in re.split(r"^labeller:", text.replace("\r\n", "\n"), flags=re.MULTILINE)[1:]:
        name, _, pem = block.partition("\n")
        for key in read_public_keys(pem):
            found[sha256(key)] = (unicodedata.normalize("NFKC", name).strip(), key)
    if not found:
        raise ValueError("there is no line `labeller: NAME` with a public key after it")
    return found


def label_statement(label: dict[str, Any], record_id: str) -> bytes:
    """Write what the signature of a label covers."""
    said = {name: label[name] for name in _OF_LABEL}
    for name in ("severity", "raw_severity"):
        said[name] = None if label.get(name) is None else float(label[name]) + 0.0
    return b"streamer.label.v1\x00" + canonical_json({"format": 1, "record": record_id, **said})


_OF_LABEL = ("gate", "batch_id", "attempt", "response_id", "kind", "labeller", "labelled_at")

# -- what follows from what ----------------------------------------------------------------------------------------


def decided_without_trust(facts: dict[str, Any]) -> bool:
    """Report whether a batch was held, unscored, because the worker trusted no policy of its gate; consumers are to obey."""
    return facts["reason"] == "no_threshold" and all(one[1] is None for one in facts["responses"])


def is_late(deadline: float | None, created_at: str | None, timestamp_ms: int, now: str) -> bool:
    """Report whether a batch was past its gate's decision deadline: by its own date, or else by its record's timestamp.

    A date further ahead than the deadline is long counts as none, and a batch without any is late.
    """
    if deadline is None:
        return False
    dates = [] if created_at is None else [datetime.fromisoformat(created_at)]
    if 0 <= timestamp_ms < _YEAR_10000_MS:
        dates.append(_EPOCH + timedelta(milliseconds=timestamp_ms))
    ages = [(datetime.fromisoformat(now) - date).total_seconds() for date in dates]
    return next((age > deadline for age in ages if age >= -deadline), True)


def is_overdue(deadline_ms: int | None, now: str) -> bool:
    """Report whether the moment had come at which a batch's sender stopped to wait."""
    return deadline_ms is not None and datetime.fromisoformat(now) >= _EPOCH + timedelta(
        milliseconds=deadline_ms
    )


def _named(name: bytes) -> str:
    """The action's id: a UUID of version 5 in its namespace, which `uuid.uuid5` takes several times as long to make."""
    text = hashlib.sha1(ACTION_NAMESPACE.bytes + name, usedforsecurity=False).hexdigest()
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{variant}{text[17:20]}-{text[20:32]}"


def keyed_number(salt: bytes, *parts: str) -> int:
    """Map names to 64 bits by HMAC-SHA256 under a gate's salt; each part is preceded by its length."""
    encoded = [part.encode() for part in parts]
    message = b"".join(len(part).to_bytes(4, "big") + part for part in encoded)
    return int.from_bytes(hmac.digest(salt, message, "sha256")[:8], "big")


def keyed_uniform(salt: bytes, *parts: str) -> float:
    """Map names to [0, 1): what the audit draw compares with its probability."""
    return keyed_number(salt, *parts) / 2.0**64


def uniform_of(salt: bytes, use: str, batch: Sequence[Any], *parts: str) -> float:
    """Draw a batch's number in (0, 1): `dither` and a response (or '') by which a gate of chance ships it, `severity` for its mark."""
    return ((keyed_number(salt, use, *map(str, batch), *parts) >> 12) + 0.5) / 2.0**52


def calibrated_for_another(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Name what a threshold for the settings `before` was calibrated for otherwise than the settings `after` ask.

    Columns that one of the rows did not have yet are passed over.
    """

    def has_meaning(name: str) -> bool:
        if name == "segment_fallback":
            return any(row.get("segment_by") is not None for row in (before, after))
        decider, values = MEANS_SOMETHING_UNDER.get(name, (None, ()))
        return decider is None or any(row.get(decider) in values for row in (before, after))

    changed = [
        name
        for name in CALIBRATED_FOR
        if name in before and name in after and before[name] != after[name] and has_meaning(name)
    ]
    # For methods that are newer than this table, the row itself says what they read.
    was, will_be = (_parsed(row.get("parameters") or {}) for row in (before, after))
    changed += sorted(
        name
        for name in was.keys() | will_be.keys()
        if name not in changed
        and has_meaning(name)
        and was.get(name, before.get(name)) != will_be.get(name, after.get(name))
    )
    named, wanted = before.get("labellers"), after.get("labellers")
    if wanted is not None and (named is None or not set(named) <= set(wanted)):
        changed.append("labellers")
    if after.get("signed_labels") and not before.get("signed_labels"):
        changed.append("signed_labels")
    return changed


_UNSEEN_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Mc", "Me", "Mn", "Zl", "Zp", "Zs"})
_UNSEEN_OTHERS = frozenset(
    map(
        chr,
        (
            0x115F, 0x1160, 0x2065, 0x2800, 0x3164, 0xFFA0, *range(0xFFF0, 0xFFF9), 0xFFFC, 0xFFFD,
            0x13441, 0x13442, 0x1D159, *range(0xE0000, 0xE1000), *range(0xFDD0, 0xFDF0),
            *range(0xFFFE, 0x110000, 0x10000), *range(0xFFFF, 0x110000, 0x10000),
        ),
    )
)  # fmt: skip


def is_blank(text: str) -> bool:
    """Report whether a text has nothing that a reader could see."""
    first = text[:1]
    if first.isascii() and first.isalnum():  # as nearly every text begins
        return False
    return not any(
        unicodedata.category(character) not in _UNSEEN_CATEGORIES and character not in _UNSEEN_OTHERS
        for character in text
    )


Derived = tuple[list[bool], int | None, tuple[str, float | None]]


def derive_action(
    rule: dict[str, Any],
    *,
    unit: str,
    state: str,
    threshold: float | None,
    scores: Sequence[float],
    blank: Sequence[bool],
    facts: dict[str, Any],
) -> Derived | None:
    """Decide one batch again.

    Returns what ships, the position of the best response (under the unit `best`), and the cut that served the batch;
    None for a rule that this file does not know.
    """
    kind, cut = rule["kind"], (state, threshold)
    if kind == "segments":
        own = rule["parameters"]["own"].get(facts.get("segment"))
        cut = cut if own is None else (own["state"], own["lambda"])
    elif kind not in ("indicator", "quantile", "rank", "smooth", "ramp", "transductive", "full"):
        return None
    count = len(scores)
    written = [i for i in range(count) if not blank[i]]
    best = max(written, key=lambda i: (scores[i], -i)) if unit == "best" and written else None
    values = list(scores)
    if unit == "batch":
        values = [round(math.fsum(scores) / count, 6)] * count
    elif kind == "rank":
        values = [sum(other < score for other in scores) / count for score in scores]
    if kind == "transductive" and state != "closed":  # a closed gate stays closed
        eligible = values[:1] if unit == "batch" else values
        if unit == "best":
            eligible = [0.0 if best is None else scores[best]]
        level = own_level(rule, eligible)
        cut = ("open", None) if level == -math.inf else ("cut", level)
    by = cut
    if kind == "full" and state == "full":
        above = rule["parameters"]["ship_above"]
        by = ("closed", None)
        if _within_budget(rule["parameters"], facts):
            by = ("cut", above) if above else ("open", None)
    elif 1 in unread(facts.get("signals")):
        by = ("closed", None)  # no threshold of scores has seen its like
    bar = math.inf if by[0] == "closed" else -math.inf if by[0] == "open" else by[1]
    if bar is None:
        raise ValueError("a cut without a threshold")
    if kind in ("smooth", "ramp"):
        width, uniforms = rule["parameters"]["width"], facts["uniforms"]
        if unit == "best" and best is not None:
            values = [values[best]] * count
        shift = [math.log(u) - math.log1p(-u) if kind == "smooth" else u for u in uniforms]
        values = [value - width * by for value, by in zip(values, shift, strict=True)]
    passes = [value > bar for value in values]
    if unit == "response":
        return [passes[i] and not blank[i] for i in range(count)], None, cut
    if unit == "batch":
        return [all(passes) and not any(blank)] * count, None, cut
    return [i == best and passes[i] for i in range(count)], best, cut


def unread(signals: str | None) -> tuple[float, ...]:
    """Return what a row says of why the encoder did not read a batch: 1 for each of its reasons."""
    return () if signals is None else _unread(_row(bytes.fromhex(signals)))


def _within_budget(rule: dict[str, Any], facts: dict[str, Any]) -> bool:
    """Report whether the count on record is one that ships; it is out of the prompts of one of the rule's fits."""
    if "budget" not in facts:
        return False
    count, groups = facts["budget"]
    limits = []
    for fit in rule["fits"]:
        own = fit["own"].get(facts.get("segment") or "")
        if rule["segment_by"] is None or (own is None and rule["pooled"]):
            own = fit["groups"], fit["allowed"]
        limits.append(own or (0, 0))
    return any(groups == of and count <= most for of, most in limits)


def segment_of(value: Any) -> str:
    """Name the segment that a value of the metadata stands for; the empty text is one like any other."""
    if isinstance(value, int) and abs(value) < 10**18:
        return json.dumps(value)
    return value if isinstance(value, str) and len(value) <= 200 else ""


def own_level(rule: dict[str, Any], scores: Sequence[float]) -> float:
    """Find the cut of one batch by a transductive rule, from the scores of what it may ship; minus infinity: all ships."""
    given = rule["parameters"]
    levels = [-math.inf if level is None else level for level, _ in rule["curve"]]
    limit = budget(given["alpha"], given["groups"]) + 1
    falling = [-total for _, total in rule["curve"]]
    ranked = sorted(scores, reverse=True)
    count = len(ranked)
    most = count if given["labelled"] is None else min(given["labelled"], count)
    found, shipped = max(ranked[0], levels[0]), 0
    while shipped < count:
        upper = ranked[shipped]
        while shipped < count and ranked[shipped] == upper:  # ties ship together
            shipped += 1
        at = bisect_left(falling, min(shipped, most) / most - limit)
        if at == len(levels):
            break
        level = max(ranked[shipped] if shipped < count else -math.inf, levels[at])
        if level >= upper:
            break
        found = level
    return max(found, -math.inf if given["floor"] is None else given["floor"])


# -- the waits of looser thresholds --------------------------------------------------------------------------------

_WAITED = re.compile(r"it has waited for one label lag since run (\d+)")
_PLAIN: dict[str, Any] = {"kind": "indicator", "parameters": {}, "curve": None}


class Served(NamedTuple):
    """What a policy or a run cuts by: lambda, plus or minus infinity where nothing or all ships, and its rule."""

    value: float
    rule: dict[str, Any]

    @classmethod
    def of(cls, row: dict[str, Any]) -> Served:
        """Read a policy's row, or that of a candidate."""
        return cls(
            _level({"state": row["state"], "lambda": row["threshold"]}), _parsed(row.get("rule")) or _PLAIN
        )

    @property
    def own(self) -> dict[str, float]:
        """The cuts of segments."""
        own = self.rule["parameters"]["own"] if self.rule["kind"] == "segments" else {}
        return {name: _level(cut) for name, cut in own.items()}

    @property
    def ships_nothing(self) -> bool:
        return self.value == math.inf and all(value == math.inf for value in self.own.values())


def _level(cut: dict[str, Any]) -> float:
    return (
        math.inf
        if cut["state"] == "closed"
        else -math.inf
        if cut["state"] == "open"
        else math.nan
        if cut["state"] == "full"
        else float(cut["lambda"])
    )


def is_looser(before: Served, after: Served) -> bool:
    """Report whether `after` may ship something that `before` holds; what cannot be compared may."""
    if before == after or after.ships_nothing:
        return False
    if before.ships_nothing:
        return True
    kinds = before.rule["kind"], after.rule["kind"]
    if "full" in kinds:
        return False  # which of two ships more is told by prompts, not by a threshold
    if kinds == ("transductive", "transductive"):
        return not _window_holds_more(before.rule, after.rule)
    if kinds == ("segments", "segments"):
        if before.rule["parameters"]["key"] != after.rule["parameters"]["key"]:
            return True
    elif kinds != ("quantile", "quantile") and before.rule != after.rule:
        return True
    names = {*before.own, *after.own}
    cuts = [(before.own.get(name, before.value), after.own.get(name, after.value)) for name in names]
    return any(new < old for old, new in [(before.value, after.value), *cuts])


def _window_holds_more(before: dict[str, Any], after: dict[str, Any]) -> bool:
    old, new = before["parameters"], after["parameters"]
    floors = [-math.inf if one["floor"] is None else one["floor"] for one in (old, new)]
    if old["labelled"] != new["labelled"] or floors[1] < floors[0]:
        return False
    levels = {-math.inf if level is None else level for rule in (before, after) for level, _ in rule["curve"]}
    return all(_room(after, level) <= _room(before, level) for level in levels)


def _room(rule: dict[str, Any], level: float) -> float:
    """What a batch may lose at a level, at most 1."""
    totals = [total for at, total in rule["curve"] if at is None or at <= level]
    given = rule["parameters"]
    return min(1.0, budget(given["alpha"], given["groups"]) + 1 - totals[-1]) if totals else -math.inf


class Waits:
    """Follows the runs and policies of all gates in their order: no looser threshold acts while it has to wait.

    How late labels were when a wait began is not among what a run keeps: that its length was right is not tested.
    """

    def __init__(self) -> None:
        self._serves: dict[str, Served] = {}
        self._since: dict[str, str] = {}
        self._held: dict[str, tuple[int, str, str]] = {}

    def policy(self, row: dict[str, Any]) -> None:
        """Take note of a policy: it ends the waits of runs that were finished before it came into force."""
        gate = row["gate"]
        self._serves[gate] = Served.of(row)
        self._since[gate] = max(row["valid_from"], self._since.get(gate, row["valid_from"]))

    def rejection(self, run: int) -> None:
        """Take note that a person rejected what a run proposed, which ends the wait too."""
        self._held = {gate: held for gate, held in self._held.items() if held[0] != run}

    def run(self, row: dict[str, Any], decided: Served | None) -> str | None:
        """Say how what became of a run contradicts the wait that ran when it began; None: it does not."""
        held = self._held.pop(row["gate"], None)
        if held is not None and held[2] < self._since.get(row["gate"], held[2]):
            held = None
        if row["requested_by"] != RECALIBRATOR:
            return None  # somebody asked for it
        until, before = row.get("held_until"), self._serves.get(row["gate"])
        if until is not None:
            self._held[row["gate"]] = (row["id"], until, row["finished_at"])
            if row["outcome"] != "proposed" or until <= row["started_at"]:
                return (
                    f"it is {row['outcome']} and waits until {until}: only a proposal waits, and until later"
                )
            return None
        if row["outcome"] != "applied" or before is None or decided is None:
            return None
        waited = _WAITED.search(row["why"])
        if waited is not None and (held is None or held[0] != int(waited[1])):
            return f"it says that its threshold has waited since run {waited[1]}, which began no wait that ran then"
        if held is not None and row["started_at"] < held[1] and is_looser(before, decided):
            return (
                f"a looser threshold came into force before {held[1]}, until when run {held[0]} has it wait"
            )
        return None


# -- the verifier ------------------------------------------------------------------------------------------------


def _of_same_revisions(wanted: dict[str, Any], served: dict[str, Any] | None) -> bool:
    """Whether a run for these settings reads what was decided under those: of the same upstream, and the same list of signals."""
    return all(
        wanted.get(name) is None or (served is not None and served.get(name) == wanted[name])
        for name in ("upstream", "signals")
    )


class _Decision(NamedTuple):
    """A decision on record, with the policy and the settings that it was made under."""

    line: dict[str, Any]
    facts: dict[str, Any]
    policy: dict[str, Any]
    settings: dict[str, Any]
    place: str

    @property
    def scored(self) -> bool:
        """Whether any of its answers has a score."""
        return any(response[1] is not None for response in self.facts["responses"])

    @property
    def kept(self) -> bool:
        """Whether its gate kept texts and metadata."""
        return self.settings.get("keep_texts") is not False

    @property
    def metadata(self) -> dict[str, Any] | None:
        """What its batch came with; None: erased, or never kept."""
        return (self.line.get("content") or {}).get("metadata") if self.kept else None

    def burst(self, key: str) -> str | None:
        """What names its burst, the empty text where it is the only one of it; None: that is erased, or was left out."""
        if self.metadata is None:
            return None
        if key == "prompt":
            return " ".join(
                unicodedata.normalize("NFKC", self.line["content"]["prompt"] or "").lower().split()
            )
        return segment_of(self.metadata.get(key))


WRITTEN_AT = {
    "accounts": "created_at", "alert_acknowledgements": "at", "api_key_revocations": "revoked_at", "api_keys": "created_at",
    "calibration_runs": "finished_at", "candidate_policies": "at", "data_gaps": "recorded_at", "dead_letter_replays": "at",
    "desk_outcomes": "at", "encoders": "first_seen_at", "erasures": "at", "gate_revisions": "created_at", "gates": "created_at",
    "judgements": "judged_at",
    "label_revisions": "received_at", "label_signatures": "received_at", "policies": "valid_from", "policy_events": "at",
    "proposal_rejections": "rejected_at", "restorations": "at",
}  # fmt: skip
"""The column of a control row that says when it was written. An alert is raised before that, and a rate may begin later."""


class Verifier:
    """Takes the parts of a bundle in turn (`checkpoints`, `control`, `outcomes`, `unchained`, `heads`) and collects
    what does not fit.

    Parameters
    ----------
    keys : public keys, 32 bytes each, that checkpoints may be signed with.
    verify_signature, derive, canonical, parse : replaceable by faster or fuller ones of the same form.

    Attributes
    ----------
    faults : dicts with `check`, `place` and `detail`, in the order in which they were found.
    notes : what could not be checked, and why.
    counts : how much was checked.
    left_out : what a bundle says that it has not, as in its manifest; None: it is no bundle.
    """

    def __init__(
        self,
        keys: Sequence[bytes],
        *,
        verify_signature: Callable[[bytes, bytes, bytes], bool] = ed25519_verify,
        derive: Callable[..., Derived | None] = derive_action,
        canonical: Callable[[object], bytes] = canonical_json,
        parse: Callable[[bytes], Any] = strict_json,
    ) -> None:
        self._keys = list(keys)
        self._verify_signature = verify_signature
        self._derive = derive
        self._canonical = canonical
        self._parse = parse
        self.faults: list[dict[str, str]] = []
        self.notes: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.left_out: dict[str, Any] | None = None
        # Of each size of the log of heads: its root, who says so, and whether that may be younger than the record.
        self._signed: dict[int, list[tuple[str, str, bool, str]]] = {}
        self._apart: list[
            tuple[str, int, str, str]
        ] = []  # what contradicts the log, and may have been given up
        self._origins: dict[str, str] = {}
        self._newest: tuple[int, str, dict[str, Any]] | None = None
        self._remembered: tuple[int, dict[str, Any] | None] = (0, None)
        self._marks: dict[tuple[Any, ...], _Marks] = {}
        self._progress: dict[tuple[Any, ...], tuple[int, int]] = {}
        self._receipts: list[tuple[tuple[Any, ...], int, tuple[str, str], str]] = []
        self._rootless: set[tuple[Any, ...]] = set()
        self._kept: dict[tuple[Any, ...], dict[int, list[tuple[tuple[str, str], str]]]] = {}
        self._edges: dict[tuple[Any, ...], tuple[int, list[bytes]]] = {}
        self._events: dict[tuple[tuple[Any, ...], int], list[tuple[str, str]]] = {}
        self._may_be_younger = False
        self._committed: dict[str, dict[tuple[str, str], int]] = {}
        self._before: dict[str, dict[tuple[Any, ...], int]] = {}
        self._early: Counter[str] = Counter()
        self._ends: dict[tuple[Any, ...], tuple[Log, int]] = {}
        self._record_id = ""
        self._rows: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
        self._salts: dict[str, bytes] = {}
        self._models: dict[str, str] = {}
        self._rules: dict[int, Any] = {}
        self._rule_of_policy: dict[tuple[str, int], Any] = {}
        self._begins: dict[tuple[Any, ...], tuple[int, list[bytes], int]] = {}
        self._control_size = 0
        self._control_roots: dict[int, str] = {}  # by size; a leaf may say any index
        self._control_leaf: dict[tuple[str, tuple[Any, ...]], int] = {}
        self._written: dict[str, list[tuple[int, int]]] = {}
        self._lost: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
        self._said: dict[tuple[Any, ...], int] = {}
        self._latest: dict[tuple[Any, ...], str] = {}
        self._back: dict[tuple[Any, ...], tuple[int, timedelta, str]] = {}
        self._holes: dict[tuple[Any, ...], tuple[int, int]] = {}
        self._read_at: dict[tuple[Any, ...], dict[int, list[tuple[str, str, str]]]] = {}
        self._bad_bursts: dict[int, set[str]] = {}
        self._bursts_read: dict[tuple[Any, ...], dict[int, tuple[str, str | None]]] = {}
        self._burst_names: dict[tuple[int, str], str] = {}
        self._erasable = ""
        self._forgotten: list[tuple[str, str]] = []  # judges' words that are erased
        self._desk: dict[tuple[Any, ...], tuple[dict[str, Any], dict[str, Any], str]] = {}
        self._waits: list[datetime] = []
        self._looser = Waits()
        self._in_force_before: set[int] = set()  # runs
        self._decided: set[bytes] = set()  # short digests of batches: a long record has many

    def fault(self, check: str, place: str, detail: str) -> None:
        """Remember that something does not fit."""
        self.counts["faults"] += 1
        if len(self.faults) < MOST_FAULTS:
            self.faults.append({"check": check, "place": place, "detail": detail})

    def _not_read(self, line: dict[str, Any], place: str, gone: str) -> None:
        """A leaf has no content, or none that is of its form."""
        malformed = line.get("malformed")
        self.fault("log" if malformed is None else "form", place, malformed or gone)

    # checkpoints

    def checkpoints(
        self, values: Iterable[bytes], *, origin: str, complete: bool = False, until: str | None = None
    ) -> None:
        """Read checkpoints from one place, as the topic has them or as signed notes; to be called before `log_of_heads`.

        `complete` says that they are of the record itself. What is verified may be older than those made after the moment
        `until`, and than those that say no moment.
        """
        there = False
        for number, value in enumerate(values, 1):
            try:
                raw = value.startswith(b"{")
                said = canonical_value(value) if raw else {"checkpoint": value.decode()}
                if (wrong := wrong_form("checkpoints", said)) is None:
                    note = read_note(said["checkpoint"])
            except ValueError as error:
                wrong = "", str(error)
            if wrong is not None:
                detail = f"this is not a checkpoint: {wrong[0][1:] or 'it'} {wrong[1]}"
                self.fault("checkpoint", f"{origin}, line {number}", detail)
                continue
            younger = until is not None and not "" < said.get("made_at", "") <= until
            place = f"checkpoint {note.size} ({origin})"
            good = [
                self._verify_signature(key, note.text, signature)
                for name, named, signature in note.signatures
                for key in self._keys
                if (name, named) == (note.origin, key_hash(note.origin, key))
            ]
            if not self._keys:
                self.notes["signatures"] = (
                    "no public key was given: signatures were not checked; give --public-key"
                )
            elif not good or not all(good):
                what = "not good for what it says" if good else "of a key that is not trusted"
                self.fault("signature", place, f"its signature is {what}")
                continue
            there = True
            self._origins.setdefault(note.origin, place)
            self._signed.setdefault(note.size, []).append((note.root.hex(), place, younger, note.origin))
        if not complete and not there:
            self.notes["outside"] = (
                f"{origin} has no checkpoint: the one beside the record was taken, and whoever can change it could"
                " have put an older one there"
            )

    def log_of_heads(
        self, lines: Iterable[bytes], record_id: str, *, seen: tuple[int, str] | None = None
    ) -> None:
        """Read the log of heads, up to the newest checkpoint that was read, and compare it with each.

        `seen` : its size and root as an earlier verification has seen it.
        """
        if seen is not None:
            place = f"checkpoint {seen[0]} (an earlier verification)"
            self._signed.setdefault(seen[0], []).append((seen[1], place, False, ""))
            self._remembered = seen[0], None
        if not self._signed:
            self.notes["checkpoints"] = (
                "there is no checkpoint: a cut-off tail or a log that was recomputed as a whole cannot be detected"
            )
            return
        log, newest = Log(), max(self._signed)
        for line in itertools.islice(lines, newest):
            log.append(hashlib.sha256(b"\x00" + line).digest())
            facts = self._head(line, log.size, record_id)
            for root, place, _, origin in self._signed.pop(log.size, ()):
                if root != log.root():
                    said = "it was made of another log of heads"
                    self._apart.append((origin, log.size, place, said))
                elif facts is not None:
                    self._newest = log.size, root, facts
                    if log.size == self._remembered[0]:
                        self._remembered = log.size, facts
        for size, where in sorted(self._signed.items()):
            for _, place, younger, origin in where:
                if younger:
                    self.notes["younger"] = (
                        f"checkpoints beyond the {log.size} heads of the record: they are younger, or the end was cut off"
                    )
                else:
                    said = f"it saw {size} heads, there are {log.size}: the newest were cut off"
                    self._apart.append((origin, size, place, said))
        self.counts["checkpoints"] += 0 if self._newest is None else self._newest[0]

    def _head(self, line: bytes, number: int, record_id: str) -> dict[str, Any] | None:
        """Keep where the logs stood by a leaf of the log of heads."""
        try:
            facts = canonical_value(line)
            if (wrong := wrong_form("heads", facts)) is not None:
                raise ValueError(f"{wrong[0][1:]} {wrong[1]}")
            if (facts["record"], facts["index"]) != (record_id, number - 1):
                raise ValueError("it is of another record, or place")
            control, sizes = facts["control"]["size"], _sizes(facts)
            places = [((), facts["control"]), *((_LOG_OF(one), one) for one in facts["partitions"])]
            for chain, head in places:
                self._marks.setdefault(chain, _Marks()).add(head["size"], head["root"], control, number)
                if chain and head["next_offset"] > self._progress.get(chain, (0, 0))[0]:
                    self._progress[chain] = head["next_offset"], number
            for gate in facts["gates"]:
                committed = self._committed.setdefault(gate["gate"], {})
                committed.setdefault((gate["salt"], gate["seed"]), number)
                self._before.setdefault(gate["gate"], sizes)
        except ValueError as error:
            self.fault("checkpoint", f"checkpoint {number}", f"its head is none of this record: {error}")
            return None
        return facts

    def _mark(self, chain: tuple[Any, ...], log: Log, place: str) -> None:
        """Compare a log with the checkpoints that were made when it was as long."""
        marks = self._marks.get(chain)
        if marks is None or log.size < marks.due:
            return
        for expected, number in marks.reach(log.size) if log.whole else ():
            if expected == log.root():
                self._edges[chain] = log.size, list(log.edge)
                continue
            self.fault(
                "checkpoint",
                place,
                f"checkpoint {number} was made of another history: one of the leaves from {self._edges.get(chain, (0,))[0]} to"
                f" {log.size - 1} was changed and the log recomputed",
            )
            marks.due = sys.maxsize  # every later one says the same
            return

    def _append(self, chain: tuple[Any, ...], log: Log, line: dict[str, Any], place: str) -> str:
        """Append a leaf, compare the root then with the stored one and both with the receipts of it, and return it."""
        log.append(bytes.fromhex(line["leaf"]))
        root = log.root()
        if log.whole and root != line["root"] and chain not in self._rootless:
            self._rootless.add(chain)  # every later one says the same
            self.fault("log", place, "its root is not that of the leaves up to it")
        for (leaf, after), witness in self._kept.get(chain, {}).pop(log.size - 1, []):
            if leaf != line["leaf"] or after != (root or after):
                what = "the log up to it" if leaf == line["leaf"] else "it"
                self.fault("receipt", place, f"{witness} was made of another history: {what} was changed")
        for said, moment, run in (
            self._read_at.get(chain, {}).pop(log.size, ()) if chain in self._read_at else ()
        ):
            self._was_read(said == root or not log.whole, line["recorded_at"], moment, run, place)
        self._mark(chain, log, place)
        return root

    def _was_read(self, same: bool, recorded_at: str, moment: str, run: str, place: str) -> None:
        """Check that a log is as a run says that it read it, at a moment."""
        if not same:
            self.fault("calibration", run, f"it has read another history than there is, up to {place}")
        elif datetime.fromisoformat(recorded_at) - datetime.fromisoformat(moment) > CLOCKS_APART:
            self.fault(
                "calibration", run, f"it says that it began before {place}, which it has read, was recorded"
            )

    def _cut_off(self, chain: tuple[Any, ...], name: str, size: int) -> None:
        marks, missing = self._marks.get(chain), {}
        if marks is not None and marks.sizes[-1] > size:
            missing = {marks.sizes[-1]: f"checkpoint {marks.numbers[-1]}"}
        missing |= {index + 1: of[0][1] for index, of in self._kept.get(chain, {}).items() if index >= size}
        if missing:
            most = max(missing)
            self.fault(
                "receipt" if missing[most].startswith("receipt") else "checkpoint",
                f"{name}, leaf {size}",
                f"{missing[most]} saw {most} leaves, there are {size}: the tail was cut off",
            )

    # receipts

    def receipts(self, lines: Iterable[bytes], *, origin: str, may_be_younger: bool = False) -> None:
        """Read receipts of decisions, which consumers have kept; to be called before `control`.

        `may_be_younger` : what is verified may have been exported before the last of them were given.

        A line is the receipt, a JSON array of log, topic, partition, index and hash of the leaf, and the root then; or an object with it as `receipt` and
        the SHA-256 of the action event that came with it as `sha256`.
        """
        for number, line in enumerate(lines, 1):
            place = f"receipt {number} ({origin})"
            said: Any = None
            digest = None
            try:
                said = strict_json(line)
                if isinstance(said, dict):
                    said, digest = said.get("receipt"), said.get("sha256")
                if isinstance(said, str):
                    said = strict_json(said.encode())
            except ValueError:
                said = None
            if wrong_form("receipt", [said, digest]):
                self.fault("receipt", f"{origin}, line {number}", "this is not a receipt")
                continue
            *chain, index, leaf, root = said
            of: tuple[Any, ...] = () if tuple(chain) == CONTROL else tuple(chain)
            self.counts["receipts"] += 1
            self._receipts.append((of, index, (leaf, root), place))
            if digest is not None and of:
                self._events.setdefault((of, index), []).append((digest, place))
        self._may_be_younger = may_be_younger
        if not self.counts["receipts"]:
            self.notes["receipts"] = f"{origin} has no receipt"

    def _link_receipts(self, head: dict[str, Any]) -> None:
        there = _sizes(head)
        skipped = younger = 0
        for chain, index, said, place in self._receipts:
            if index < self._begins.get(chain, (0,))[0]:
                skipped += 1
                continue
            if self._may_be_younger and index >= there.get(chain, 0):
                younger += 1
                continue
            self._kept.setdefault(chain, {}).setdefault(index, []).append((said, place))
        if skipped:
            self.notes["receipts before"] = (
                f"{skipped} receipts of leaves that were verified before, and are not read again"
            )
        if younger:
            self.notes["younger receipts"] = (
                f"{younger} receipts of leaves behind the end of what was exported: they are younger, or the end was cut off"
            )

    def _receipt_of(self, chain: tuple[Any, ...], index: int, line: dict[str, Any], place: str) -> None:
        """Compare the events that came with receipts of a leaf with the one on record."""
        for digest, witness in self._events.pop((chain, index), []):
            action = line.get("action")
            value = None if action is None else _decoded(action["value"])
            if value is not None and sha256(value) == digest:
                self.counts["events with a receipt"] += 1
            elif line["kind"] == "decision" and action is None:
                self.notes["events"] = "actions that came with receipts: they are not in the bundle"
            else:
                self.fault(
                    "receipt", place, f"{witness} came with another action event than the one on record"
                )

    # the control log

    def control(self, head: dict[str, Any], lines: Iterable[dict[str, Any]]) -> None:
        """Verify the control log and keep what decisions are checked against."""
        self._record_id = head["record_id"]
        self._link_receipts(head)
        log = Log()
        self._mark((), log, "control")
        self._control_roots[0] = log.root()
        for line in lines:
            row, kind = line.get("row"), line["kind"]
            if line["index"] != log.size:
                self.fault("log", f"control, leaf {log.size}", f"it is missing (the next is {line['index']})")
                log = Log(line["index"], whole=False)
            place = f"control, leaf {log.size}, {_name(kind, row)}"
            if row is None:
                self._not_read(line, place, "the row that was sealed here is gone")
            else:
                entry = {
                    "record": head["record_id"],
                    "index": log.size,
                    "kind": kind,
                    "recorded_at": line["recorded_at"],
                    "row": row,
                }
                if sha256(b"\x00" + canonical_json(entry)) != line["leaf"]:
                    self.fault("log", place, "it is not what was recorded")
                elif "sealed" in line:
                    self.fault("log", place, "the copy of it in the control log was changed")
                self._clock((), "control", line["recorded_at"], place)
                self._dated(kind, row, line["recorded_at"], place)
                self._keep(kind, row, line, place)
            self._control_roots[log.size] = self._append((), log, line, place)
            self.counts["control entries"] += 1
        self._control_size = log.size
        self._restored()
        for forgotten in self._forgotten:
            self._allowed(*forgotten)
        self._end((), "control", log, head["control"], None)

    def _restored(self) -> None:
        """Say what was given up where backups were restored; a checkpoint that contradicts the record otherwise is a fault."""
        base = f"streamer/{self._record_id}"
        known, given = {base}, []
        for (number,), row in self._rows.get("restorations", {}).items():
            leaf = self._control_leaf["restorations", (number,)]
            said = {name: value for name, value in row.items() if name != "signature"}
            signed = b"streamer.restoration.v1\x00" + canonical_json({**said, "record": self._record_id})
            signature = base64.b64decode(row["signature"])
            if self._keys and not any(self._verify_signature(key, signed, signature) for key in self._keys):
                self.fault(
                    "signature", f"control, leaf {leaf}, restorations id {number}",
                    "its signature is not good for what it says, or of a key that is not trusted",
                )  # fmt: skip
                continue
            known.add(row["origin"])
            for origin, most in json.loads(row["given_up"]):
                known.add(origin)
                given.append((origin, row["kept"], most))
                self.notes[f"restored {number} {origin}"] = (
                    f"heads {row['kept'] + 1} to {most} of {origin}: a backup was restored at {row['at']}, and {row['by']} gave them up"
                )
        for origin, place in self._origins.items():
            if origin not in known:
                self.fault("checkpoint", place, "it is of another record")
        for origin, size, place, detail in self._apart:
            if not any(origin in ("", name) and kept < size <= most for name, kept, most in given):
                self.fault("checkpoint", place, detail)

    def policy_signatures(self, keys: Sequence[bytes]) -> None:
        """Verify the signatures of policies by the public keys that may sign them; after `control`.

        What comes before a gate's first trusted policy is only counted: keys come and go.
        """
        known = {sha256(key): key for key in keys}
        trusted: set[str] = set()
        for (gate, version), row in sorted(self._rows.get("policies", {}).items()):
            place = f"control, leaf {self._control_leaf.get(('policies', (gate, version)), -1)}, policies gate {gate} version {version}"
            key = known.get(row["key_id"] or "")
            if row["signature"] is None or key is None:
                if gate in trusted:
                    what = (
                        "it is not signed"
                        if row["signature"] is None
                        else "it is signed with a key that is not trusted"
                    )
                    self.fault("policy", place, f"{what}, and a policy before it was")
                else:
                    self.counts["policies before the first that is signed with a trusted key"] += 1
                continue
            settings = self._rows.get("gate_revisions", {}).get((gate, row["gate_revision"]))
            named = self._rows.get("gates", {}).get((gate,))
            if (
                settings is not None
                and named is not None
                and self._verify_signature(
                    key,
                    policy_statement(row, settings, named, self._record_id),
                    base64.b64decode(row["signature"]),
                )
            ):
                trusted.add(gate)
                self.counts["policy signatures"] += 1
            else:
                self.fault("policy", place, "its signature is not good for what it says")

    def _keep(self, kind: str, row: dict[str, Any], line: dict[str, Any], place: str) -> None:
        key = {
            "gates": ("name",),
            "gate_revisions": ("gate", "revision"),
            "policies": ("gate", "version"),
            "calibration_runs": ("id",),
            "audit_rates": ("id",),
            "api_keys": ("id",),
            "api_key_revocations": ("id",),
            "accounts": ("name", "revision"),
            "proposal_rejections": ("run",),
            "restorations": ("id",),
        }.get(kind)
        if kind == "label_revisions":
            self._label(row, row["effective_at"], place)
        if kind == "erasures":
            self._keep_erasure(row, place)
        if kind == "desk_outcomes":
            self._keep_desk(row, line, place)
        if kind == "judgements" and self._words(line, row["content_mac"], place, row["gate"]):
            self._forgotten.append((row["judged_at"], place))
        if kind == "proposal_rejections":
            self._looser.rejection(row["run"])
        if kind == "data_gaps":
            self._lost.setdefault(_LOG_OF(row), []).append((row["from_offset"], row["to_offset"]))
        if key is None:
            return
        identity = tuple(row[name] for name in key)
        if identity in self._rows.setdefault(kind, {}):
            self.fault("log", place, "it occurs twice in the log")
        self._rows[kind][identity] = row
        self._control_leaf[kind, identity] = line["index"]
        if kind == "policies":
            written = self._written.setdefault(row["gate"], [])
            self._looser.policy(row)
            newest = written[-1][1] if written else 0
            if row["version"] != newest + 1:
                self.fault("policy", place, f"versions have no holes, and the one before it is {newest}")
            written.append((line["index"], max(row["version"], newest)))
        if kind == "gates":
            self._keep_gate(row, line, place)
        elif kind == "gate_revisions":
            self._check_model(row, place)
        elif kind == "calibration_runs":
            for part in ("inputs", "candidates"):
                digest = sha256(canonical_json(line.get(part)))
                if digest != row[part]["sha256"] or len(line[part]) != row[part]["rows"]:
                    self.fault("calibration", place, f"its {part} are not those that were recorded")
            self._keep_run(row, line, place)
        elif kind == "policies":
            run = self._rows.get("calibration_runs", {}).get((row["calibration_run"],))
            if row["calibration_run"] is None:
                if row["state"] != "closed":
                    self.fault("policy", place, "it ships, and no calibration run found it")
            elif run is None:
                self.fault("policy", place, f"there is no run {row['calibration_run']} before it")
            else:
                self._policy_of_run(row, run, place)

    def _policy_of_run(self, row: dict[str, Any], run: dict[str, Any], place: str) -> None:
        """Compare a policy with its run: what that found, and what for."""
        name = f"run {run['id']}"
        settings = self._rows.get("gate_revisions", {})
        for_now = settings.get((row["gate"], row["gate_revision"]))
        for_run = settings.get((run["gate"], run["gate_revision"]))
        if run["gate"] != row["gate"]:
            self.fault("policy", place, f"{name} is of the gate {run['gate']}")
        elif (row["state"], row["threshold"]) != (run["state"], run["threshold"]):
            self.fault("policy", place, f"it is not what {name} found")
        elif row["guarantee"] != run["guarantee"]:
            self.fault("policy", place, f"its guarantee is not that of {name}")
        elif "rule" in row and row["rule"] != self._rules.get(run["id"]):
            self.fault("policy", place, f"its rule is not the one that {name} found")
        elif for_now is None or for_run is None:
            self.fault("policy", place, f"the revision of the gate that it, or {name}, is for is in no log")
        elif changed := calibrated_for_another(for_run, for_now):
            self.fault("policy", place, f"{name} was calibrated for different settings: {', '.join(changed)}")
        elif for_now.get("two_people") and run["id"] not in self._in_force_before:
            by, asked = row["created_by"], run["requested_by"]
            another = by.startswith(SIGNED_IN) and by.removeprefix(SIGNED_IN) != asked.removeprefix(SIGNED_IN)
            if not another and not by == asked == RECALIBRATOR:
                self.fault(
                    "policy",
                    place,
                    f"its gate demands two people: {asked} asked for {name}, and {by} put it in force",
                )
        self._in_force_before.add(run["id"])

    def _keep_run(self, row: dict[str, Any], line: dict[str, Any], place: str) -> None:
        """Compare what a run says of itself with what it has read and found."""
        inputs, found = (
            [dict(zip(row[part]["columns"], one, strict=True)) for one in line[part]]
            for part in ("inputs", "candidates")
        )
        groups = {(one["batch_id"], one["attempt"]) for one in inputs}
        settings = self._rows.get("gate_revisions", {}).get((row["gate"], row["gate_revision"]))
        # what scores at or below a label floor is never asked for, and not missing
        floor = None if settings is None else settings.get("label_floor")
        missing = sum(one["severity"] is None and (floor is None or one["score"] > floor) for one in inputs)
        if (row["groups"], row["items"], row["missing"]) != (len(groups), len(inputs), missing):
            self.fault(
                "calibration",
                place,
                "it has read another number of groups, items or missing labels than it says",
            )
        deciding = next((one for one in found if one["decides"]), {})
        too_soon = self._looser.run(row, Served.of(deciding) if deciding else None)
        if too_soon is not None:
            self.fault("policy", place, too_soon)
        if (row["state"], row["threshold"]) != (deciding.get("state"), deciding.get("threshold")):
            self.fault("calibration", place, "its threshold is not that of the calibrator that decides")
        if settings is not None and settings["method"] != row["method"]:
            self.fault("calibration", place, f"its method is not that of revision {row['gate_revision']}")
        self._rules[row["id"]] = deciding.get("rule")
        if settings is not None and (key := settings.get("group_by")) is not None:
            for one in inputs:
                batch = row["gate"], one["batch_id"], one["attempt"]
                self._bursts_read.setdefault(batch, {})[row["id"]] = (key, one["burst"])
            bad = {one["burst"] for one in inputs if one["bad"] and one["severity"] is not None}
            self._bad_bursts[row["id"]] = bad - {None}
        if row["heads"] is None:
            self.fault("calibration", place, "it does not say how far the record was when it read")
        elif settings is not None:
            heads = {tuple(head[:3]): head[3:] for head in _parsed(row["heads"])}
            size, root = heads.pop(CONTROL, (0, ""))
            if not 0 < size <= line["index"] or root != (self._control_roots[size] or root):
                self.fault("calibration", place, "it has read another control log than there is")
            for chain, (size, root) in heads.items():
                if size > self._begins.get(chain, (0,))[0]:
                    said = (root, row["started_at"], place)
                    self._read_at.setdefault(chain, {}).setdefault(size, []).append(said)

    def _check_model(self, row: dict[str, Any], place: str) -> None:
        """Compare the scorer of another package with what is frozen of it, whose hash its name has."""
        scorer, model = row["scorer"], row.get("model")
        if "@" in scorer:
            if model is None or scorer != scorer.partition("@")[0] + "@" + sha256(model.encode())[:16]:
                self.fault("policy", place, f"its model is not {scorer}")
            else:
                self._models[scorer] = model
        elif model is not None:
            self.fault("policy", place, f"it has a model, and its scorer is {scorer}")

    def settings(self, gate: str, policy: int) -> dict[str, Any] | None:
        """Return the row of a policy's revision, from those that were read."""
        row = self._rows.get("policies", {}).get((gate, policy), {})
        return self._rows.get("gate_revisions", {}).get((gate, row.get("gate_revision")))

    def model(self, scorer: str) -> str | None:
        """Return what is frozen of another package's scorer as JSON, from the revisions that were read."""
        return self._models.get(scorer)

    def _keep_gate(self, row: dict[str, Any], line: dict[str, Any], place: str) -> None:
        name, salt = row["name"], line.get("audit_salt")
        seed = sha256(b"streamer.seed.v1\x00" + canonical_json([name, row["seed"]]))
        for commitment, sequence in self._committed.get(name, {}).items():
            if commitment != (row["audit_salt"], seed):
                self.fault("draw", place, f"checkpoint {sequence} is committed to another salt or seed")
                break
        if name not in self._committed:
            self.notes[f"commitment of {name}"] = f"no checkpoint is committed to the salt of {name}"
        if salt is None:
            self.notes[f"salt of {name}"] = (
                f"the salt of {name} was not revealed: its audit draw was not checked"
            )
        elif sha256(b"streamer.salt.v1\x00" + canonical_json([name, salt])) != row["audit_salt"]:
            self.fault("draw", place, "its salt is not the one that was committed to")
        else:
            self._salts[name] = bytes.fromhex(salt)

    def salt(self, gate: str) -> bytes | None:
        """Return a gate's salt; None: it was not revealed, or is not the one that was committed to."""
        return self._salts.get(gate)

    # the partitions' logs

    def begin_behind(
        self, edges: Mapping[tuple[Any, ...], tuple[int, list[bytes]]]
    ) -> dict[tuple[Any, ...], int]:
        """Take the partitions as they were at the checkpoint that `log_of_heads` got as `seen`, up to which the record was verified.

        To be called before `control`. `edges` are those that `reached` gave then. Returns the size of each log at that checkpoint,
        the control log's under `()`: leaves before it are not to be given to `outcomes`. It is empty where the log of heads has
        that checkpoint no more, or has other roots than the edges, which is a fault.
        """
        number, facts = self._remembered
        begins = {}
        for head in () if facts is None else facts["partitions"]:
            size, edge = edges.get(_LOG_OF(head), (0, []))
            if len(edge) != size.bit_count() or (size, Log(size, edge).root()) != (
                head["size"],
                head["root"],
            ):
                self.fault(
                    "checkpoint",
                    f"checkpoint {number}",
                    "it is not what an earlier verification has kept of it",
                )
                return {}
            begins[_LOG_OF(head)] = (size, edge, head["next_offset"] - 1)
            self._marks[_LOG_OF(head)].reach(size - 1)
        if facts is None:
            return {}
        self._begins = begins
        return {chain: size for chain, (size, _, _) in begins.items()} | {(): facts["control"]["size"]}

    def reached(self) -> tuple[int, str, dict[tuple[Any, ...], tuple[int, list[bytes]]]] | None:
        """Size and root of the log of heads at the newest checkpoint, and the right edges of the partitions' logs at it."""
        if self._newest is None:
            return None
        size, root, facts = self._newest
        return size, root, {
            _LOG_OF(head): self._edges.get(_LOG_OF(head), (0, [])) for head in facts["partitions"]
        }  # fmt: skip

    def _begin(self, chain: tuple[Any, ...]) -> tuple[Log, int]:
        """The log before the first leaf that is read, and the last offset."""
        size, edge, last = self._begins.get(chain, (0, [], -1))
        return Log(size, edge), last

    def outcomes(self, lines: Iterable[dict[str, Any]]) -> None:
        """Verify the logs of outcomes, which come partition by partition."""
        at: tuple[Any, ...] | None = None
        log, last = Log(), -1
        self.counts["outcomes"] += 0  # none is a finding, too
        for line in lines:
            source = tuple(line["source"][:3])
            name, offset = f"{source[1]}[{source[2]}]", line["source"][3]
            if source != at:
                if at is not None:
                    self._ends[at] = (log, last)
                if source in self._ends:
                    self.fault("log", name, "its outcomes are not in one piece")
                at, (log, last) = source, self._begin(source)
                self._lost.get(source, []).sort()
                self._mark(source, log, name)
            facts, index = line.get("facts"), line["index"]
            if index != log.size:
                self.fault("log", f"{name}, leaf {log.size}", f"it is missing (the next is {index})")
                log = Log(index + 0, whole=False)
            place = f"{name}, leaf {index}, offset {offset}"
            if offset <= last:
                self.fault("log", place, f"its offset does not come after {last}")
            self._hole(source, last + 1, offset, place)
            self._clock(source, name, line["recorded_at"], place)
            if facts is None:
                self._not_read(line, place, line.get("missing", "what it is about is missing"))
            else:
                if line["kind"] == "decision":
                    place += " ({}/{}#{})".format(*facts["batch"])
                sealed = {
                    "kind": line["kind"], "source": line["source"], "index": index,
                    "recorded_at": line["recorded_at"], "facts": facts,
                }  # fmt: skip
                if sha256(b"\x00" + self._canonical(sealed)) != line["leaf"]:
                    self.fault("log", place, f"the {line['kind']} is not what was recorded")
                self._how_far(source, index, facts["control"], place)
                self._about(line, facts, place)
            self._append(source, log, line, place)
            last = offset
            self.counts["outcomes"] += 1
            if self._events:
                self._receipt_of(source, index, line, place)
        if at is not None:
            self._ends[at] = (log, last)

    def _how_far(self, chain: tuple[Any, ...], index: int, control: list[Any], place: str) -> None:
        """Check what a leaf says of the control log as its transaction saw it: its size and its root.

        So whoever has a receipt, or a checkpoint, of the leaf holds the control log to account as well. It is read once the
        partition is locked, so that it never falls along a log; and a head has read where all logs were at one moment.
        """
        before, (size, root) = self._said.get(chain), control
        there = self._control_size
        if size <= there and root != (self._control_roots.get(size) or root):
            self.fault("order", place, f"it saw other {size} control leaves than there are")
        if before is not None and size < before:
            self.fault(
                "order", place, f"it saw {size} control leaves, and a leaf before it saw {before} already"
            )
        if size > there:
            self.fault("order", place, f"it saw {size} control leaves, and there are {there}")
        if (covering := self._marks.get(chain)) is not None:
            at = bisect_left(covering.sizes, index + 1)
            if at < len(covering.sizes) and size > covering.controls[at]:
                self.fault(
                    "order",
                    place,
                    f"checkpoint {covering.numbers[at]} covers it and saw {covering.controls[at]} control leaves, it says {size}",
                )
        self._said[chain] = max(size, before or 0)

    def _hole(self, chain: tuple[Any, ...], first: int, end: int, place: str) -> None:
        """Count the offsets from `first` to `end` - 1, which have no outcome, and are not recorded as lost either."""
        missing = end - first
        for start, stop in self._lost.get(chain, []) if missing > 0 else ():
            missing -= max(0, min(stop, end) - max(start, first))
        if missing <= 0:
            return
        if chain[0] == HTTP_LOG:
            self.fault(
                "order",
                place,
                f"{missing} requests before it have no outcome: they are numbered without holes",
            )
            return
        count, at = self._holes.get(chain, (0, first))
        self._holes[chain] = count + missing, at

    def _dated(self, kind: str, row: dict[str, Any], recorded_at: Any, place: str) -> None:
        """Compare the moment at which a row says that it was written with the one at which it was sealed: they are one value."""
        said = row.get(WRITTEN_AT.get(kind, ""))
        if said not in (None, recorded_at):
            self.fault(
                "order", place, f"it says that it was written at {said}, and was sealed at {recorded_at}"
            )

    def _clock(self, chain: tuple[Any, ...], name: str, moment: str, place: str) -> None:
        """Remember where a log's time runs backwards by more than clocks differ."""
        latest = self._latest.get(chain, "")
        if moment >= latest:
            self._latest[chain] = moment
            return
        step = datetime.fromisoformat(latest) - datetime.fromisoformat(moment)
        if step > CLOCKS_APART:
            count, longest, first = self._back.get(chain, (0, step, place))
            self._back[chain] = count + 1, max(step, longest), first

    def _about(self, line: dict[str, Any], facts: dict[str, Any], place: str) -> None:
        if line["kind"] == "decision":
            self._seal_of_batch(line, facts, place)
            self._decision(line, facts, place)
        elif line["kind"] in ("dead_letter", "conflict"):
            self._seal_of_letter(line, facts, place)
        elif line["kind"] == "label":
            self._label(facts, line.get("effective_at"), place)

    def _label(self, label: dict[str, Any], effective: Any, place: str) -> None:
        if effective != min(label["labelled_at"], label["received_at"]):
            self.fault("label", place, "it does not count from the earlier of labelled and received")

    def _seal_of_batch(self, line: dict[str, Any], facts: dict[str, Any], place: str) -> None:
        content, action = line.get("content"), line.get("action")
        if content is None:
            self.counts["texts not given or erased"] += 1
            self._erased(line, facts["decided_at"], place, facts["batch"][0])
        else:
            sealed = [content[name] for name in ("content_hash", "prompt", "references", "metadata", "texts")]
            mac = hmac.digest(bytes.fromhex(content["salt"]), self._canonical(sealed), "sha256")
            self.counts["texts"] += 1
            if mac.hex() != facts["content_mac"]:
                self.fault("seal", place, "the texts, references, metadata or content hash were changed")
        if action is not None:
            digest = self._canonical([action["topic"], _hex(action["key"]), action["headers"]])
            value = _decoded(action["value"])
            if sha256(digest + (b"" if value is None else b"\x01" + value)) != facts["action"]:
                self.fault("action", place, "the published action, its key or its headers were changed")

    def _judged(self, decision: _Decision) -> None:
        """Compare what a judge was asked and said with its seals, and its marks with the numbers that scores are made of."""
        line, facts, _, _, place = decision
        answers, judged = facts["responses"], facts.get("judged", [])
        scored = facts["scorer"] == "judge" and decision.scored
        if not judged:
            if "judged" in line:
                self.fault("seal", place, "what its judge was asked and said is in no log")
            if scored and any(answer[2] for answer in answers):
                self.fault("score", place, "what its judge was asked and said is in no log")
            return
        for one, words in zip(judged, line.get("judged", [{}] * len(judged)), strict=True):
            # Where a gate keeps no texts, a judge's words never were there.
            erased = self._words(words, one["content_mac"], place, facts["batch"][0])
            if erased and decision.kept:
                self._allowed(one["judged_at"], place)
            if one["judged_at"] != facts["decided_at"]:
                self.fault("seal", place, "its judge was asked at another moment than it was decided")
            if scored and not facts["encoder"].startswith(f"judge:{one['judge']}/"):
                self.fault("score", place, "its judge is not the one that it names")
        marks = {one["response"]: one["mark"] for one in judged}
        if len(marks) < len(judged) or not marks.keys() <= {answer[0] for answer in answers}:
            self.fault("score", place, "its judge was asked about other answers than it has")
        for name, _, made_of, *_ in answers if scored else ():
            # An answer that says nothing is put before no judge.
            if made_of != marks.get(name, 0.0 if made_of is not None else None):
                self.fault(
                    "score",
                    place,
                    f"the number that the score of response {name!r} is made of is not its judge's mark",
                )

    def _words(self, line: dict[str, Any], seal: str, place: str, gate: str) -> bool:
        """Compare a judge's words with their seal; returns whether they are erased."""
        content = line.get("content")
        if content is not None:
            self.counts["judgements"] += 1
            sealed = self._canonical(content["exchanges"])
            if hmac.digest(bytes.fromhex(content["salt"]), sealed, "sha256").hex() != seal:
                self.fault("seal", place, "what its judge was asked or said was changed")
        elif "erased_at" not in line:
            self._not_there("its judge's words", place, gate)
        erased = content is None and "erased_at" in line
        self.counts["judgements erased"] += erased
        return erased

    def _not_there(self, what: str, place: str, gate: str) -> None:
        """Name content that is not there, unless the manifest says that it is left out."""
        left = self.left_out
        if left is not None and not left.get("texts") and left.get("other_gates_than") in (None, gate):
            self.fault("seal", place, f"{what} are not there, and neither erased nor said to be left out")

    def _erased(self, line: dict[str, Any], moment: str, place: str, gate: str = "") -> None:
        """Check that what was erased was old enough for an erasure that is on record."""
        if "erased_at" not in line:
            self._not_there("its texts", place, gate)
            return
        self.counts["texts erased"] += 1
        self._allowed(moment, place)

    def _allowed(self, moment: str, place: str) -> None:
        """Check that what was erased was old enough; once the control log is read."""
        if moment >= self._erasable:
            self.fault(
                "erasure",
                place,
                f"its texts are erased, and no erasure on record allows it: it is of {moment}, and what is older than"
                f" {self._erasable or 'nothing'} was to be erased",
            )

    def _keep_erasure(self, row: dict[str, Any], place: str) -> None:
        self.counts["erasures on record"] += 1
        age = datetime.fromisoformat(row["at"]) - datetime.fromisoformat(row["before"])
        if age < timedelta(0) or (age < SIX_MONTHS and not row["sooner"]):
            self.fault(
                "erasure", place, "it permits to erase what is younger than six months, and does not say so"
            )
        self._erasable = max(self._erasable, row["before"])

    def _keep_desk(self, row: dict[str, Any], line: dict[str, Any], place: str) -> None:
        """Remember what became of a batch at the desk until its decision comes."""
        batch = (row["gate"], row["batch_id"], row["attempt"])
        self.counts["outcomes at the desk"] += 1
        if batch in self._desk:
            self.fault("desk", place, "it is the second outcome of its batch")
        if row["id"] != str(uuid.uuid5(DESK_NAMESPACE, canonical_json(list(batch)).decode())):
            self.fault("desk", place, "its id does not follow from gate, batch and attempt")
        in_time = row["at"] <= row["until"]
        if in_time != (row["reason"] == "person"):
            self.fault(
                "desk",
                place,
                "nobody was waited for until its deadline" if in_time else "its deadline had passed",
            )
        if "missing" in line:
            self.fault("seal", place, "the text that was released is gone, and was not erased")
        content = line.get("content")
        if content is not None:
            mac = hmac.digest(bytes.fromhex(content["salt"]), canonical_json([content["text"]]), "sha256")
            if mac.hex() != row["text_mac"]:
                self.fault("seal", place, "the text that was released was changed")
        self._desk[batch] = (row, line, place)

    def _at_desk(self, decision: _Decision, said: Any) -> None:
        """Compare a decision with what became of it at the desk, and until when its event says that it waits."""
        facts = decision.facts
        row, of_row, where = self._desk.pop(tuple(facts["batch"]), (None, {}, ""))
        seconds = decision.settings.get("desk_deadline_seconds")
        until = None
        if facts["outcome"] == "escalate" and facts["mode"] == "enforce" and seconds is not None:
            until = datetime.fromisoformat(facts["decided_at"]) + timedelta(seconds=seconds)
        if said is not None and (
            until is None or moment_of(said) != until.isoformat(timespec="microseconds")
        ):
            self.fault(
                "desk", decision.place, "its action says another deadline at the desk than its gate has"
            )
        if row is None:
            if until is not None and not self._begins:
                self._waits.append(until)
            return
        if until is None:
            self.fault("desk", where, "the batch never waited for a person")
            return
        if datetime.fromisoformat(row["until"]) != until:
            self.fault("desk", where, "its deadline is not that of the batch")
        seen = facts.get("control")
        if seen is not None and seen[0] > of_row["index"]:
            self.fault("order", where, "it stands in the control log before its batch was decided")
        if row["action"] == "released":
            self._released(decision, row, of_row, where)

    def _released(self, decision: _Decision, row: dict[str, Any], of_row: dict[str, Any], where: str) -> None:
        names = [response[0] for response in decision.facts["responses"]]
        if row["response_id"] not in names:
            self.fault("desk", where, f"the batch has no answer {row['response_id']}")
            return
        shown, own = of_row.get("content"), decision.line.get("content")
        if shown is None:
            if "missing" not in of_row:  # else that was said
                self._erased(of_row, decision.facts["decided_at"], where, row["gate"])
        elif own is not None:
            same = own["texts"][names.index(row["response_id"])] == shown["text"]
            if same == row["edited"]:
                self.fault(
                    "desk",
                    where,
                    "the answer is not the one it says" if not same else "it says that a person edited it",
                )

    def _end_of_desk(self) -> None:
        """Say what became of nothing that was decided, and what should have had an outcome by now."""
        for _, _, where in () if self._begins else self._desk.values():
            self.fault("desk", where, "no decision about its batch is on record")
        late = [one for one in self._waits if one.isoformat() < max(self._latest.values(), default="")]
        if late:
            self.notes["desk"] = (
                f"{len(late)} batches have no outcome though their deadline at the desk has passed, the first at"
                f" {min(late).isoformat()}: a worker or the service rejects them as soon as one runs"
            )

    def _seal_of_letter(self, line: dict[str, Any], facts: dict[str, Any], place: str) -> None:
        content = line.get("content")
        if content is None:
            self._erased(line, line["recorded_at"], place)
        else:
            sealed = [_hex(content["key"]), _hex(content["value"]), content["headers"], content["detail"]]
            mac = hmac.digest(bytes.fromhex(content["salt"]), canonical_json(sealed), "sha256")
            if mac.hex() != facts["content_mac"]:
                self.fault("seal", place, "the refused bytes, headers or detail were changed")

    def _decision(self, line: dict[str, Any], facts: dict[str, Any], place: str) -> None:
        batch = hashlib.sha256(self._canonical(facts["batch"])).digest()[:16]
        if batch in self._decided:
            self.fault("action", place, "this batch was decided before")
        self._decided.add(batch)
        gate, policy_version = facts["batch"][0], facts["policy"]
        policy = self._rows.get("policies", {}).get((gate, policy_version))
        if policy is None:
            self.fault("policy", place, f"its policy {policy_version} is in no log")
            return
        settings = self._rows.get("gate_revisions", {}).get((gate, policy["gate_revision"]))
        if settings is None:
            self.fault("policy", place, f"the gate's revision {policy['gate_revision']} is in no log")
            return
        decision = _Decision(line, facts, policy, settings, place)
        self.counts["decisions"] += 1
        self._in_force(facts, policy_version, place)
        untrusted = decided_without_trust(facts)
        self.counts["decisions without a trusted policy"] += untrusted
        # Where nothing was embedded none is named.
        nothing = {"encoder": "none"} if not decision.scored and facts["embedding_source"] == "none" else {}
        for name in ("unit", "mode", "scorer", "encoder"):
            if facts[name] not in (settings[name], nothing.get(name, settings[name])) and not (
                untrusted and (name != "mode" or facts[name] == "enforce")
            ):
                self.fault("action", place, f"its {name} is not that of policy {policy_version}")
        if facts["action_id"] != _named(self._canonical(facts["batch"])):
            self.fault("action", place, "its action_id does not follow from gate, batch and attempt")
        overdue = is_overdue(facts.get("deadline_ms"), facts["decided_at"])
        if overdue and facts["outcome"] in ("ship", "mixed"):
            self.fault("action", place, "it shipped after its sender's deadline")
        deadline, stamp = settings["decision_deadline_seconds"], facts.get("timestamp_ms", -1)
        if is_late(deadline, facts["created_at"], stamp, facts["decided_at"]):
            if facts["outcome"] in ("ship", "mixed"):
                self.fault("action", place, "it shipped after its gate's decision deadline")
        elif facts["reason"] == "deadline_passed" and not overdue:
            self.fault("action", place, "it was held for a deadline that had not passed")
        self._of_upstream(decision)
        key, metadata = settings.get("segment_by"), decision.metadata
        if (
            key is not None
            and metadata is not None
            and decision.scored
            and facts.get("segment") != segment_of(metadata.get(key))
        ):
            self.fault("action", place, "its segment is not that of its metadata")
        self._judged(decision)
        best = self._action(decision)
        if best is not False:
            self._draw(decision, best)
        waits = None if line.get("action") is None else self._event(decision, best or 0)
        if not untrusted:
            self._at_desk(decision, waits)
        else:
            self._desk.pop(tuple(facts["batch"]), None)

    def _of_upstream(self, decision: _Decision) -> None:
        """Check that a gate which is calibrated for one upstream scored its answers alone, as far as metadata are there."""
        wanted, place = decision.settings.get("upstream"), decision.place
        differs = decision.facts["reason"] == "upstream_mismatch"
        if wanted is None:
            if differs:
                self.fault("action", place, "it was held for its upstream, and its gate names none")
            return
        metadata = decision.metadata
        if metadata is None:
            return
        if decision.scored and metadata.get("upstream") != wanted:
            self.fault("action", place, "it was scored, and its answers are not of its gate's upstream")
        if differs and metadata.get("upstream") == wanted:
            self.fault("action", place, "it was held for its upstream, which is its gate's")

    def _in_force(self, facts: dict[str, Any], version: int, place: str) -> None:
        """Check that a decision was made under the newest policy there was, but for closings, which may be sealed after it.

        The fence lets no decision be written once there is a newer policy than its worker looked at, and how far the control
        log was is read before that: so this holds exactly, whatever the clocks say.
        """
        gate, size, seen = facts["batch"][0], facts["control"][0], facts.get("newest_seen", 0)
        self.counts["decisions under the newest policy"] += 1
        if seen > version:
            self.counts["decisions whose worker refused the newest policy"] += 1
            self.notes["refused"] = (
                "decisions under an older policy whose workers say that they refused the newest one: whether they had to"
            )
        if self._control_leaf.get(("policies", (gate, version)), -1) >= size:
            # A closing is in force before the log has it; it lets nothing ship.
            if _is_closing(self._rows["policies"][gate, version]):
                self.counts["decisions under a closing that was sealed after them"] += 1
            else:
                self.fault("order", place, f"its policy {version} was written after it")
        rate = facts.get("audit_rate")
        if rate is not None and self._control_leaf.get(("audit_rates", (rate,)), -1) >= size:
            self.fault("order", place, f"the audit rate {rate} that it names was written after it")
        written = self._written.get(gate, [])
        at = bisect_left(written, (size,))
        newest = written[at - 1][1] if at else 0
        if newest > max(version, seen):
            self.fault(
                "order", place, f"it was decided under policy {version}, when policy {newest} was in force"
            )

    def _made_of(self, facts: dict[str, Any], place: str) -> None:
        """Derive a judge's scores again from its marks, which the chain has beside them."""
        if facts["scorer"] != "judge" or not facts["responses"] or facts["responses"][0][1] is None:
            return
        for name, score, made_of, *_ in facts["responses"]:
            # A blank answer scores 0, whatever it brought.
            derived = 0.0 if made_of is None else round(made_of / 100, 6)
            if abs(derived - score) > 2e-6:
                self.fault(
                    "score",
                    place,
                    f"the score of response {name!r} does not follow from the number it is made of",
                )
        self.counts["batches whose scores follow from recorded numbers"] += 1

    def _action(self, decision: _Decision) -> int | bool | None:
        """Derive what ships again; returns the best response's position (None: no such), False if that is unknown."""
        line, facts, policy, settings, place = decision
        scores = [response[1] for response in facts["responses"]]
        self._made_of(facts, place)
        actions = [response[3] for response in facts["responses"]]
        held, best = settings["hold_action"], None
        shipped: list[bool] | None
        if any(score is None for score in scores) or not scores:
            shipped, reason = [False] * len(scores), ""
            if facts["reason"] in ("scored", "closed", "bad_burst"):
                self.fault("action", place, f"its reason is {facts['reason']!r}, and it has no scores")
            if facts["reason"] == "not_read" and "not_read" not in facts:
                self.fault("action", place, "it was held as not read, and names no answer")
        else:
            marks = tuple(float(one in facts.get("not_read", ())) for one in RULES)
            if marks != (unread(facts.get("signals")) or (0.0,) * 3):
                self.fault("action", place, "which answers were not read does not follow from its signals")
            content = line.get("content")
            if content is not None and None not in content["texts"]:
                blank = list(map(is_blank, content["texts"]))
            else:
                # A blank text scores 0; which of those was blank is unknown without texts.
                blank = [s == 0 and a != "ship" for s, a in zip(scores, actions, strict=True)]
            rule = self._rule_of(policy)
            try:
                derived = self._derive(
                    rule,
                    unit=facts["unit"], state=policy["state"], threshold=policy["threshold"],
                    scores=scores, blank=blank, facts=facts,
                )  # fmt: skip
            except ValueError as error:
                self.fault("action", place, f"it cannot have been decided so: {error}")
                return False
            if derived is None:
                self.notes[f"rule {rule}"] = f"actions by the rule {rule} were not derived again"
                return False
            shipped, best, cut = derived
            reason = "scored"
            bad_burst = self._of_burst(decision)
            if not policy["calibrated"]:
                reason = "no_threshold"
            elif cut[0] == "closed":
                reason = "closed"
            elif bad_burst:
                shipped, reason = [False] * len(scores), "bad_burst"
            elif 1 in unread(facts.get("signals")) and (cut[0] != "full" or _never(facts.get("budget"))):
                reason = "not_read"
            if "cut_state" in facts and cut != (facts["cut_state"], facts.get("cut_threshold")):
                self.fault("action", place, "the batch's own threshold does not follow from its policy")
        self.counts["actions derived again"] += 1
        if actions != ["ship" if ships else held for ships in shipped]:
            self.fault("action", place, "the responses' actions do not follow from scores and policy")
        chosen = best if best is not None and shipped[best] else None
        selected = None if chosen is None else facts["responses"][chosen][0]
        every = bool(shipped) and all(shipped)
        outcome = "ship" if every or selected is not None else "mixed" if any(shipped) else held
        if facts["outcome"] != outcome or facts["selected"] != selected:
            self.fault("action", place, "the batch's outcome does not follow from scores and policy")
        elif reason and facts["reason"] != reason:
            self.fault("action", place, f"its reason is {facts['reason']!r}, which should be {reason!r}")
        return best

    def _of_burst(self, decision: _Decision) -> bool:
        """Whether a prompt of a decision's burst has a bad label; bursts are compared with their names where texts are there."""
        _, facts, policy, settings, place = decision
        key, run = settings.get("group_by"), policy["calibration_run"]
        for of, (by, burst) in self._bursts_read.pop(tuple(facts["batch"]), {}).items():
            self._same_burst(decision, of, by, burst)
        if key is None or run is None or settings["method"] != "full":
            if "burst" in facts:
                self.fault("action", place, "it names a burst, and its policy knows none")
            return False
        self._same_burst(decision, run, key, facts.get("burst"))
        self.counts["decisions by burst"] += 1
        return facts.get("burst") in self._bad_bursts.get(run, ())

    def _same_burst(self, decision: _Decision, run: int, key: str, burst: str | None) -> None:
        name = decision.burst(key)
        if name is None:
            return
        alike = not name and burst is None
        if name and burst:
            named = self._burst_names.setdefault((run, "=" + name), burst)
            alike = named == burst and self._burst_names.setdefault((run, burst), name) == name
        if not alike:
            self.fault(
                "action",
                decision.place,
                f"its burst in run {run} is not that of its {'question' if key == 'prompt' else 'metadata'}",
            )

    def _rule_of(self, policy: dict[str, Any]) -> Any:
        key = (policy["gate"], policy["version"])
        if key not in self._rule_of_policy:
            self._rule_of_policy[key] = _parsed(policy.get("rule") or _PLAIN)
        return self._rule_of_policy[key]

    def _draw(self, decision: _Decision, best: Any) -> None:
        line, facts, _, settings, place = decision
        gate, batch, attempt = facts["batch"]
        ids = [response[0] for response in facts["responses"]]
        drawn = [response[0] for response in facts["responses"] if response[4]]
        scored = bool(ids) and all(response[1] is not None for response in facts["responses"])
        base = settings["audit_probability"] if scored else 0.0
        probability = base if facts.get("audit_rate") is None else self._raised(decision, scored)
        if facts["sampling_probability"] != probability:
            self.fault("draw", place, f"its logged probability should be {probability}")
        salt = self._salts.get(gate)
        self.counts["draws" if salt else "draws not verified"] += 1
        if salt is None:
            return
        self._early[gate] += line["index"] < self._before.get(gate, {}).get(tuple(line["source"][:3]), 0)
        names = (gate, batch, str(attempt))
        if "uniforms" in facts:
            drawn_by = [""] * len(ids) if facts["unit"] == "batch" else ids
            if facts["uniforms"] != [uniform_of(salt, "dither", names, one) for one in drawn_by]:
                self.fault(
                    "draw", place, "the random numbers that it was shipped by are not those of its salt"
                )
        sampled = scored and keyed_uniform(salt, "audit", *names) < probability
        if facts["sampled"] != sampled:
            self.fault(
                "draw", place, f"the audit sample {'takes' if sampled else 'does not take'} this batch"
            )
        extra = sampled and keyed_uniform(salt, "audit", *names) >= base
        if facts.get("extra_draw", False) != extra:
            self.fault(
                "draw",
                place,
                f"the gate's own probability {'does not take' if extra else 'takes'} this batch, the record says otherwise"
                if sampled
                else "it says that a raised audit rate drew it",
            )
        if sampled and facts["unit"] == "best" and best is None and line.get("content") is None:
            return  # all scores are 0, and which text was blank is unknown
        if not sampled:
            expected = []
        elif facts["unit"] == "best" and best is not None:
            expected = [ids[best]]
        else:
            order = sorted(ids, key=lambda i: (keyed_uniform(salt, "draw", *names, i), i))
            expected = order[: settings["audit_draws"]]
        if set(drawn) != set(expected):
            self.fault("draw", place, f"the audit draw takes {sorted(expected)}, not {sorted(drawn)}")

    def _raised(self, decision: _Decision, scored: bool) -> float:
        """Return the probability that a decision was drawn with that names an audit rate."""
        facts, settings = decision.facts, decision.settings
        (gate, _, attempt), number = facts["batch"], facts["audit_rate"]
        rate, boost = self._rows.get("audit_rates", {}).get((number,)), settings.get("audit_boost") or 1.0
        base: float = settings["audit_probability"]
        wrong = None
        if rate is None:
            wrong = "is in no log"
        elif rate["gate"] != gate:
            wrong = f"is one of the gate {rate['gate']}"
        elif not rate["boosted"]:
            wrong = "raises nothing"
        elif rate["until"] <= facts["decided_at"]:
            wrong = "had ended"
        elif boost == 1 or not scored or attempt != 1:
            wrong = "does not raise the probability of such a batch"
        if wrong is not None:
            self.fault("draw", decision.place, f"the audit rate {number} that it names {wrong}")
            return base if scored else 0.0
        self.counts["draws at a raised rate"] += 1
        return float(min(1.0, boost * base))

    def _event(self, decision: _Decision, best: int) -> Any:
        """Compare the published event with what was recorded of the decision, and return until when it waits at the desk."""
        line, facts, policy, settings, place = decision
        try:
            event = self._parse(_decoded(line["action"]["value"]) or b"")
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            self.fault("action", place, "the published event cannot be read")
            return None
        count, groups = facts.get("budget") or (None, 0)
        needed = {} if count is None else {"budget_needed": count / (groups + 1)}
        not_read = facts.get("not_read") or [None] * len(facts["responses"])
        # what scores at or below a label floor is drawn, and never asked for
        floor = settings.get("label_floor")
        cut = (
            facts.get("cut_state", policy["state"]),
            facts.get("cut_threshold", None if "cut_state" in facts else policy["threshold"]),
        )
        if decided_without_trust(facts):
            cut = ("closed", None)
        gate, batch_id, attempt = facts["batch"]
        recorded = {
            "schema": "streamer.actions.v1",
            "gate": gate,
            "batch_id": batch_id,
            "attempt": attempt,
            "unit": facts["unit"],
            "action": facts["outcome"],
            "action_id": facts["action_id"],
            "enforced": facts["mode"] == "enforce",
            "selected": facts["selected"],
            "reason": facts["reason"],
            "responses": [
                {"id": one[0], "score": one[1], "action": one[3]}
                | (needed if position == best else {})
                | ({} if rule is None else {"not_read": rule})
                for position, (one, rule) in enumerate(zip(facts["responses"], not_read, strict=True))
            ],
            "policy": {
                "version": policy["version"], "state": cut[0], "lambda": cut[1], "alpha": settings["alpha"],
                "method": settings["method"], "segment": facts.get("segment"),
            },
            "scorer": {name: facts[of] for name, of in _OF_SCORER.items()},
            "audit": {
                "sampled": facts["sampled"],
                "probability": facts["sampling_probability"],
                "label": [
                    one[0]
                    for one in facts["responses"]
                    if one[4] and (floor is None or one[1] is None or one[1] > floor)
                ],
            },
            "source": dict(zip(("topic", "partition", "offset"), line["source"][1:], strict=True)),
        }  # fmt: skip
        for name, value in recorded.items():
            if not _alike(event.get(name), value):
                self.fault("action", place, f"the published event says another {name}")
        if moment_of(event.get("decided_at")) != facts["decided_at"]:
            self.fault("action", place, "the published event says another moment of decision")
        return event.get("desk_until")

    # the ends

    def unchained(self, rows: Iterable[dict[str, Any]]) -> None:
        """Rows, or columns of rows, that are in the tables and in no log, or say otherwise than it."""
        for row in rows:
            place = f"{row['kind']} {row['subject']}"
            if row["kind"].endswith(".erased_at"):
                self.fault("erasure", place, "it is said to be erased, and its content is there")
            elif row["kind"] == "desk_items":
                self.fault(
                    "desk",
                    place,
                    "it does not wait for a person as its decision says: nobody will reject it in time",
                )
            else:
                self.fault("log", place, "this row, or what it says of itself, belongs to no log")

    def heads(self, head: dict[str, Any]) -> None:
        """Compare where the logs end with where the record, and the checkpoints, say that they end."""
        known = {_LOG_OF(one): one for one in head["partitions"]}
        for chain in sorted({*known, *self._ends, *(one for one in (*self._marks, *self._kept) if one)}):
            name = f"{chain[1]}[{chain[2]}]"
            log, last = self._ends.get(chain) or self._begin(chain)
            if chain not in self._ends:
                self._mark(chain, log, name)
            self._end(chain, name, log, known.get(chain), last)
            if chain in known:
                self._next_offset(chain, name, known[chain]["next_offset"])
                self._hole(chain, last + 1, known[chain]["next_offset"], name)
        for gate, count in sorted(self._early.items()):
            if count:
                self.notes[f"early {gate}"] = (
                    f"{count} batches of {gate} were decided before a checkpoint was committed to its salt"
                )
        for chain, reads in self._read_at.items():
            for size, runs in reads.items():
                for _, _, place in runs:
                    self.fault(
                        "calibration",
                        place,
                        f"it has read {size} leaves of {chain[1]}[{chain[2]}], and there are fewer",
                    )
        for chain, (count, first) in sorted(self._holes.items()):
            self.notes[f"holes {chain}"] = (
                f"{count} offsets of {chain[1]}[{chain[2]}] have no outcome, the first is {first}: the marks of a publisher's"
                " transactions have none either; --log tells them apart while the topic has them"
            )
        for chain, (count, longest, at) in sorted(self._back.items()):
            self.notes[f"clock {chain}"] = (
                f"the time at which {f'{chain[1]}[{chain[2]}]' if chain else 'the control log'} was recorded steps back"
                f" {count} times, by up to {longest.total_seconds():.0f} s, first at {at}: a clock was wrong, or somebody"
                " wrote it"
            )
        self._end_of_desk()
        self._uncovered(head)

    def _end(
        self,
        chain: tuple[Any, ...],
        name: str,
        log: Log,
        head: dict[str, Any] | None,
        last: int | None,
    ) -> None:
        if head is None:
            self.fault("log", name, "the record does not know this partition")
        elif head["size"] != log.size:
            self.fault("log", name, f"its log has {log.size} leaves, and should have {head['size']}")
        elif log.whole and head["root"] != log.root():
            self.fault("log", name, "its log has another root than its leaves give")
        elif last is not None and last >= head["next_offset"]:
            self.fault(
                "log",
                f"{name}, leaf {log.size - 1}",
                f"progress stands at {head['next_offset']}, before it",
            )
        self._cut_off(chain, name, log.size)

    def _next_offset(self, chain: tuple[Any, ...], name: str, present: int) -> None:
        most, number = self._progress.get(chain, (0, 0))
        if most > present:
            self.fault(
                "checkpoint", name, f"checkpoint {number} saw progress at {most}, now it stands at {present}"
            )

    def _uncovered(self, head: dict[str, Any]) -> None:
        if self._newest is None:
            return
        covered = sum(_sizes(self._newest[2]).values())
        present = sum(_sizes(head).values())
        if present > covered:
            self.notes["after the last checkpoint"] = (
                f"{present - covered} leaves are younger than the last checkpoint: those behind every receipt"
                " that is kept could still be rewritten unseen"
            )


def _sizes(head: dict[str, Any]) -> dict[tuple[Any, ...], int]:
    """How many leaves the logs have by a manifest or a head, the control log under `()`."""
    return {(): head["control"]["size"]} | {_LOG_OF(one): one["size"] for one in head["partitions"]}


def _is_closing(policy: dict[str, Any]) -> bool:
    """Whether somebody closed the gate by it: no calibration found it, and nothing ships by it."""
    return policy["state"] == "closed" and policy["calibration_run"] is None and policy.get("rule") is None


def _name(kind: str, row: dict[str, Any] | None) -> str:
    """Name a row for people."""
    keys = (
        "name",
        "gate",
        "revision",
        "version",
        "event",
        "id",
        "batch_id",
        "response_id",
        "topic",
        "partition",
    )
    return " ".join(
        [kind, *(f"{key} {row[key]}" for key in keys if row is not None and row.get(key) is not None)]
    )


# -- calibrators: thresholds from labelled groups ------------------------------------------------------------------
#
# A threshold is a number, infinity where nothing ships, and minus infinity where everything does.

_SLACK = 1e-12
"""Of what rounding does to a sum of losses."""
_WINDOW_LEVELS = 2048
_MOST_SEGMENTS = 500
_TENTHS = range(3, 11)


class Group(NamedTuple):
    """The drawn responses of one batch: their scores and severities in [0, 1]; a missing severity is 1.

    `signals` is the row that is recorded of the batch, and `bad` what it counts as, by the method `full`.
    """

    id: str
    items: Sequence[str]
    scores: Sequence[float]
    severities: Sequence[float]
    draws: int = 1
    segment: str = ""
    signals: bytes | None = None
    bad: bool = False


class Sample(NamedTuple):
    """What a calibrator reads.

    Attributes
    ----------
    groups : in the order of their decisions.
    alpha : the budget of one attempt.
    seed : of the gate, in decimal digits.
    parameters : of the method: `eta`, `draws`, `delta`, `rho`.
    drawn : how many responses of each batch are labelled at least.
    floor : the gate's `label_floor`.
    cuts : of the unlabelled history, for the method `selective`.
    """

    groups: Sequence[Group]
    alpha: float
    seed: str
    parameters: dict[str, Any]
    drawn: int = 1
    floor: float | None = None
    cuts: Sequence[float] = ()


def budget(alpha: float, groups: float) -> float:
    """Return the largest sum of losses that a budget allows over so many groups."""
    allowance = alpha * (groups + 1)
    return allowance - 1 + _SLACK * max(1.0, allowance)


def _groups_needed(alpha: float) -> int:
    return max(0, math.ceil((1 - _SLACK) / alpha) - 1)


# randomness, by the seed and names alone


def _digest(seed: str, *parts: str) -> bytes:
    encoded = [part.encode() for part in parts]
    message = b"".join(len(part).to_bytes(4, "big") + part for part in encoded)
    return hmac.digest(f"streamer.calibration.v1:{seed}".encode(), message, "sha256")


def pick(seed: str, group: Group) -> int:
    """Return the position of the one item of a group that is looked at."""
    if len(group.items) == 1:
        return 0
    return min(
        range(len(group.items)),
        key=lambda i: (_digest(seed, "crc", group.id, group.items[i]), group.items[i].encode()),
    )


def coin(seed: str, group: str) -> float:
    """Map a group to [0, 1)."""
    return (int.from_bytes(_digest(seed, "coin", group)[:8], "big") >> 11) * 2.0**-53


def reading_order(seed: str, groups: Sequence[Group]) -> list[Group]:
    """Sort groups in the order in which betting reads them."""
    return sorted(groups, key=lambda group: (_digest(seed, "order", group.id), group.id.encode()))


def _crc_weights(sample: Sample, group: Group) -> list[float]:
    chosen = pick(sample.seed, group)
    return [float(i == chosen) for i in range(len(group.items))]


def _bb_weights(sample: Sample, group: Group) -> list[float]:
    draws, count = sample.parameters["draws"], len(group.items)
    named = sorted(range(count), key=lambda i: group.items[i].encode())
    counts = [0] * count
    for first in range(0, draws, 4):
        words = _digest(sample.seed, "bb", group.id, str(first))
        for draw in range(min(4, draws - first)):
            word = int.from_bytes(words[8 * draw : 8 * draw + 8], "big")
            counts[named[word * count >> 64]] += 1
    return [one / draws for one in counts]


def _rbwa_weights(sample: Sample, group: Group) -> list[float]:
    eta = float(sample.parameters["eta"])
    scale = min(eta, 1.0)
    logs = [_rbwa_log(sample.seed, group.id, item, eta) for item in group.items]
    largest = max(logs)
    parts = [math.exp((log - largest) / scale) for log in logs]
    total = math.fsum(parts)
    return [part / total for part in parts]


@lru_cache(maxsize=1 << 18)  # later runs read the same items again
def _rbwa_log(seed: str, group: str, item: str, eta: float) -> float:
    """Return the logarithm of an item's share before it is divided by the sum, times the smaller of `eta` and 1."""
    words = _digest(seed, "rbwa", group, item)
    u, v = (((int.from_bytes(words[at : at + 8], "big") >> 11) + 0.5) * 2.0**-53 for at in (0, 8))
    scale = min(eta, 1.0)
    return math.log(v) * (scale / eta) + scale * math.log(gamma_quantile(eta + 1, u))


WEIGHTS: dict[str, Callable[[Sample, Group], list[float]]] = {
    "mean": lambda _, group: [1 / len(group.items)] * len(group.items),
    "crc": _crc_weights,
    "bb": _bb_weights,
    "rbwa": _rbwa_weights,
}
"""What each item of a group weighs; an only item weighs 1."""


# distributions


def _incomplete_gamma(a: float, x: float, *, upper: bool) -> float:
    """Return the regularised lower incomplete gamma function P(a, x), or its complement."""
    if x <= 0:
        return float(upper)
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        n = 0
        while abs(term) > abs(total) * 1e-17:
            n += 1
            term *= x / (a + n)
            total += term
        value, of_upper = front * total, False
    else:  # the continued fraction, by Lentz' method
        b, c = x + 1 - a, 1e300
        d = h = 1 / b
        for i in range(1, 100_000):
            an = -i * (i - a)
            b += 2
            d = 1 / (an * d + b)
            c = b + an / c
            h *= d * c
            if abs(d * c - 1) < 3e-16:
                break
        value, of_upper = front * h, True
    return value if upper == of_upper else 1 - value


def gamma_quantile(a: float, u: float) -> float:
    """Return the x with P(a, x) = u, for a > 1 and 0 < u < 1: Newton's method within a bracket."""
    upper = u > 0.5
    target = 1 - u if upper else u
    low, high = 0.0, math.inf
    z = math.sqrt(-2 * math.log(target)) * (0.8 if upper else -0.8)
    guess = a * max(0.0, 1 - 1 / (9 * a) + z / (3 * math.sqrt(a))) ** 3
    x = guess or math.exp((math.log(u) + math.lgamma(a + 1)) / a)
    for _ in range(2000):
        value = _incomplete_gamma(a, x, upper=upper)
        away = target - value if upper else value - target
        low, high = (low, x) if away >= 0 else (x, high)
        density = math.exp((a - 1) * math.log(x) - x - math.lgamma(a))
        step = away / density if density > 0 else math.inf
        after = x - step
        if not low < after < high:
            after = 2 * x if high == math.inf else (low + high) / 2
        if abs(after - x) <= 2e-15 * x:
            return after
        x = after
    return x


def binomial_cdf(k: int, n: int, p: float) -> float:
    """Return P(X <= k) of a binomial number, for 0 < p < 1."""
    if k >= n:
        return 1.0
    start = min(k, int((n + 1) * p))  # the largest term, from which the others follow
    log = math.lgamma(n + 1) - math.lgamma(start + 1) - math.lgamma(n - start + 1)
    first = math.exp(log + start * math.log(p) + (n - start) * math.log1p(-p))
    terms, odds = [first], p / (1 - p)
    term = first
    for i in range(start, 0, -1):
        term *= i / ((n - i + 1) * odds)
        terms.append(term)
        if term < first * 1e-25:
            break
    term = first
    for i in range(start + 1, k + 1):
        term *= (n - i + 1) * odds / i
        terms.append(term)
    return min(1.0, math.fsum(terms))


# the summed loss


def _losses(sample: Sample, scheme: str) -> list[tuple[float, float]]:
    """Return score and loss, weight times severity, of every item."""
    found = []
    for group in sample.groups:
        weights = [1.0] if len(group.items) == 1 else WEIGHTS[scheme](sample, group)
        found += [
            (score, severity * weight)
            for score, severity, weight in zip(group.scores, group.severities, weights, strict=True)
        ]
    return found


def _loss_curve(items: Iterable[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Return the levels, falling, and the summed loss just below each: a compensated sum."""
    levels: list[float] = []
    totals: list[float] = []
    high = low = 0.0
    for score, loss in sorted((one for one in items if one[1] > 0), key=itemgetter(0), reverse=True):
        total = high + loss
        low += high - total + loss if abs(high) >= abs(loss) else loss - total + high
        high = total
        if levels and levels[-1] == score:
            totals[-1] = high + low
        else:
            levels.append(score)
            totals.append(high + low)
    return levels, totals


def _smallest(items: Iterable[tuple[float, float]], limit: float) -> float:
    """Return the smallest level whose summed loss is within the limit."""
    if limit < 0:
        return math.inf
    levels, totals = _loss_curve(items)
    return next((level for level, total in zip(levels, totals, strict=True) if total > limit), -math.inf)


def _by_scheme(sample: Sample, scheme: str) -> float:
    return _smallest(_losses(sample, scheme), budget(sample.alpha, len(sample.groups)))


def _first_refused(groups: Sequence[Group], refused: Callable[[list[float]], bool]) -> float:
    """Walk from the strictest level down to the first at which the groups' losses, of items at it or above, are refused."""
    entering = sorted(
        (
            (score, number, severity / len(group.items))
            for number, group in enumerate(groups)
            for score, severity in zip(group.scores, group.severities, strict=True)
            if severity > 0
        ),
        key=itemgetter(0),
        reverse=True,
    )
    parts: list[list[float]] = [[] for _ in groups]
    row = [0.0] * len(groups)
    for level, some in itertools.groupby(entering, key=itemgetter(0)):
        for _, number, loss in some:
            parts[number].append(loss)
            row[number] = min(1.0, math.fsum(parts[number]))
        if refused(row):
            return float(level)
    return -math.inf


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _spread(values: Sequence[float]) -> float:
    """Return the standard deviation, with the divisor n - 1."""
    middle = _mean(values)
    return math.sqrt(math.fsum((one - middle) ** 2 for one in values) / (len(values) - 1))


# the methods


def _by_age(sample: Sample) -> float:
    count, rho = len(sample.groups), sample.parameters["rho"]
    weights = [rho ** (count - 1 - position) for position in range(count)]
    items = [
        (score, severity / len(group.items) * weight)
        for group, weight in zip(sample.groups, weights, strict=True)
        for score, severity in zip(group.scores, group.severities, strict=True)
    ]
    return _smallest(items, budget(sample.alpha, math.fsum(weights)))


def hoeffding_bentkus(total: float, count: int, alpha: float) -> float:
    """Return the p-value of a mean loss above `alpha`, by the sum of `count` losses."""
    average = min(total / count, alpha)
    divergence = (1 - average) * math.log((1 - average) / (1 - alpha))
    if average > 0:
        divergence += average * math.log(average / alpha)
    whole = min(count, math.ceil(total - _SLACK * max(1.0, total)))
    return min(1.0, math.exp(-count * max(0.0, divergence)), math.e * binomial_cdf(whole, count, alpha))


def _by_hb(sample: Sample) -> float:
    count, delta = len(sample.groups), sample.parameters["delta"]

    def passes(total: float) -> bool:
        return bool(hoeffding_bentkus(min(total, count), count, sample.alpha) <= delta)

    if not count or not passes(0.0):
        return math.inf
    levels, totals = _loss_curve(_losses(sample, "mean"))
    return next((level for level, total in zip(levels, totals, strict=True) if not passes(total)), -math.inf)


def betting_p(values: Sequence[float], alpha: float, delta: float) -> float:
    """Return the p-value of a mean loss above `alpha`, by wagers on the losses one after the other."""
    count, total, squares, wealth, most, variance = len(values), 0.0, 0.0, 0.0, 0.0, 0.25
    stake = 2 * math.log(1 / delta)
    for i, loss in enumerate(values):
        bet = min(1.0, math.sqrt(stake / (count * variance)))
        wealth += math.log1p(-bet * (loss - alpha))
        most = max(most, wealth)
        total += loss
        squares += (loss - (total + 0.5) / (i + 2)) ** 2
        variance = (squares + 0.25) / (i + 2)
    return math.exp(-most)


def _by_betting(sample: Sample) -> float:
    count, alpha, delta = len(sample.groups), sample.alpha, sample.parameters["delta"]
    if not count or betting_p([0.0] * count, alpha, delta) > delta:
        return math.inf
    order = reading_order(sample.seed, sample.groups)
    return _first_refused(order, lambda row: betting_p(row, alpha, delta) > delta)


def _by_bernstein(sample: Sample) -> float:
    count, alpha = len(sample.groups), sample.alpha
    log = math.log(2 / sample.parameters["delta"])
    if count < math.ceil(7 * log / (3 * alpha)) + 1:
        return math.inf
    room = alpha - 7 * log / (3 * (count - 1))
    return _first_refused(
        sample.groups, lambda row: _mean(row) + math.sqrt(2 * log / count) * _spread(row) > room
    )


def _by_clt(sample: Sample) -> float:
    from statistics import NormalDist  # no other method needs it

    count, alpha = len(sample.groups), sample.alpha
    if count < max(2, _groups_needed(alpha)):
        return math.inf
    z = -NormalDist().inv_cdf(min(sample.parameters["delta"], 0.5))
    room = alpha - 1 / (count + 1) + _SLACK
    return _first_refused(sample.groups, lambda row: _mean(row) + z * _spread(row) / math.sqrt(count) > room)


class _OneItem:
    """One item of each group, and whether it is wrong."""

    def __init__(self, sample: Sample) -> None:
        marks = []
        for group in sample.groups:
            item = pick(sample.seed, group)
            severity = group.severities[item]
            wrong = severity == 1 or (severity > 0 and coin(sample.seed, group.id) < severity)
            marks.append((group.scores[item], wrong))
        marks.sort(key=itemgetter(0))
        self.rising = [score for score, _ in marks]
        self._wrong = [0, *itertools.accumulate(wrong for _, wrong in marks)]

    def above(self, level: float) -> tuple[int, int]:
        """Return how many items score above a level, and how many of these are wrong."""
        at = bisect_right(self.rising, level)
        return len(self.rising) - at, self._wrong[-1] - self._wrong[at]


def _by_selective(sample: Sample) -> float:
    alpha, delta, floor = sample.alpha, sample.parameters["delta"], sample.floor or 0.0
    items = _OneItem(sample)

    def p_value(level: float) -> float:
        shipped, errors = items.above(level)
        return binomial_cdf(errors, shipped, alpha) if shipped else 1.0

    if sample.cuts:
        found = math.inf
        for cut in sorted({max(one, floor) for one in sample.cuts}, reverse=True):
            if p_value(cut) > delta:
                break
            found = cut
        return found
    falling = items.rising[::-1]
    ranks = [math.ceil(tenths * len(falling) / 10) for tenths in _TENTHS]
    levels = sorted({floor, *(max(falling[rank], floor) for rank in ranks if rank < len(falling))})
    return next((level for level in levels if p_value(level) <= delta / len(_TENTHS)), math.inf)


def _by_selective_mean(sample: Sample) -> float:
    floor, items = sample.floor or 0.0, _OneItem(sample)
    for level in sorted({floor, *(score for score in items.rising if score > floor)}):
        shipped, errors = items.above(level)
        room = sample.alpha * (shipped + 1)
        if errors + 1 <= room + _SLACK * max(1.0, room):
            return level
    return math.inf


def _by_transduction(sample: Sample) -> float:
    """Return the strictest threshold that a batch can get."""
    strictest = _by_scheme(sample, "mean")
    return strictest if sample.drawn == 1 else min(strictest, 1.0)


def _window(sample: Sample) -> list[list[float | None]]:
    """Return level and summed loss from which a batch's own cut follows; at most 2,048 of them."""
    limit = budget(sample.alpha, len(sample.groups))
    levels, totals = _loss_curve(_losses(sample, "mean"))
    levels, totals = [-math.inf, *reversed(levels)], [*reversed(totals), 0.0]
    first = next(i for i, total in enumerate(totals) if total <= limit + 1)
    last = next((i for i, total in enumerate(totals) if total <= limit), len(totals) - 1)
    levels, totals = levels[first : last + 1], totals[first : last + 1]
    kept = list(range(len(levels)))
    if len(levels) > _WINDOW_LEVELS:
        span = totals[0] - max(totals[-1], limit) or 1.0
        kept, reached = [0], 0
        for i in range(1, len(levels) - 1):
            share = int((totals[0] - totals[i]) / span * (_WINDOW_LEVELS - 1))
            if share > reached:
                kept.append(i)
                reached = share
        kept.append(len(levels) - 1)
    return [[None if levels[i] == -math.inf else levels[i], totals[i]] for i in kept]


METHODS: dict[str, Callable[[Sample], float]] = {
    "mean": lambda sample: _by_scheme(sample, "mean"),
    "crc": lambda sample: _by_scheme(sample, "crc"),
    "bb": lambda sample: _by_scheme(sample, "bb"),
    "rbwa": lambda sample: _by_scheme(sample, "rbwa"),
    "age": _by_age,
    "hb": _by_hb,
    "betting": _by_betting,
    "bernstein": _by_bernstein,
    "clt": _by_clt,
    "selective": _by_selective,
    "selective-mean": _by_selective_mean,
    "transductive": _by_transduction,
}
"""Threshold of a sample by every method, before a floor raises it."""


# shapes and segments


def calibrate(
    sample: Sample,
    method: str,
    *,
    shape: str = "indicator",
    width: float | None = None,
    segment_by: str | None = None,
    fallback: str | None = None,
) -> tuple[float, dict[str, Any]]:
    """Return the threshold of a gate and its rule, by its method, its shape and its segments."""
    parameters: dict[str, Any] = {}
    if segment_by is not None:
        value, own = _by_segment(sample, method, fallback)
        return value, {"kind": "segments", "parameters": {"key": segment_by, "own": own}, "curve": None}
    if shape in ("smooth", "ramp"):
        if width is None:
            raise ValueError(f"the shape {shape} needs a width")
        value, parameters = _soft(sample, method, shape, width), {"width": width}
    elif shape == "quantile":
        value, quantile = _as_quantile(sample, METHODS[method](sample._replace(floor=None)))
        parameters = {"quantile": quantile}
    elif shape == "rank":
        value = METHODS[method](sample)
    elif method == "transductive":
        parameters = {
            "alpha": sample.alpha, "groups": len(sample.groups), "labelled": sample.drawn, "floor": sample.floor
        }  # fmt: skip
        rule = {"kind": "transductive", "parameters": parameters, "curve": _window(sample)}
        return _raised_to(_by_transduction(sample), sample.floor), rule
    else:
        value, shape = _raised_to(METHODS[method](sample), sample.floor), "indicator"
    return value, {"kind": shape, "parameters": parameters, "curve": None}


def as_cut(value: float) -> dict[str, Any]:
    """Write a threshold as a policy has it."""
    if not math.isfinite(value):
        return {"state": "full" if math.isnan(value) else "closed" if value > 0 else "open", "lambda": None}
    return {"state": "cut", "lambda": value}


def _raised_to(value: float, floor: float | None) -> float:
    return value if floor is None else max(value, floor)


def _by_segment(sample: Sample, method: str, fallback: str | None) -> tuple[float, dict[str, Any]]:
    """Return the threshold of all that have none of their own, and the cuts of segments that are large enough."""
    parts: dict[str, list[Group]] = {}
    for group in sample.groups:
        parts.setdefault(group.segment, []).append(group)
    large = [name for name, some in parts.items() if len(some) >= _groups_needed(sample.alpha)]
    large.sort(key=lambda name: (-len(parts[name]), name.encode()))
    own = {
        name: as_cut(_raised_to(_by_scheme(sample._replace(groups=parts[name]), method), sample.floor))
        for name in large[:_MOST_SEGMENTS]
    }
    rest = _by_scheme(sample, method) if fallback == "pooled" else math.inf
    return _raised_to(rest, sample.floor), own


def _as_quantile(sample: Sample, value: float) -> tuple[float, float | None]:
    """Return the double below the next higher score, and the share of scores up to a threshold."""
    if math.isinf(value):
        return value, None
    scores = [score for group in sample.groups for score in group.scores]
    higher = [score for score in scores if score > value]
    share = (len(scores) - len(higher)) / len(scores)
    return math.nextafter(min(higher), -math.inf) if higher else 1.0, share


def _soft(sample: Sample, method: str, shape: str, width: float) -> float:
    """Return the level of a random gate: the smallest double within the budget."""
    items = [one for one in _losses(sample, method) if one[1] > 0]
    limit = budget(sample.alpha, len(sample.groups))
    if limit < 0:
        return math.inf

    def share(score: float, level: float) -> float:
        away = (score - level) / width
        if shape == "ramp":
            return min(1.0, max(0.0, away))
        small = math.exp(-abs(away))
        return (1.0 if away >= 0 else small) / (1 + small)

    def lost(level: float) -> float:
        return math.fsum(loss * share(score, level) for score, loss in items)

    everything = lost(-math.inf)
    if everything <= limit:
        return -math.inf
    if limit == 0:
        return math.inf
    over, within = -width, 1.0
    if shape == "smooth":
        over = width * math.log((everything - limit) / everything)
        within = 1 + width * math.log(everything / limit)
    if lost(within) > limit:
        return math.inf
    if lost(over) <= limit:
        return over
    low, high = _rank_of(over), _rank_of(within)
    while high - low > 1:
        middle = (low + high) >> 1
        low, high = (low, middle) if lost(_double_of(middle)) <= limit else (middle, high)
    return _double_of(high)


def _rank_of(value: float) -> int:
    """Number the doubles in rising order, 0 being 0."""
    bits = int.from_bytes(struct.pack(">d", abs(value)), "big")
    return bits if value >= 0 else -bits


def _double_of(rank: int) -> float:
    (size,) = struct.unpack(">d", abs(rank).to_bytes(8, "big"))
    return math.copysign(size, rank)


# -- the method full: labelled prompts that look at least as good, by all signals ------------------------------------

RIDGE, INTERCEPT_RIDGE, TIE = 100.0, 1e-6, 1e-9
LEAST_PROMPTS, MOST_PROMPTS = 40, 5000
RULES = ("cut", "unread", "twin")
"""Why an encoder does not read an answer, in the order of a row of signals."""
_MOST_FITS = 32
"""That are held: a fit has the rows of all bad prompts as numbers."""


def allowed(alpha: float, groups: int, attempts: int) -> int:
    """Return the largest count that ships, floor(alpha (G + 1) / R), exactly."""
    return int(Fraction(repr(float(alpha))) * (groups + 1) / attempts)


def _dot(one: Iterable[float], other: Iterable[float]) -> float:
    return sum(map(mul, one, other), 0.0)


def _inverse(matrix: list[list[float]]) -> list[list[float]]:
    """Invert a positive definite matrix by Gauss and Jordan, which needs no pivots there."""
    size = len(matrix)
    rows = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for i, row in enumerate(rows):
        rows[i] = own = [value / row[i] for value in row]
        for j, other in enumerate(rows):
            if j != i:
                by = other[i]
                rows[j] = [value - by * at for value, at in zip(other, own, strict=True)]
    return [row[size:] for row in rows]


class Prompts(NamedTuple):
    """Labelled prompts in the order of their decisions: the row of each, d float32, its mark, and its segment."""

    signals: Sequence[bytes]
    bad: bytes
    segments: Sequence[str]


class Fit:
    """The ridge regression on labelled prompts; see the method `full` in docs/audit-format.md."""

    def __init__(self, prompts: Prompts) -> None:
        rows = list(map(_row, prompts.signals))
        self._unread = Counter(map(_unread, rows))
        columns = list(zip(*rows, strict=True))
        gram = [[_dot(one, other) for other in columns] for one in columns]
        for i, row in enumerate(gram):
            row[i] += RIDGE if i else INTERCEPT_RIDGE
        self._inverse = _inverse(gram)
        targets = [-1.0 if bad else 1.0 for bad in prompts.bad]
        sums = [_dot(column, targets) for column in columns]
        self._weights = [_dot(row, sums) for row in self._inverse]
        self._bad: dict[str | None, list[tuple[float, list[float]]]] = {None: []}
        for bad, row, segment in zip(prompts.bad, rows, prompts.segments, strict=True):
            if bad:
                one = (_dot(row, self._weights), row)
                self._bad[None].append(one)
                self._bad.setdefault(segment, []).append(one)

    def unfamiliar(self, signals: bytes, least: float) -> bool:
        """Report whether the encoder did not read a batch, and fewer prompts than `least` for the same reasons."""
        reasons = _unread(_row(signals))
        return 1 in reasons and self._unread[reasons] < least

    def count(self, signals: bytes, segment: str | None) -> int:
        """Return 1 + how many bad prompts, of a segment or (None) of all, score at least as high as a new one supposed bad."""
        x = _row(signals)
        if len(x) != len(self._weights):
            raise ValueError("its row has another number of signals")
        g = [_dot(row, x) for row in self._inverse]
        h, own = _dot(x, g), _dot(x, self._weights)
        step = (-1 - own) / (1 + h)
        bar = own + h * step - TIE
        return 1 + sum(score + _dot(row, g) * step >= bar for score, row in self._bad.get(segment, ()))


def _unread(row: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(one == 1) for one in row[27:30])


def _never(needed: Sequence[float] | None) -> bool:
    """Report whether no budget is enough."""
    return needed is not None and needed[0] > needed[1]


def _row(signals: bytes) -> list[float]:
    """Read a row, with 1 for the intercept in front."""
    return [1.0, *struct.unpack(f"<{len(signals) // 4}f", signals)]


def fitted(groups: Sequence[Group], settings: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a rule of all signals says of its prompts; None where there are too few, or some without signals."""
    prompts, alpha, attempts = groups[-MOST_PROMPTS:], settings["alpha"], settings["max_attempts"]
    most = allowed(alpha, len(prompts), attempts)
    if len(prompts) < LEAST_PROMPTS or most < 1 or any(prompt.signals is None for prompt in prompts):
        return None
    segmented = settings["segment_by"] is not None
    sizes = Counter(prompt.segment for prompt in prompts) if segmented else Counter()
    kept = sorted(sizes, key=lambda name: (-sizes[name], name))[:_MOST_SEGMENTS]
    own = {name: [sizes[name], allowed(alpha, sizes[name], attempts)] for name in kept}
    sealed = sorted(
        bytes([prompt.bad]) + (prompt.signals or b"") + (prompt.segment if segmented else "").encode() + b"\0"
        for prompt in prompts
    )
    pooled = settings["segment_fallback"] == "pooled"
    return {
        "groups": len(prompts),
        "bad": sum(prompt.bad for prompt in prompts),
        "allowed": most,
        "rows": sha256(b"".join(sealed)),
        "own": {name: one for name, one in own.items() if one[1] >= 1 or not pooled},
    }


class BySignals:
    """What a policy of the method `full` compares a batch with."""

    def __init__(self, rule: dict[str, Any], groups: Sequence[Sequence[Group]]) -> None:
        self._rule = rule["parameters"]
        self._prompts = [
            Prompts(
                [one.signals or b"" for one in some],
                bytes(one.bad for one in some),
                [one.segment for one in some],
            )
            for some in groups
        ]

    def fits(self) -> list[Fit]:
        return list(map(Fit, self._prompts))

    def needed(self, facts: dict[str, Any], fits: Sequence[Fit]) -> list[Any] | None:
        if "signals" not in facts:
            return None
        found, segment, given = [], facts.get("segment") or "", self._rule
        for said, fit in zip(given["fits"], fits, strict=True):
            own = said["own"].get(segment)
            of_all = given["segment_by"] is None or (own is None and given["pooled"])
            groups = said["groups"] if of_all else (own or (0,))[0]
            signals = bytes.fromhex(facts["signals"])
            unfamiliar = fit.unfamiliar(signals, given["least_alike"])
            found.append(
                [groups + 1 if unfamiliar else fit.count(signals, None if of_all else segment), groups]
            )
        return max(found, key=lambda one: one[0] / (one[1] + 1))


def _ship_above(settings: dict[str, Any]) -> float:
    """Return the score above which a gate of the method `full` ships; 0: no score holds."""
    return float(_parsed(settings["parameters"])["ship_above"])


class ByScore:
    """What a policy that cuts one score at its budget compares a batch with: the severities at or above its score."""

    def __init__(self, groups: Sequence[Group]) -> None:
        pairs = sorted((group.scores[0], _mean(group.severities)) for group in groups)
        self._groups = groups
        self._of: dict[str, ByScore] | None = None
        self._scores = array("d", map(itemgetter(0), pairs))
        self._severities = array("d", map(itemgetter(1), pairs))
        self._above: dict[int, float] = {}

    def needed(self, facts: dict[str, Any], settings: dict[str, Any], rule: dict[str, Any]) -> list[Any]:
        """Return `[c, G]`; where segments have cuts of their own, of the prompts of the batch's segment."""
        segment, unit = facts.get("segment") or "", settings["unit"]
        pooled = settings.get("segment_fallback") == "pooled" and segment not in rule["parameters"].get(
            "own", ()
        )
        if rule["kind"] == "segments" and not pooled:
            if self._of is None:
                names = {one.segment for one in self._groups}
                self._of = {
                    name: ByScore([one for one in self._groups if one.segment == name]) for name in names
                }
            return self._of.get(segment, ByScore(())).needed(facts, settings, _PLAIN)
        scores = [one[1] for one in facts["responses"]]
        score = max(scores) if unit == "best" else round(_mean(scores), 6)
        at = bisect_left(self._scores, score)
        if at not in self._above:
            self._above[at] = 1 + math.fsum(self._severities[at:])
        return [self._above[at], len(self._scores)]


# -- calibration runs: what they read, and what follows from it ----------------------------------------------------

_MOST_DELAYS, _LEAST_DELAYS = 1000, 20
"""Earlier draws whose labels' delays are looked at, and how many say something."""
_NEAR = 1e-9
"""Of levels that logarithms and exponentials go into."""


class _Decided(NamedTuple):
    """What runs need to know of a decision; `responses` has the score of each, and whether it was drawn."""

    batch: tuple[str, str, int]
    chain: tuple[Any, ...]
    leaf: int
    made_as: tuple[str, str]
    erased_at: str
    place: str
    sampled: bool
    decided_at: str
    policy: int
    extra_draw: bool
    raised: bool
    probability: float
    scorer: str
    responses: dict[str, tuple[float | None, bool]]
    signals: bytes | None

    @property
    def drawn(self) -> list[tuple[str, float]]:
        """The scored responses that its gate's own audit drew, with their scores."""
        if not self.sampled or self.extra_draw or self.batch[2] != 1:
            return []
        return [
            (name, score) for name, (score, drawn) in self.responses.items() if drawn and score is not None
        ]


class _Label(NamedTuple):
    """A label, with its leaf in its partition's log; one of a file has the id of its row, and a leaf of the control log."""

    kind: str
    labeller: str
    severity: float
    effective: str
    received: str
    chain: tuple[Any, ...] | None
    leaf: int
    id: int
    said: dict[str, Any]


class Runs:
    """Reads the logs along with the verifier, and then derives each calibration run again.

    `control` and `outcomes` pass their lines on; `check` takes the lines of the control log a second time, so that the
    inputs of one run at a time are held.

    Parameters
    ----------
    label_keys : whose labels which key signs, by its id; None: which labels a gate that demands signatures has read is not
        checked.
    verify_signature : of a key, a text and a signature.
    """

    def __init__(
        self,
        label_keys: Mapping[str, tuple[str, bytes]] | None = None,
        verify_signature: Callable[[bytes, bytes, bytes], bool] = ed25519_verify,
    ) -> None:
        self.label_keys = label_keys
        self._verify_signature = verify_signature
        self._record_id = ""
        self._signatures: dict[int, list[tuple[int, dict[str, Any]]]] = {}
        self._of_files: set[int] = set()
        self._gates: dict[str, dict[str, Any]] = {}
        self._revisions: dict[tuple[str, int], dict[str, Any]] = {}
        self._policies: dict[tuple[str, int], dict[str, Any]] = {}
        self._carried: dict[tuple[Any, ...], float] = {}
        self._rows: dict[tuple[Any, ...], bytes] = {}
        self._read: set[tuple[str, str, int]] = set()
        self._calibrated: set[str] = set()
        self._closings: dict[str, dict[int, int]] = {}
        self._alarmed: dict[str, list[int]] = {}
        self._carried_to: set[tuple[Any, ...]] = set()
        self._decided: dict[tuple[str, str, int], _Decided] = {}
        self._draws: dict[str, list[_Decided]] = {}
        self._labels: dict[tuple[Any, ...], list[_Label]] = {}
        self._compares: dict[int, BySignals | ByScore] = {}
        self._fits: dict[int, list[Fit]] = {}

    # reading along

    def control(self, lines: Iterable[dict[str, Any]], record_id: str) -> Iterator[dict[str, Any]]:
        """Pass the control log on and read it."""
        self._record_id = record_id
        for line in lines:
            yield line
            if line["row"] is not None:
                self._of_control(line, line["kind"], line["row"])

    def _of_control(self, line: dict[str, Any], kind: str, row: dict[str, Any]) -> None:
        if kind == "gates":
            self._gates[row["name"]] = row
        elif kind == "gate_revisions":
            self._revisions[row["gate"], row["revision"]] = row
        elif kind == "policies":
            self._policies[row["gate"], row["version"]] = row
            if row["created_by"] == MONITOR and row["state"] == "closed":
                self._closings.setdefault(row["gate"], {})[row["version"]] = line["index"]
        elif kind == "alerts" and row["kind"] in ("risk", "selective"):
            self._alarmed.setdefault(row["gate"], []).append(row["policy_version"])
        elif kind == "carried_scores":
            self._carried[row["scorer"], *row["of"], row["response_id"]] = row["score"]
            self._carried_to.add((row["scorer"], *row["of"]))
        elif kind == "carried_signals":
            self._rows[row["list"], *row["of"]] = bytes.fromhex(row["signals"])
        elif kind == "label_signatures":
            self._signatures.setdefault(row["label"], []).append((line["index"], row))
        elif kind == "calibration_runs":
            self._calibrated.add(row["gate"])
            self._read.update((row["gate"], batch, attempt) for batch, attempt, *_ in line["inputs"])
        elif kind == "label_revisions":
            label = _Label(
                row["kind"], row["labeller"], row["severity"], row["effective_at"], row["received_at"],
                None, line["index"], row["id"], row,
            )  # fmt: skip
            self._of_files.add(row["id"])
            response = (row["gate"], row["batch_id"], row["attempt"], row["response_id"])
            self._labels.setdefault(response, []).append(label)

    def outcomes(self, lines: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Pass the partitions' logs on, and keep what runs have read."""
        self._labels = {name: some for name, some in self._labels.items() if name[0] in self._calibrated}
        for line in lines:
            yield line
            if line["kind"] in ("decision", "label") and line["facts"] is not None:
                self._of_outcome(line, line["facts"])

    def _of_outcome(self, line: dict[str, Any], facts: dict[str, Any]) -> None:
        gate, batch_id, attempt, *response = facts["batch" if line["kind"] == "decision" else "response"]
        batch = (gate, batch_id, attempt)
        if gate not in self._calibrated:
            return
        if line["kind"] == "decision":
            if not facts["sampled"] and batch not in self._read:
                return
            self._decided[batch] = _Decided(
                batch,
                tuple(line["source"][:3]),
                line["index"],
                (facts["unit"], facts["encoder"]),
                line.get("erased_at") or "~",
                "{1}[{2}], offset {3}".format(*line["source"]),
                facts["sampled"],
                facts["decided_at"],
                facts["policy"],
                bool(facts.get("extra_draw")),
                facts.get("audit_rate") is not None,
                facts["sampling_probability"],
                facts["scorer"],
                {one[0]: (one[1], bool(one[4])) for one in facts["responses"]},
                bytes.fromhex(facts["signals"]) if "signals" in facts else None,
            )
            return
        effective = line.get("effective_at", min(facts["labelled_at"], facts["received_at"]))
        label = _Label(
            facts["kind"], facts["labeller"], facts["severity"], effective, facts["received_at"],
            tuple(line["source"][:3]), line["index"], 0, facts,
        )  # fmt: skip
        self._labels.setdefault((*batch, *response), []).append(label)

    # and then

    def check(
        self, lines: Iterable[dict[str, Any]], verifier: Verifier, *, inputs_alone: bool = False
    ) -> None:
        """Derive every run of the control log again; what does not fit is a fault of the verifier."""
        for line in lines:
            row = line.get("row")
            if line["kind"] != "calibration_runs" or row is None:
                continue
            run = _RunAgain(self, row, line, verifier)
            try:
                run.check(inputs_alone=inputs_alone)
            except (ValueError, ArithmeticError) as error:
                verifier.fault(
                    "calibration", run.place, f"nothing can be calibrated with its numbers: {error}"
                )

    def compare(self, run: int, by: BySignals | ByScore) -> None:
        """Remember what policies of a run compare batches with."""
        self._compares[run] = by

    def check_budgets(self, lines: Iterable[dict[str, Any]], verifier: Verifier) -> None:
        """Derive again which budget each decision needed; after `check`, from the partitions' logs."""
        for line in lines:
            facts = line.get("facts")
            if line["kind"] != "decision" or facts is None:
                continue
            needed, said = self._needed(facts), facts.get("budget")
            verifier.counts["budgets derived again"] += needed is not None
            if said != needed:
                verifier.fault("action", place_of(line), wrong_budget(said, needed))

    def _needed(self, facts: dict[str, Any]) -> list[Any] | None:
        gate = facts["batch"][0]
        policy, settings = self._policies.get((gate, facts["policy"])), self.served(gate, facts["policy"])
        if policy is None or settings is None or not facts["responses"] or facts["responses"][0][1] is None:
            return None
        by = self._compares.get(policy["calibration_run"])
        if isinstance(by, BySignals):
            key = policy["calibration_run"]
            if key not in self._fits:
                while len(self._fits) >= _MOST_FITS:
                    self._fits.pop(next(iter(self._fits)))
                self._fits[key] = by.fits()
            return by.needed(facts, self._fits[key])
        if by is None or not cuts_at_budget(policy, settings) or 1 in unread(facts.get("signals")):
            return None
        return by.needed(facts, settings, _parsed(policy.get("rule")) or _PLAIN)

    def settings(self, gate: str, revision: int) -> dict[str, Any] | None:
        """Return the row of a gate's revision."""
        return self._revisions.get((gate, revision))

    def gate(self, name: str) -> dict[str, Any] | None:
        """Return the row of a gate."""
        return self._gates.get(name)

    def served(self, gate: str, policy: int) -> dict[str, Any] | None:
        """Return the settings of a policy."""
        row = self._policies.get((gate, policy))
        return None if row is None else self._revisions.get((gate, row["gate_revision"]))

    def decided(self, batch: tuple[str, str, int]) -> _Decided | None:
        """Return what is on record of a batch."""
        return self._decided.get(batch)

    def labels(self, response: tuple[Any, ...]) -> list[_Label]:
        """Return every label of a response."""
        return self._labels.get(response, [])

    def signed(self, label: _Label, response: tuple[Any, ...], before: int) -> bool:
        """Whether a label had a good signature of its labeller before a leaf of the control log."""
        text = dict(zip(_OF_LABEL, response, strict=False)) | label.said
        if label.chain is not None:
            return self._is_good(text, label.said)
        signatures = self._signatures.get(label.id, [])
        return any(index < before and self._is_good(text, row) for index, row in signatures)

    def draws(
        self, row: dict[str, Any], settings: dict[str, Any], heads: dict[tuple[Any, ...], int]
    ) -> tuple[list[_Decided], list[_Decided]]:
        """Return what a gate's own audit had drawn below the heads of a run, in order: what the run could read, and what came before all that."""
        gate, since, made_as = (
            row["gate"],
            row.get("since_version") or 0,
            (settings["unit"], settings["encoder"]),
        )
        if gate not in self._draws:
            drawn = [one for one in self._decided.values() if one.batch[0] == gate and one.drawn]
            self._draws[gate] = sorted(drawn, key=attrgetter("decided_at", "chain", "leaf"))
        there = [
            one
            for one in self._draws[gate]
            if one.leaf < heads.get(one.chain, 0) and one.decided_at < row["started_at"]
        ]
        read = [
            one
            for one in there
            if one.policy >= since
            and one.made_as == made_as
            and (one.scorer == settings["scorer"] or (settings["scorer"], *one.batch) in self._carried_to)
            and _of_same_revisions(
                settings if self.carried_row(settings, one.batch) is None else {**settings, "signals": None},
                self.served(gate, one.policy),
            )
        ]
        return read, [one for one in there if read and one.decided_at < read[0].decided_at]

    def begins(self, gate: str, since: int | None, before: int) -> bool:
        """Whether a run may begin at a policy: the newest closing by an alarm before a leaf, or where an alarm could not close."""
        closings = self._closings.get(gate, {})
        newest = max((version for version, leaf in closings.items() if leaf < before), default=None)
        if since is None or since == newest:
            return since == newest
        # A closing may be sealed after it is in force.
        later = since in closings or any(version < since for version in self._alarmed.get(gate, ()))
        return later and since > (newest or 0)

    def _is_good(self, label: dict[str, Any], by: dict[str, Any]) -> bool:
        named, key = (self.label_keys or {}).get(by.get("key_id") or "", (None, b""))
        if named != label["labeller"]:
            return False
        try:
            signature = base64.b64decode(by["signature"], validate=True)
            return self._verify_signature(key, label_statement(label, self._record_id), signature)
        except (KeyError, TypeError, ValueError):
            return False

    @property
    def signed_elsewhere(self) -> bool:
        """Whether labels that came by topics were signed by file: which, no bundle says."""
        return bool(self._signatures.keys() - self._of_files)

    def carried(self, scorer: str, response: tuple[Any, ...]) -> float | None:
        """Return what an adopted candidate's scorer made of a response that was decided before it."""
        return self._carried.get((scorer, *response))

    def carried_row(self, settings: dict[str, Any], batch: tuple[Any, ...]) -> bytes | None:
        """Return the row that an adopted candidate with this list of signals made of a batch that was decided before it."""
        return self._rows.get((sha256((settings.get("signals") or "").encode()), *batch))


def cuts_at_budget(policy: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Whether a policy ships what needs no more than its budget, by one score."""
    rule = _parsed(policy.get("rule")) or _PLAIN
    weights = ("mean", "full", *(("crc", "bb", "rbwa") if settings["unit"] == "best" else ()))
    cuts = settings["method"] in weights and settings["unit"] != "response"
    return cuts and rule["kind"] in ("indicator", "segments") and settings.get("label_floor") is None


def wrong_budget(said: Any, needed: Any) -> str:
    """Name a budget on record that is not the one that a decision needed."""
    first, second = ("none" if one is None else f"{one[0]:g} of {one[1] + 1}" for one in (said, needed))
    return f"the budget that it needed is {second} by its policy's labelled prompts, and {first} on record"


def place_of(line: dict[str, Any]) -> str:
    """Name a decision for people."""
    place = "{}[{}], leaf {}, offset {}".format(*line["source"][1:3], line["index"], line["source"][3])
    return place + " ({}/{}#{})".format(*line["facts"]["batch"])


def _parsed(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


class _RunAgain:
    """One run, derived again from what it says that it has read."""

    def __init__(self, runs: Runs, row: dict[str, Any], line: dict[str, Any], verifier: Verifier) -> None:
        self.place = f"control, leaf {line['index']}, {_name('calibration_runs', row)}"
        self._runs, self._row, self._line, self._verifier = runs, row, line, verifier
        self._settings: dict[str, Any] = {}
        self._inputs: list[dict[str, Any]] = []
        self._heads = {tuple(head[:3]): head[3] for head in _parsed(row["heads"])}

    def check(self, *, inputs_alone: bool = False) -> None:
        row = self._row
        settings, gate = self._runs.settings(row["gate"], row["gate_revision"]), self._runs.gate(row["gate"])
        if settings is None or gate is None:
            self._fault("its gate or revision is not on record")
            return
        self._settings = settings
        self._inputs = self._table("inputs")
        self._check_inputs()
        self._draws = self._runs.draws(row, settings, self._heads)
        self._check_complete(self._draws[0])
        self._check_severities()
        if inputs_alone:
            return
        if self._inputs:
            self._check_thresholds(gate)
        else:
            self._runs.compare(row["id"], ByScore(()))

    def _fault(self, detail: str) -> None:
        self._verifier.fault("calibration", self.place, detail)

    def _table(self, part: str) -> list[dict[str, Any]]:
        columns = self._row[part]["columns"]
        return [dict(zip(columns, one, strict=True)) for one in self._line.get(part) or ()]

    def _tell(self, wrong: dict[str, list[str]]) -> None:
        """Name what is wrong once, with the first input of which it is."""
        for detail, names in wrong.items():
            others = "" if len(names) == 1 else f" (so it is with {len(names) - 1} other inputs)"
            self._fault(f"{names[0]}: {detail}{others}")

    # what it has read

    def _check_inputs(self) -> None:
        """Each input is a drawn response of a recorded decision, with its score, probability and number of draws."""
        wrong: dict[str, list[str]] = {}
        for one in self._inputs:
            for detail in self._wrong_with(one):
                wrong.setdefault(detail, []).append(self._called(one))
        self._tell(wrong)
        self._verifier.counts["inputs of runs"] += len(self._inputs)

    def _called(self, one: dict[str, Any]) -> str:
        return f"{self._row['gate']}/{one['batch_id']}#{one['attempt']}, response {one['response_id']}"

    def _wrong_with(self, one: dict[str, Any]) -> Iterator[str]:
        settings, batch = self._settings, (self._row["gate"], one["batch_id"], one["attempt"])
        found = self._runs.decided(batch)
        if found is None or one["response_id"] not in found.responses:
            yield "it has read what no decision on record has"
            return
        score, drawn = found.responses[one["response_id"]]
        if not drawn or found.extra_draw:
            yield "it has read what its gate's own audit did not draw"
        served = self._runs.served(batch[0], found.policy)
        base = found.probability
        if found.raised:
            base = one["probability"] if served is None else served["audit_probability"]
        if one["probability"] != base:
            yield f"its own audit drew it with the probability {base}"
        own = self._runs.carried_row(settings, batch) is None
        if not _of_same_revisions(settings if own else {**settings, "signals": None}, served):
            yield "it has read a decision for another upstream or list of signals"
        if served is not None and one["draws"] != served["audit_draws"]:
            yield "another number of its responses was to be drawn"
        if settings["unit"] == "batch" or settings["shape"] == "rank":
            return
        if found.scorer == settings["scorer"]:
            if one["score"] != score:
                yield "its score is not the recorded one"
        else:
            later = self._runs.carried(settings["scorer"], (*batch, one["response_id"]))
            if later is not None and one["score"] != later:
                yield "its score is not the one that it was given later"

    def _check_severities(self) -> None:
        """Each severity is one that labels give which the run could read."""
        row, settings = self._row, self._settings
        signed = settings.get("signed_labels")
        if signed and (self._runs.label_keys is None or self._runs.signed_elsewhere):
            self._verifier.notes["signed labels"] = (
                "which labels a gate with signed labels has read: that depends on the public keys of labellers, which were not"
                " given"
                if self._runs.label_keys is None
                else "which labels a gate with signed labels has read: some of topics were signed by file"
            )
            return
        wrong: dict[str, list[str]] = {}
        for one in self._inputs:
            response = (row["gate"], one["batch_id"], one["attempt"], one["response_id"])
            if one["severity"] not in severities(list(self._read(response)), row.get("severities")):
                said = "no label" if one["severity"] is None else f"severity {one['severity']:g}"
                wrong.setdefault(f"labels do not give {said}", []).append(self._called(one))
        self._tell(wrong)
        self._check_age_cut(*self._draws)

    def _check_complete(self, drawn: list[_Decided]) -> None:
        """It has read every draw that was there and old enough; behind a window those that are younger than its oldest."""
        row, settings = self._row, self._settings
        if settings["pending"] == "labelled-only":
            return
        # What was erased by then had no segment or burst that was known.
        gone = row["finished_at"] if settings.get("segment_by") or settings.get("group_by") else ""
        read = {(row["gate"], one["batch_id"], one["attempt"]) for one in self._inputs}
        oldest = min((one.decided_at for one in drawn if one.batch in read), default="~")
        after = "" if settings.get("window") is None else oldest
        for one in drawn:
            if after < one.decided_at < row["older_than"] and one.batch not in read and one.erased_at > gone:
                key = "{}/{}#{}".format(*one.batch)
                self._fault(f"it did not read the drawn batch {key}, which was recorded ({one.place})")
        self._verifier.counts["runs whose sample is complete"] += 1

    def _read(self, response: tuple[Any, ...]) -> Iterator[_Label]:
        """The labels of a response that the run has read: of its gate's kind and labellers, below its heads."""
        settings, named = self._settings, _parsed(self._settings.get("labellers"))
        for label in self._runs.labels(response):
            if label.kind != settings["severity_kind"] or not (named is None or label.labeller in named):
                continue
            if label.leaf < self._heads.get(label.chain or CONTROL, 0) and (
                not settings.get("signed_labels")
                or self._runs.signed(label, response, self._heads.get(CONTROL, 0))
            ):
                yield label

    def _check_age_cut(self, drawn: list[_Decided], before: list[_Decided]) -> None:
        """From which age on draws counted follows from their ages, from which of them had labels, and from how late earlier ones got theirs."""
        row, settings, cut = self._row, self._settings, _parsed(self._row.get("age_cut"))
        floor, window = settings["label_floor"], settings.get("window")
        age = (
            None
            if cut is None
            else timedelta(seconds=cut["seconds"], microseconds=-1 if cut["seconds"] else 0)
        )
        began = datetime.fromisoformat(row["started_at"])
        if age is None or datetime.fromisoformat(row["older_than"]) != began - age:
            self._fault("it has not read what is older than its age cut")
            return
        if not self._runs.begins(row["gate"], row.get("since_version"), self._heads.get(CONTROL, 0)):
            self._fault("it does not begin where the newest alarm of its gate has it begin")
        if settings["pending"] != "age" or settings["label_deadline_seconds"]:
            if cut["seconds"] != settings["label_deadline_seconds"]:
                self._fault("its age cut is not its gate's")
            return
        of_batches = settings["unit"] == "batch" or settings["shape"] == "rank"
        if settings.get("segment_by") or settings.get("group_by") or (floor is not None and of_batches):
            return
        newest = drawn if window is None else drawn[-2 * window :]
        read: dict[tuple[Any, ...], bool] = {}
        for one in self._inputs:
            waits = one["severity"] is None and (floor is None or one["score"] > floor)
            batch = (row["gate"], one["batch_id"], one["attempt"])
            read[batch] = read.get(batch, False) or waits
        waiting = sum(read[one.batch] if one.batch in read else self._delay(one, floor)[1] for one in newest)
        seconds, deadline = 0.0, settings["monitor_deadline_seconds"]
        if waiting:
            own = drawn[: len(drawn) - len(newest)][-_MOST_DELAYS:]
            late = [self._delay(one, floor)[0] for one in own]
            others = [
                self._delay(one, floor) for one in before[max(0, len(before) - _MOST_DELAYS + len(own)) :]
            ]
            late += [one for one, waits in others if waits or one is not None]  # below a floor none is due
            known = sorted(deadline if one is None else min(max(one, 0.0), deadline) for one in late)
            wanted = known[math.ceil(0.95 * len(known)) - 1] if len(known) >= _LEAST_DELAYS else deadline
            seconds = min(
                wanted, _seconds_between(newest[(len(newest) - 1) // 2].decided_at, row["started_at"])
            )
        self._verifier.counts["age cuts derived again"] += 1
        if (cut["draws"], cut["waiting"], cut["seconds"]) != (len(newest), waiting, seconds):
            self._fault(
                f"it counts draws from an age of {cut['seconds']:g} s on, {cut['waiting']} of {cut['draws']} waiting for a label;"
                f" by the record from {seconds:g} s on, {waiting} of {len(newest)} waiting"
            )

    def _delay(self, draw: _Decided, floor: float | None) -> tuple[float | None, bool]:
        """How late the labels of a draw came, in seconds (None: not all, or none, did), and whether it waits for one."""
        came = []
        for name, score in draw.drawn:
            first = min((label.received for label in self._read((*draw.batch, name))), default=None)
            if first is not None:
                came.append(first)
            elif floor is None or score > floor:
                return None, True
        return (_seconds_between(draw.decided_at, max(came)) if came else None), False

    # what follows from it

    def _check_thresholds(self, gate: dict[str, Any]) -> None:
        row, settings = self._row, self._settings
        if gate["seed"] != row["seed"]:
            self._fault("its seed is not its gate's")
        alpha = round(settings["alpha"] / settings["max_attempts"], 15)
        if row["alpha"] != alpha:
            self._fault(f"its budget should be {alpha}")
        groups, old, waiting = self._groups()
        if not all(0 <= value <= 1 for group in groups for value in (*group.scores, *group.severities)):
            self._fault("a score or severity that it has read is not in [0, 1]")
            return
        labelled = [group for group in groups if group.id not in waiting]
        sample = self._sample([group for group in groups if group.id in old], alpha)
        for candidate in self._table("candidates"):
            self._check_candidate(candidate, sample, labelled)
        self._verifier.counts["calibrations derived again"] += 1

    def _groups(self) -> tuple[list[Group], set[str], set[str]]:
        """Return groups in the order of decisions, ids of those before `older_than`, and of those without all labels."""
        rows: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for one in self._inputs:
            rows.setdefault((one["batch_id"], one["attempt"]), []).append(one)
        self._check_bursts(rows)
        found, old, waiting = [], set(), set()
        for (batch_id, attempt), some in rows.items():
            batch = (self._row["gate"], batch_id, attempt)
            decision = self._runs.decided(batch)
            moment = "" if decision is None else decision.decided_at
            severities = [1.0 if one["severity"] is None else one["severity"] for one in some]
            group = Group(
                f"{batch_id}#{attempt}",
                [one["response_id"] for one in some],
                [one["score"] for one in some],
                severities,
                some[0]["draws"],
                some[0].get("segment") or "",
                self._runs.carried_row(self._settings, batch) or (decision and decision.signals),
                self._is_bad(batch, some, severities),
            )
            if some[0]["spare"]:
                continue
            found.append((moment, group))
            if moment < self._row["older_than"]:
                old.add(group.id)
            if any(one["severity"] is None for one in some):
                waiting.add(group.id)
        found.sort(key=itemgetter(0))
        return [group for _, group in found], old, waiting

    def _check_bursts(self, rows: dict[tuple[str, int], list[dict[str, Any]]]) -> None:
        """Of each burst one batch counts: the first by its gate's draw, of those old enough where there are some."""
        gate, bursts = self._row["gate"], dict[str, list[tuple[bool, float, bool]]]()
        salt = self._verifier.salt(gate)
        for (batch_id, attempt), some in rows.items():
            decision = self._runs.decided((gate, batch_id, attempt))
            young = decision is not None and decision.decided_at >= self._row["older_than"]
            draw = 0.0 if salt is None else uniform_of(salt, "burst", (gate, batch_id, attempt))
            if some[0]["burst"] is not None or some[0]["spare"]:
                bursts.setdefault(some[0]["burst"], []).append((young, draw, some[0]["spare"]))
        for members in bursts.values():
            counts = [one for one in members if not one[2]]
            if len(counts) != 1 or counts[0][:2] != min(members)[:2]:
                self._fault("of a burst of its inputs another batch counts, by its gate's draw")

    def _is_bad(self, batch: Sequence[Any], some: list[dict[str, Any]], severities: list[float]) -> bool:
        """Whether a prompt counts as bad: a severity between 0 and 1 with that chance, by its gate's draw."""
        severity, said = _mean(severities), some[0].get("bad")
        salt, drawn = self._verifier.salt(batch[0]), 0 < severity < 1
        bad = bool(said) if drawn else severity > 0
        if drawn and salt is not None:
            bad = uniform_of(salt, "severity", batch) < severity
        if self._settings["method"] == "full" and any(one.get("bad") is not bad for one in some):
            self._fault(
                f"{self._called(some[0])}: its prompt is {'bad' if bad else 'good'}, by its severity {severity:g}"
            )
        return bad

    def _sample(self, groups: list[Group], alpha: float) -> Sample:
        settings = self._settings
        parameters = {name: settings.get(name) for name in ("eta", "draws", "delta", "rho")}
        parameters |= _parsed(settings.get("parameters")) or {}
        drawn = 1
        if settings["unit"] == "response":
            drawn = min([settings["audit_draws"], *(group.draws for group in groups)])
        history = _parsed(self._row.get("history")) or {}
        return Sample(
            groups=groups,
            alpha=alpha,
            seed=str(self._row["seed"]),
            parameters=parameters,
            drawn=drawn,
            floor=settings.get("label_floor"),
            cuts=history.get("cuts", ()),
        )

    def _check_candidate(self, said: dict[str, Any], sample: Sample, labelled: list[Group]) -> None:
        settings, decides, notes = self._settings, said["decides"], self._verifier.notes
        method = settings["method"] if decides else said["method"]
        if method == "full":
            method = "mean"
            sample = sample._replace(floor=_ship_above(settings) or None)
        if method not in METHODS:
            notes[f"method {method}"] = f"what runs say by the method {method} is not derived again"
            return
        own: dict[str, Any] = {"width": settings.get("width"), "fallback": settings.get("segment_fallback")}
        own["shape"] = settings["shape"] if decides or settings["shape"] == "rank" else "indicator"
        own["segment_by"] = settings.get("segment_by") if decides else None
        if not decides and method == "clt":
            sample = sample._replace(floor=None)
        suffix = _parsed(self._row.get("suffix")) if decides else None
        newest = suffix["calibrated_on"] if suffix else 0
        if (
            decides
            and settings["method"] == "full"
            and self._check_signals(said, sample.groups, labelled[-newest:] if newest else ())
        ):
            return
        if decides:
            self._runs.compare(self._row["id"], ByScore(sample.groups))
        if newest > 0 and (own["segment_by"] is not None or method == "transductive"):
            notes["suffix tests"] = (
                "thresholds from the newest groups alone are not derived again for segments and transductive rules"
            )
            return
        value, rule = calibrate(sample, method, **own)
        if newest > 0:
            alone = calibrate(sample._replace(groups=labelled[-newest:]), method, **own)
            value, rule = alone if alone[0] > value else (value, rule)
        found = as_cut(value)
        exact = own["shape"] not in ("smooth", "ramp")
        cuts = [said["state"], said["threshold"]], [found["state"], found["lambda"]]
        if not (cuts[0] == cuts[1] if exact else _alike(*cuts, _NEAR)):
            first, second = (f"a cut at {level}" if state == "cut" else state for state, level in cuts)
            self._fault(f"by {said['method']} it says {first}, and its inputs give {second}")
        if not _alike(_PLAIN if said["rule"] is None else _parsed(said["rule"]), rule, _NEAR):
            self._fault(f"by {said['method']} it says another rule than its inputs give")

    def _check_signals(self, said: dict[str, Any], groups: Sequence[Group], newest: Sequence[Group]) -> bool:
        """Compare a rule of all signals with what its prompts give; returns whether that is what they give."""
        settings, prompts = self._settings, [groups, newest]
        found = [fitted(some, settings) for some in prompts]
        if found[0] is None:
            return False
        fits = [one for one in found if one is not None]
        parameters = {
            "signals": sha256(settings["signals"].encode()),
            "ridge": RIDGE,
            "segment_by": settings["segment_by"],
            "pooled": settings["segment_fallback"] == "pooled",
            "ship_above": _ship_above(settings),
            "least_alike": int(_parsed(settings["parameters"])["least_alike"]),
            "fits": fits,
        }
        rule = {"kind": "full", "parameters": parameters, "curve": None}
        if (said["state"], said["threshold"]) != ("full", None) or not _alike(
            _parsed(said["rule"]), rule, _NEAR
        ):
            self._fault(f"by {said['method']} it says another rule than its inputs give")
        compared = [some[-one["groups"] :] for some, one in zip(prompts, fits, strict=False)]
        self._runs.compare(self._row["id"], BySignals(rule, compared))
        return True


def severities(labels: Sequence[_Label], basis: str | None) -> list[float | None]:
    """Return what labels of one response come to: of each labeller the latest, averaged, or the highest of all.

    Of labels of one labeller that are equally late, and of two logs, nobody outside the database can tell which was
    stored later: then there are several.
    """
    if not labels:
        return [None]
    if basis == "highest":
        return [max(one.severity for one in labels)]
    latest: dict[str, list[_Label]] = {}
    for one in labels:
        held = latest.get(one.labeller)
        if held is None or one.effective > held[0].effective:
            latest[one.labeller] = [one]
        elif one.effective == held[0].effective:
            latest[one.labeller] = [
                *(other for other in held if other.chain != one.chain or other.leaf > one.leaf), one
            ]  # fmt: skip
    choices = itertools.product(*latest.values())
    return [math.fsum(one.severity for one in some) / len(some) for some in itertools.islice(choices, 64)]


def _alike(one: Any, other: Any, near: float = 0.0) -> bool:
    """Whether two values are the same JSON, 1 and 1.0 taken for one, and numbers that `near` parts of them apart."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other or abs(one - other) <= near * max(1.0, abs(one))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_alike(*pair, near) for pair in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[name], other[name], near) for name in one)
    return bool(one == other)


def moment_of(said: Any) -> str | None:
    """A moment of an event, which leaves out digits that are zero, as leaves have it; None where it is none."""
    found = (
        re.fullmatch(r"([0-9T:-]{19})(?:\.([0-9]{1,6}))?(?:Z|\+00:00)", said)
        if isinstance(said, str)
        else None
    )
    return None if found is None else f"{found[1]}.{found[2] or '':0<6}+00:00"


# -- scores: from texts and embeddings ------------------------------------------------------------------------------

TOLERANCE = 1e-5
"""How far a score may lie from the recorded one: another processor's embeddings differ in the last digits."""


def _step(value: float) -> float:
    return round(value * 1e6) / 1e6


def gram_energy(blank: Sequence[bool], rows: Sequence[Sequence[float]]) -> list[float]:
    """Return the root of the mean squared cosine of each of n >= 2 answers with the others; a blank one has none.

    `rows` : n embeddings of any positive length; those of blank answers are not looked at.
    """
    every = range(len(rows))
    written = [i for i in every if not blank[i]]
    unit: dict[int, list[float]] = {}
    for i in written:
        length = math.sqrt(math.fsum(x * x for x in rows[i]))
        if not 0 < length < math.inf:
            raise ValueError("an embedding has no direction")
        unit[i] = [x / length for x in rows[i]]
    squares = [[0.0] * len(rows) for _ in every]
    for i, j in itertools.combinations(written, 2):
        if len(unit[i]) != len(unit[j]):
            raise ValueError("embeddings of one batch differ in their dimension")
        squares[i][j] = squares[j][i] = sum(map(mul, unit[i], unit[j])) ** 2
    return [_step(min(1.0, math.sqrt(math.fsum(row) / (len(rows) - 1)))) for row in squares]


def read_embeddings(lines: Iterable[bytes]) -> dict[tuple[str, str], array[float]]:
    """Read embeddings by their encoder and the SHA-256 of their text. Raises `ValueError` or `KeyError` for what is none."""
    found: dict[tuple[str, str], array[float]] = {}
    for line in lines:
        value = strict_json(line)
        row = value["embedding"]
        if isinstance(row, str):
            numbers = array("f", base64.b64decode(row, validate=True))
            if sys.byteorder == "big":
                numbers.byteswap()
        else:
            numbers = array("d", row)
        found[value["encoder"], value["text"]] = numbers
    return found


class _ScoresAgain:
    """Derives the scores of Gram energy again, from a bundle's texts and embeddings from elsewhere."""

    def __init__(self, embeddings: dict[tuple[str, str], array[float]], verifier: Verifier) -> None:
        self._embeddings = embeddings
        self._verifier = verifier
        self._later: dict[tuple[Any, ...], dict[str, dict[str, float]]] = {}

    def control(self, lines: Iterable[dict[str, Any]]) -> None:
        """Read scores that adopted candidates gave to batches which were decided before."""
        for line in lines:
            row = line["row"]
            if line["kind"] == "carried_scores" and row is not None:
                of = self._later.setdefault(tuple(row["of"]), {})
                of.setdefault(row["scorer"], {})[row["response_id"]] = row["score"]

    def outcomes(self, lines: Iterable[dict[str, Any]]) -> None:
        """Score every decision of which there are texts."""
        for line in lines:
            facts = line.get("facts")
            if line["kind"] != "decision" or facts is None:
                continue
            self._decision(line, facts, place_of(line))

    def _decision(self, line: dict[str, Any], facts: dict[str, Any], place: str) -> None:
        recorded = [response[1] for response in facts["responses"]]
        ids = [response[0] for response in facts["responses"]]
        later = self._later.get(tuple(facts["batch"]), {})
        if not recorded or None in recorded or (facts["scorer"] == "judge" and not later):
            return
        if facts["embedding_source"] != "encoder":
            self._left_out("they came with their events, or from embeddings that did")
            return
        content = line.get("content")
        if content is None or None in content["texts"]:
            self._left_out("their texts are erased, or not in the bundle")
            return
        texts = content["texts"]
        blank = [is_blank(text) for text in texts]
        rows: list[Sequence[float]] = []
        for text, empty in zip(texts, blank, strict=True):
            row = () if empty else self._embeddings.get((facts["encoder"], sha256(text.encode())))
            if row is None:
                self._left_out("the file has no embedding of one of their texts by the gate's encoder")
                return
            rows.append(row)
        derived = gram_energy(blank, rows)
        self._compare(facts["scorer"], derived, recorded, ids, place)
        for scorer, scores in sorted(later.items()):
            if scores.keys() == set(ids):
                kept = [scores[one] for one in ids]
                self._compare(scorer, derived, kept, ids, f"carried_scores {scorer}, {place}")
            else:
                self._verifier.fault(
                    "score", place, f"{scorer} has scored some of its responses later, and not all"
                )

    def _compare(
        self, scorer: str, derived: Sequence[float], recorded: Sequence[float], ids: Sequence[str], place: str
    ) -> None:
        if scorer != "gram":
            self._left_out(f"this file does not compute the scorer {scorer}")
            return
        self._verifier.counts["batches scored again"] += 1
        for name, score, again in zip(ids, recorded, derived, strict=True):
            if not abs(score - again) <= TOLERANCE:
                self._verifier.fault(
                    "score",
                    place,
                    f"the score of response {name!r} is {score}, and from its text follows {again:.6f}",
                )
                return

    def _left_out(self, why: str) -> None:
        self._verifier.counts["batches not scored again"] += 1
        self._verifier.notes[f"scores: {why}"] = f"scores of some batches: {why}"


def check_scores(bundle: Bundle, verifier: Verifier, embeddings: Iterable[bytes]) -> None:
    """Derive the scores of a bundle again that follow from its texts and these embeddings; differences become faults.

    Parameters
    ----------
    embeddings : one JSON a line, with `encoder` (name@hash), `text` (SHA-256) and `embedding`: numbers, or the base64 of them as
        little-endian float32. The record has no embeddings: whoever gives them vouches for them.
    """
    again = _ScoresAgain(read_embeddings(embeddings), verifier)
    again.control(bundle.values("control.jsonl"))
    again.outcomes(bundle.values("outcomes.jsonl"))


# -- bundles -----------------------------------------------------------------------------------------------------


MOST_LINE = 2**28
"""Bytes of one line: more than the longest run has inputs for, and little enough to be read."""
MOST_PACKED = 100
"""How many times its size a .zip may have when it is unpacked. Records have ten."""


def _at_most(data: bytes, what: str) -> bytes:
    if len(data) > MOST_LINE:
        raise ValueError(f"{what} is longer than {MOST_LINE} bytes")
    return data


def _refuse_bomb(packed: zipfile.ZipFile, size: int) -> None:
    """Refuse a .zip that unpacks to far more than a record would: nobody could read to its end. No more than it says comes out."""
    unpacked = 0
    for entry in packed.infolist():
        if entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{entry.filename} is neither stored nor deflated")
        unpacked += entry.file_size
    if unpacked > MOST_PACKED * size + MOST_LINE:
        raise ValueError(f"it has {size} bytes and would be {unpacked} unpacked, which no record is")


class Bundle:
    """The files of a bundle. Raises `ValueError` when it is none.

    Attributes
    ----------
    manifest : as it was read.
    digest : SHA-256 of its bytes, which names everything in the bundle.
    at : what is being read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._zip = None
        self.at = "the directory of the .zip"
        if path.is_file():
            self._zip = zipfile.ZipFile(path)
            _refuse_bomb(self._zip, path.stat().st_size)
        self._malformed: dict[str, dict[int, dict[str, Any] | None]] = {}
        self.at = "manifest.json"
        with self._open("manifest.json") as file:
            manifest = _at_most(file.read(MOST_LINE + 1), "manifest.json")
        self.digest = sha256(manifest)
        self.manifest = strict_json(manifest)
        if wrong := wrong_form("manifest", self.manifest):
            raise ValueError(f"{wrong[0][1:] or 'it'} {wrong[1]}")

    def _open(self, name: str) -> io.BufferedReader:
        if self._zip is None:
            return (self._path / name).open("rb")
        packed: Any = self._zip.open(name)
        return io.BufferedReader(packed)

    def _chunks(self, name: str) -> Iterator[bytes]:
        with self._open(name) as file:
            while line := file.readline(MOST_LINE + 1):
                yield _at_most(line, "a line")

    def damaged(self) -> list[str]:
        """Names of files that are not those that the manifest describes."""
        found = []
        for name in FILES:
            self.at, digest, lines = name, hashlib.sha256(), 0
            for chunk in self._chunks(name):
                digest.update(chunk)
                lines += 1
            if self.manifest["files"][name] != {"sha256": digest.hexdigest(), "lines": lines}:
                found.append(name)
        return found

    def lines(self, name: str) -> Iterator[bytes]:
        """Iterate over the lines of a file, without their ends."""
        for number, line in enumerate(self._chunks(name), 1):
            self.at = f"{name}, line {number}"
            yield line.rstrip(b"\n")

    def values(
        self, name: str, fault: Callable[[str, str, str], None] = lambda *_: None
    ) -> Iterator[dict[str, Any]]:
        """Iterate over the values of a file, as `formed` does; their forms are compared the first time."""
        known, found = self._malformed.get(name), {}
        for number, line in enumerate(self.lines(name), 1):
            value = canonical_value(line)
            if known is None:
                kept, wrong = form_of(name.removesuffix(".jsonl"), value)
                if wrong:
                    found[number] = kept
                if kept is None:
                    fault("form", f"{name}, line {number}", wrong)
            else:
                kept = known.get(number, value)
            if kept is not None:
                yield kept
        self._malformed.setdefault(name, found)


# -- the figures of a report ---------------------------------------------------------------------------------------

REPORT = "streamer.report.v1"
SIGNATURE = "report.dsse.json"
"""The signature over the files of a report, beside them: an in-toto statement in a DSSE envelope."""
IN_TOTO = "application/vnd.in-toto+json"
_RATES = 12
"""How many rates the boundary of an interval mixes."""


class _Rows:
    """Which rows of the logs a figure was read from.

    Attributes
    ----------
    count : how many.
    newest : number of the checkpoint by which all of those that a checkpoint covers were covered; None: none is.
    after : how many no checkpoint covers.
    """

    def __init__(self) -> None:
        self.count, self.after = 0, 0
        self.newest: int | None = None
        self._digest = hashlib.sha256()

    def add(self, leaf: str, checkpoint: int | None) -> None:
        self.count += 1
        self._digest.update(bytes.fromhex(leaf))
        if checkpoint is None:
            self.after += 1
        else:
            self.newest = max(self.newest or 0, checkpoint)

    def digest(self) -> bytes:
        return self._digest.digest()


class _Gate:
    """What the figures of one gate are made of."""

    def __init__(self) -> None:
        self.rows: dict[str, _Rows] = {}
        self.outcomes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.modes: Counter[str] = Counter()
        self.over_time: dict[str, Counter[str]] = {}
        self.first, self.last = "", ""
        self.served = self.later_attempts = 0
        self.drawn = self.extra = 0
        self.shipped_undrawable = 0
        # Of each first attempt: when (in microseconds), and its logged probability.
        self.moments, self.probabilities = array("q"), array("d")
        self.shares = array("d")  # of each, how much of it shipped
        # Of those that were drawn: where it stands there, its name, the kind of its labels, and what of it shipped.
        self.drawn_ones: list[tuple[int, str, str, tuple[tuple[str, bool], ...]]] = []
        self.revisions: list[dict[str, Any]] = []
        self.policies: dict[int, dict[str, Any]] = {}
        self.policy_events: list[dict[str, Any]] = []
        self.runs: dict[int, dict[str, Any]] = {}
        self.rejections: list[dict[str, Any]] = []
        self.alerts: dict[int, dict[str, Any]] = {}
        self.labels: Counter[str] = Counter()
        self.labellers: Counter[str] = Counter()
        self.desk: list[dict[str, Any]] = []
        # Of batches with an outcome at the desk: when they were decided, the kind of their labels, and which answers were drawn.
        self.at_desk: dict[tuple[str, int], tuple[str, str, frozenset[str]] | None] = {}


Response = tuple[str, str, int, str]
"""Gate, batch id, attempt and id."""

Label = tuple[str, str, float, bool]
"""When it counts from, when it was recorded, its severity, and whether it came with a signature."""


class Figures:
    """Derives the figures of an evidence report from the rows of a bundle, while they pass to the verifier.

    docs/evidence.md says what each of them is.

    Parameters
    ----------
    since, until : the period, `since` <= moment < `until`; in the form of moments in leaves.
    gates : only these; None: every gate.
    """

    def __init__(self, since: str, until: str, gates: Iterable[str] | None = None) -> None:
        self.since, self.until = since, until
        self._only = None if gates is None else set(gates)
        self._gates: dict[str, _Gate] = {}
        self._rows: dict[str, _Rows] = {}
        self._every, self._signed_heads = _Rows(), _Rows()
        self._covering: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
        self._checkpoints: list[tuple[int, str]] = []
        self._covered = 0
        self._kinds: Counter[str] = Counter()
        self._codes: Counter[str] = Counter()
        self._gaps: list[dict[str, Any]] = []
        self._erasures: list[dict[str, Any]] = []
        self._accounts: list[dict[str, Any]] = []
        self._keys: list[dict[str, Any]] = []
        self._revocations: list[dict[str, Any]] = []
        self._first, self._last = "", ""
        self._leaves = 0
        self._labels: dict[Response, dict[str, dict[str, Label]]] = {}
        self._told: set[int] = set()
        self._signed: set[int] = set()
        self._by_number: dict[int, tuple[Response, str, str]] = {}

    # reading

    def heads(self, lines: Iterable[bytes], checkpoints: Iterable[bytes]) -> None:
        """Read the bundle's log of heads up to its checkpoint; to be called first."""
        known = 0
        with suppress(ValueError, KeyError, TypeError):  # the verifier names it
            known = max(
                (read_note(canonical_value(one)["checkpoint"]).size for one in checkpoints), default=0
            )
        for number, line in enumerate(itertools.islice(lines, known), 1):
            try:
                facts = canonical_value(line)
            except ValueError:
                facts = {}
            if wrong_form("heads", facts):
                continue  # the verifier names it
            sizes = _sizes(facts)
            self._checkpoints.append((number, facts["at"]))
            self._signed_heads.add(sha256(b"\x00" + line), number)
            self._covered = max(self._covered, sum(sizes.values()))
            for chain, size in sizes.items():
                if (covering := self._covering.setdefault(chain, [])) and covering[-1][0] == size:
                    continue
                covering.append((size, number))
        for covering in self._covering.values():
            covering.sort()

    def _checkpoint(self, chain: tuple[Any, ...], index: int) -> int | None:
        covering = self._covering.get(chain, [])
        at = bisect_left(covering, (index + 1,))
        return covering[at][1] if at < len(covering) else None

    def _count(self, gate: str | None, name: str, chain: tuple[Any, ...], line: dict[str, Any]) -> None:
        rows = self._rows if gate is None else self._gates[gate].rows
        rows.setdefault(name, _Rows()).add(line["leaf"], self._checkpoint(chain, line["index"]))

    def _inside(self, moment: str | None) -> bool:
        return moment is not None and self.since <= moment < self.until

    def _gate(self, name: str) -> _Gate | None:
        if self._only is not None and name not in self._only:
            return None
        return self._gates.setdefault(name, _Gate())

    def control(self, lines: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Pass the control log on and read it."""
        for line in lines:
            yield line
            self._leaf((), line)
            row = line.get("row")
            if row is not None:
                self._of_control(line, line["kind"], row)

    def _leaf(self, chain: tuple[Any, ...], line: dict[str, Any]) -> None:
        self._leaves += 1
        self._every.add(line["leaf"], self._checkpoint(chain, line["index"]))
        moment = line["recorded_at"]
        self._first = min(self._first or moment, moment)
        self._last = max(self._last, moment)

    def _of_control(self, line: dict[str, Any], kind: str, row: dict[str, Any]) -> None:
        if kind in ("erasures", "accounts", "api_keys", "api_key_revocations", "data_gaps"):
            kept, at = {
                "erasures": (self._erasures, row.get("at")),
                "accounts": (self._accounts, row.get("created_at")),
                "api_keys": (self._keys, row.get("created_at")),
                "api_key_revocations": (self._revocations, row.get("revoked_at")),
                "data_gaps": (self._gaps, line["recorded_at"]),
            }[kind]
            if self._inside(at):
                kept.append(row)
                self._count(None, kind, (), line)
            return
        if kind == "alert_acknowledgements":
            for one, gate in self._gates.items():
                if row["alert"] in gate.alerts:
                    gate.alerts[row["alert"]]["acknowledged"] = row
                    self._count(one, "alerts", (), line)
            return
        if kind == "label_signatures":
            self._signed.add(row["label"])
            return
        if kind == "proposal_rejections":
            for one, gate in self._gates.items():
                if row["run"] in gate.runs and self._inside(row["rejected_at"]):
                    gate.rejections.append(row)
                    self._count(one, "runs", (), line)
            return
        name = row["name"] if kind == "gates" else row.get("gate")
        found = None if name is None else self._gate(name)
        if found is None:
            return
        if kind == "gate_revisions":
            found.revisions.append(row)
            if self._inside(row["created_at"]):
                self._count(name, "settings", (), line)
        elif kind == "policies":
            found.policies[row["version"]] = row
        elif kind == "policy_events" and self._inside(row["at"]):
            found.policy_events.append(row)
            self._count(name, "policies", (), line)
        elif kind == "calibration_runs":
            found.runs[row["id"]] = row
            if self._inside(row["started_at"]):
                self._count(name, "runs", (), line)
        elif kind == "alerts" and self._inside(row["raised_at"]):
            found.alerts[row["id"]] = {"alert": row, "acknowledged": None}
            self._count(name, "alerts", (), line)
        elif kind == "desk_outcomes" and self._inside(row["at"]):
            found.desk.append(row)
            found.at_desk[row["batch_id"], row["attempt"]] = None
            self._count(name, "desk", (), line)
        elif kind == "label_revisions":
            response: Response = (row["gate"], row["batch_id"], row["attempt"], row["response_id"])
            self._by_number[row["id"]] = (response, row["kind"], row["labeller"])
            self._label(response, row, line, "file", (), signed=False)

    def outcomes(self, lines: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Pass the partitions' logs on and read them."""
        for line in lines:
            yield line
            facts, chain = line.get("facts"), tuple(line["source"][:3])
            self._leaf(chain, line)
            if facts is None:
                continue
            if line["kind"] == "label":
                gate, batch_id, attempt, response_id = facts["response"]
                self._label(
                    (gate, batch_id, attempt, response_id),
                    facts,
                    line,
                    "topic",
                    chain,
                    signed="signature" in facts,
                )
                continue
            if line["kind"] == "decision":
                self._decision(line, facts, chain)
            elif self._inside(line["recorded_at"]):
                self._kinds[line["kind"]] += 1
                self._codes[facts.get("code", "")] += line["kind"] == "dead_letter"
                self._count(None, "refused", chain, line)

    def _label(
        self,
        response: Response,
        facts: dict[str, Any],
        line: dict[str, Any],
        source: str,
        chain: tuple[Any, ...],
        *,
        signed: bool,
    ) -> None:
        found = self._gate(response[0])
        if found is None:
            return
        effective = min(facts["labelled_at"], facts["received_at"])
        given = self._labels.setdefault(response, {}).setdefault(facts["kind"], {})
        label = (effective, line["recorded_at"], float(facts["severity"]), signed)
        labeller = facts["labeller"]
        if labeller not in given or given[labeller][:2] <= label[:2]:
            given[labeller] = label
        self._count(response[0], "every label", chain, line)
        told = (
            response,
            *(facts[name] for name in ("kind", "labeller", "labelled_at", "received_at", "severity")),
        )
        if hash(told) in self._told:
            return  # the same label, sent once more: it has a leaf of its own and no revision
        self._told.add(hash(told))
        if self._inside(facts["received_at"]):
            found.labels[source] += 1
            found.labellers[labeller] += 1
            self._count(response[0], "labels", chain, line)

    def _decision(self, line: dict[str, Any], facts: dict[str, Any], chain: tuple[Any, ...]) -> None:
        gate, batch_id, attempt = facts["batch"]
        found, moment = self._gate(gate), facts["decided_at"]
        if found is not None and (batch_id, attempt) in found.at_desk:
            drawn = frozenset(one[0] for one in facts["responses"] if one[4] and not facts.get("extra_draw"))
            kind = self._kind_of(found, facts["policy"])
            found.at_desk[batch_id, attempt] = (moment, kind, drawn)
            self._count(gate, "decisions at the desk", chain, line)
        if found is None or not self._inside(moment):
            return
        self._count(gate, "decisions", chain, line)
        found.outcomes[facts["outcome"]] += 1
        found.reasons[facts["reason"]] += 1
        found.modes[facts["mode"]] += 1
        found.over_time.setdefault(moment[:10], Counter())[facts["outcome"]] += 1
        found.first, found.last = min(found.first or moment, moment), max(found.last, moment)
        shipped = any(one[3] == "ship" for one in facts["responses"])
        found.served += shipped
        found.drawn += facts["sampled"]
        found.extra += facts.get("extra_draw", False)
        if attempt != 1:
            found.later_attempts += 1
            return
        probability = facts["sampling_probability"]
        if not probability > 0:
            found.shipped_undrawable += shipped
        if facts["sampled"]:
            self._count(gate, "drawn", chain, line)
            marks = tuple((one[0], one[3] == "ship") for one in facts["responses"] if one[4])
            kind = self._kind_of(found, facts["policy"])
            found.drawn_ones.append((len(found.moments), batch_id, kind, marks))
        elapsed = datetime.fromisoformat(moment) - _EPOCH
        found.moments.append(elapsed // timedelta(microseconds=1))
        found.probabilities.append(probability)
        if facts["unit"] == "response" and facts["responses"]:
            ships = [one[3] == "ship" for one in facts["responses"]]
            found.shares.append(sum(ships) / len(ships))
        else:
            found.shares.append(float(shipped))

    @staticmethod
    def _kind_of(gate: _Gate, version: int) -> str:
        """Which kind of labels counts for a decision under a policy."""
        policy = gate.policies.get(version)
        revision = None if policy is None else policy["gate_revision"]
        return next((one["severity_kind"] for one in gate.revisions if one["revision"] == revision), "")

    # the figures

    def result(self, bundle: Bundle, verifier: Verifier) -> dict[str, dict[str, Any]]:
        """Return every figure by its name: `value`, how it was `derived`, and the rows it was read from.

        `rows` is their number, `sha256` of their leaves in the order of the bundle, `checkpoint` the number of the one by which
        they were covered, and `after` how many no checkpoint covers.
        """
        for number in self._signed & self._by_number.keys():
            response, kind, labeller = self._by_number[number]
            given = self._labels[response][kind]
            given[labeller] = (*given[labeller][:3], True)
        figures: dict[str, dict[str, Any]] = {}
        period = f"since {self.since} and before {self.until}"

        def put(name: str, value: Any, derived: str, *rows: _Rows | None) -> None:
            read = [one for one in rows if one is not None]
            digest = hashlib.sha256(b"".join(one.digest() for one in read))
            figures[name] = {
                "value": value,
                "derived": derived,
                "rows": sum(one.count for one in read),
                "sha256": digest.hexdigest() if read else None,
                "checkpoint": max((one.newest for one in read if one.newest is not None), default=None),
                "after": sum(one.after for one in read),
            }  # fmt: skip

        self._about_the_record(put, bundle, verifier, period)
        for name, gate in sorted(self._gates.items()):
            self._about_a_gate(put, name, gate, period)
        return figures

    def _about_the_record(
        self, put: Callable[..., None], bundle: Bundle, verifier: Verifier, period: str
    ) -> None:
        head = bundle.manifest["head"]
        days = (datetime.fromisoformat(self._last) - datetime.fromisoformat(self._first)) / timedelta(days=1) if self._first else 0  # fmt: skip
        put(
            "record",
            {
                "record_id": head["record_id"],
                "leaves": self._leaves,
                "partitions": len(head["partitions"]),
                "first_recorded": self._first or None,
                "last_recorded": self._last or None,
                "days": round(days, 3),
            },
            "control.jsonl and outcomes.jsonl: number of lines, least and greatest recorded_at; whatever the period",
            self._every,
        )
        made = sorted(self._checkpoints)
        moments = [datetime.fromisoformat(at) for _, at in made]
        gaps = [(b - a).total_seconds() for a, b in itertools.pairwise(moments)]
        put(
            "checkpoints",
            {
                "number": len(made),
                "newest": made[-1][0] if made else None,
                "newest_made_at": made[-1][1] if made else None,
                "leaves_covered": min(self._covered, self._leaves),
                "leaves_after": max(0, self._leaves - self._covered),
                "longest_seconds_between": round(max(gaps, default=0.0), 3),
            },
            "heads.jsonl: sizes of the newest under the checkpoint against the sizes of the logs; whatever the period",
            self._signed_heads,
        )
        put(
            "verification",
            {"faults": verifier.counts["faults"]} | {name: verifier.counts[name] for name in VERIFIED},
            "verify_bundle.py on this bundle; whatever the period",
            self._every,
            self._signed_heads,
        )
        put(
            "unchecked",
            sorted(verifier.notes.values()),
            "verify_bundle.py on this bundle: what it could not check",
            self._every,
            self._signed_heads,
        )
        put(
            "refused",
            {
                "dead_letters": self._kinds["dead_letter"],
                "by_code": dict(sorted(self._codes.items())),
                "conflicts": self._kinds["conflict"],
                "duplicates": self._kinds["duplicate"],
                "lost": [
                    [one["topic"], one["partition"], one["from_offset"], one["to_offset"]]
                    for one in self._gaps
                ],
            },
            f"outcomes.jsonl, kind dead_letter, conflict or duplicate, control.jsonl, kind data_gaps; recorded_at {period}",
            self._rows.get("refused"),
            self._rows.get("data_gaps"),
        )
        put(
            "erasures",
            _only(self._erasures, "at", "by", "reason", "before", "sooner"),
            f"control.jsonl, kind erasures; at {period}",
            self._rows.get("erasures"),
        )
        put(
            "people",
            {
                "accounts": _only(self._accounts, "name", "revision", "roles", "created_at", "created_by", "reason"),
                "api_keys": _only(self._keys, "id", "gates", "may", "created_at", "created_by"),
                "revoked": _only(self._revocations, "id", "revoked_at", "revoked_by", "revoked_reason"),
            },
            f"control.jsonl, kind accounts, api_keys and api_key_revocations; created_at or revoked_at {period}",
            *(self._rows.get(name) for name in ("accounts", "api_keys", "api_key_revocations")),
        )  # fmt: skip

    def _about_a_gate(self, put: Callable[..., None], name: str, gate: _Gate, period: str) -> None:
        decided = f"outcomes.jsonl, kind decision, facts.batch[0] = {name}, facts.decided_at {period}"
        total = sum(gate.outcomes.values())
        put(
            f"decisions/{name}",
            {
                "total": total,
                "by_outcome": dict(sorted(gate.outcomes.items())),
                "by_reason": dict(sorted(gate.reasons.items())),
                "by_mode": dict(sorted(gate.modes.items())),
                "served": gate.served,
                "share_served": gate.served / total if total else None,
                "later_attempts": gate.later_attempts,
                "first": gate.first or None,
                "last": gate.last or None,
            },
            f"{decided}: count by facts.outcome, reason and mode; served: with a response that shipped",
            gate.rows.get("decisions"),
        )
        step, counts = _by_day_or_month(gate.over_time)
        put(
            f"over_time/{name}",
            {"step": step, "counts": [[at, dict(sorted(one.items()))] for at, one in sorted(counts.items())]},
            f"{decided}: count by {step} (UTC) and facts.outcome; by month where there are more than {MOST_DAYS} days",
            gate.rows.get("decisions"),
        )
        newest: dict[str, Any] = gate.revisions[-1] if gate.revisions else {}
        asked = ("revision", "unit", "scorer", "encoder", "severity_kind", "alpha", "method", "mode", "hold_action", "audit_probability", "on_alarm", "two_people", "keep_texts")  # fmt: skip
        changed = [one for one in gate.revisions if self._inside(one["created_at"])]
        put(
            f"settings/{name}",
            {
                "newest": {one: newest.get(one) for one in asked},
                "changes": _only(changed, "revision", "created_at", "created_by", "reason"),
            },
            f"control.jsonl, kind gate_revisions, row.gate = {name}: the last one; changes: created_at {period}",
            gate.rows.get("settings"),
        )  # fmt: skip
        put(
            f"policies/{name}",
            [self._policy(gate, one) for one in gate.policy_events],
            f"control.jsonl, kind policy_events, row.gate = {name}, at {period}, with the row of kind policies of that version",
            gate.rows.get("policies"),
        )
        runs = [one for one in gate.runs.values() if self._inside(one["started_at"])]
        put(
            f"runs/{name}",
            {
                "total": len(runs),
                "by_outcome": dict(sorted(Counter(str(one.get("outcome")) for one in runs).items())),
                "requested_by": dict(sorted(Counter(one["requested_by"] for one in runs).items())),
                "rejected": _only(gate.rejections, "run", "rejected_at", "rejected_by", "reason"),
            },
            f"control.jsonl, kind calibration_runs, row.gate = {name}, started_at {period}; proposal_rejections of its runs",
            gate.rows.get("runs"),
        )  # fmt: skip
        put(f"alerts/{name}", self._alerts(gate),
            f"control.jsonl, kind alerts, row.gate = {name}, raised_at {period}, and alert_acknowledgements of them",
            gate.rows.get("alerts"))  # fmt: skip
        put(
            f"labels/{name}",
            {
                "total": sum(gate.labels.values()),
                "by_source": dict(sorted(gate.labels.items())),
                "by_labeller": dict(sorted(gate.labellers.items())),
            },
            f"outcomes.jsonl, kind label, and control.jsonl, kind label_revisions, of the gate {name}, received_at {period}",
            gate.rows.get("labels"),
        )
        self._about_the_desk(put, name, gate, newest, period)
        self._about_the_sample(put, name, gate, newest, decided, total)

    def _about_the_desk(
        self, put: Callable[..., None], name: str, gate: _Gate, settings: dict[str, Any], period: str
    ) -> None:
        """What people made of answers that the gate held for them."""
        waits, severities = [], []
        drawn = as_they_were = 0
        for row in gate.desk:
            decided = gate.at_desk[row["batch_id"], row["attempt"]]
            if decided is None:  # the verifier names it
                continue
            moment, kind, asked = decided
            if row["reason"] == "person":
                waits.append(_seconds_between(moment, row["at"]))
            if row["action"] != "released" or row["edited"]:
                continue
            as_they_were += 1
            if row["response_id"] in asked:
                drawn += 1
                response: Response = (name, row["batch_id"], row["attempt"], row["response_id"])
                severities.append(self._severity(response, kind, settings))
        known = [one for one in severities if one is not None]
        waits.sort()
        put(
            f"desk/{name}",
            {
                "deadline_seconds": settings.get("desk_deadline_seconds"),
                "outcomes": len(gate.desk),
                "released": sum(one["action"] == "released" for one in gate.desk),
                "edited": sum(bool(one["edited"]) for one in gate.desk),
                "rejected": sum(one["action"] == "rejected" and one["reason"] == "person" for one in gate.desk),
                "deadline_passed": sum(one["reason"] != "person" for one in gate.desk),
                "by": dict(sorted(Counter(one["by"] for one in gate.desk if one["by"] is not None).items())),
                "median_seconds": _median(waits),
                "longest_seconds": round(waits[-1], 3) if waits else None,
                "released_as_they_were": as_they_were,
                "drawn": drawn,
                "labelled": len(known),
                "severity": math.fsum(known) / len(known) if known else None,
            },
            f"control.jsonl, kind desk_outcomes, row.gate = {name}, at {period}: count by action, reason and edited; seconds from"
            " facts.decided_at of the batch to at, where reason is person; drawn: released unedited, and the gate's own audit draw"
            " took that answer; severity: mean of those of them that have a label which the gate reads, whenever",
            gate.rows.get("desk"),
            gate.rows.get("decisions at the desk"),
            gate.rows.get("every label") if drawn else None,
        )  # fmt: skip

    def _about_the_sample(
        self,
        put: Callable[..., None],
        name: str,
        gate: _Gate,
        settings: dict[str, Any],
        decided: str,
        total: int,
    ) -> None:
        wanted, labelled = 0, 0
        losses: dict[int, tuple[float, float]] = {}
        missing = known = 0
        for at, batch_id, kind, marks in gate.drawn_ones:
            least = most = 0.0
            complete = True
            for response_id, ships in marks:
                severity = self._severity((name, batch_id, 1, response_id), kind, settings)
                wanted += 1
                labelled += severity is not None
                if ships:
                    least += 0.0 if severity is None else severity
                    most += 1.0 if severity is None else severity
                    complete = complete and severity is not None
            missing += not complete
            known += complete
            losses[at] = (least / len(marks), most / len(marks)) if marks else (0.0, 0.0)
        put(
            f"draws/{name}",
            {
                "drawn": gate.drawn,
                "share_drawn": gate.drawn / total if total else None,
                "by_a_raised_rate": gate.extra,
                "responses_drawn": wanted,
                "responses_labelled": labelled,
                "share_labelled": labelled / wanted if wanted else None,
            },
            f"{decided}, facts.sampled; responses: drawn ones of first attempts; labelled: by a label that the gate reads, whenever",
            gate.rows.get("drawn"),
            gate.rows.get("every label"),
        )
        # A first attempt has its share of what a prompt may cost; some methods bound another risk.
        share = settings["alpha"] / (settings.get("max_attempts") or 1) if settings else None
        promised = "selective" if settings.get("method") in _SELECTIVE else "exposure"
        delta = settings.get("monitor_delta") or 0.1  # gates of the first versions had no such setting
        sums = None
        if share is not None and len(gate.moments) and not gate.shipped_undrawable:
            sums = exposure_sums(_in_order(gate, losses), alpha=share, delta=delta)
        served = math.fsum(gate.shares)
        for risk, over, what in (
            ("exposure", float(len(gate.moments)), "mean severity of what shipped, held ones 0,"),
            (
                "selective",
                served,
                "mean severity among what shipped: the sum behind exposure over what shipped,",
            ),
        ):
            value: dict[str, Any] = {
                "decisions": len(gate.moments),
                "known": known,
                "missing": missing,
                "promised": promised,
                "budget": share if promised == risk else None,
            }
            bounds = (
                None if sums is None or not over else tuple(min(1.0, max(0.0, one / over)) for one in sums)
            )
            value |= dict(zip(("estimate", "lower", "upper"), bounds or (None, None, None), strict=True))
            value["confidence"] = 1 - delta if bounds else None
            value["shipped_without_a_chance_to_be_drawn"] = gate.shipped_undrawable
            if risk == "selective":
                value["shipped"] = served
            put(
                f"{risk}/{name}",
                value,
                f"{decided}, facts.batch[2] = 1: {what} from the drawn ones and their labels; docs/evidence.md has the formula",
                gate.rows.get("decisions"),
                gate.rows.get("every label"),
            )

    def _severity(self, response: Response, kind: str, settings: dict[str, Any]) -> float | None:
        """Return the mean of what the labellers whom the gate reads said last; None: nobody has."""
        named = _parsed(settings.get("labellers"))
        given = [
            severity
            for labeller, (_, _, severity, signed) in self._labels.get(response, {}).get(kind, {}).items()
            if (named is None or labeller in named) and (signed or not settings.get("signed_labels"))
        ]
        return math.fsum(given) / len(given) if given else None

    @staticmethod
    def _policy(gate: _Gate, event: dict[str, Any]) -> dict[str, Any]:
        policy = gate.policies.get(event["version"], {})
        run = gate.runs.get(policy.get("calibration_run") or 0, {})
        return {
            **{name: event[name] for name in ("version", "event", "at", "by", "reason")},
            **{name: policy.get(name) for name in ("state", "threshold", "guarantee", "calibration_run")},
            "signed": policy.get("signature") is not None,
            "run_requested_by": run.get("requested_by"),
        }

    @staticmethod
    def _alerts(gate: _Gate) -> dict[str, Any]:
        waits, each = [], []
        for one in gate.alerts.values():
            row, seen = one["alert"], one["acknowledged"]
            wait = None
            if seen is not None:
                wait = _seconds_between(row["raised_at"], seen["at"])
                waits.append(wait)
            each.append(
                {
                    **{name: row[name] for name in ("kind", "level", "raised_at", "message")},
                    "acknowledged_at": None if seen is None else seen["at"],
                    "acknowledged_by": None if seen is None else seen["by"],
                    "seconds": None if wait is None else round(wait, 3),
                }
            )
        waits.sort()
        return {
            "raised": len(each),
            "by_level": dict(sorted(Counter(one["level"] for one in each).items())),
            "acknowledged": len(waits),
            "median_seconds": _median(waits),
            "longest_seconds": round(waits[-1], 3) if waits else None,
            "each": each,
        }  # fmt: skip


def _only(rows: Iterable[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    """Of each row these columns."""
    return [{name: row[name] for name in names} for row in rows]


def _seconds_between(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def _median(rising: Sequence[float]) -> float | None:
    if not rising:
        return None
    return round((rising[(len(rising) - 1) // 2] + rising[len(rising) // 2]) / 2, 3)


MOST_DAYS = 62
_SELECTIVE = ("selective", "selective-mean")
"""Methods that bound the error rate among shipped answers, and not exposure."""


def _by_day_or_month(days: dict[str, Counter[str]]) -> tuple[str, dict[str, Counter[str]]]:
    if not days or (datetime.fromisoformat(max(days)) - datetime.fromisoformat(min(days))).days <= MOST_DAYS:
        return "day", days
    months: dict[str, Counter[str]] = {}
    for day, counts in days.items():
        months.setdefault(day[:7], Counter()).update(counts)
    return "month", months


VERIFIED = (
    "outcomes", "control entries", "checkpoints", "decisions", "actions derived again", "draws", "draws not verified", "texts",
    "texts not given or erased", "decisions under the newest policy", "runs whose sample is complete",
    "calibrations derived again", "inputs of runs",
)  # fmt: skip
"""What of the verifier's counts is a figure."""


def _in_order(gate: _Gate, losses: dict[int, tuple[float, float]]) -> Iterator[tuple[float, float, float]]:
    """Yield of each first attempt, in the order of decision: probability, and 1/probability times the least and most loss."""
    order = sorted(range(len(gate.moments)), key=lambda at: (gate.moments[at], at))
    for at in order:
        probability = gate.probabilities[at]
        least, most = losses.get(at, (0.0, 0.0))
        weight = 1 / probability if at in losses else 0.0
        yield probability, weight * least, weight * most


def exposure_sums(
    decisions: Iterable[tuple[float, float, float]], *, alpha: float, delta: float
) -> tuple[float, float, float]:
    """Bound the summed exposure of decisions in their order: the estimate, and two bounds that hold with 1 - delta.

    As `streamer risk` does: a sum of bounded martingale differences against a mixture of exponential supermartingales, in
    which a missing label counts 0 below and 1 above. Over the number of decisions it is exposure, over how much of them
    shipped it is the error rate among shipped answers; both intervals fail together or not at all.

    Parameters
    ----------
    decisions : each with the logged probability of its draw, and its least and its most loss over that probability, 0 if it
        was not drawn.
    alpha : the budget of a first attempt, from which the running mean begins.
    """
    least, most = [0.0, 0.0], [0.0, 0.0]  # sum and variation of each
    smallest, count = 1.0, 0
    for count, (probability, low, high) in enumerate(decisions, 1):
        smallest = min(smallest, probability or 1.0)
        for sums, value in ((least, low), (most, high)):
            centre = min(max((alpha + sums[0]) / count, 0.0), 1.0)
            sums[0] += value
            sums[1] += (value - centre) ** 2
    target = smallest * math.sqrt(2 * math.log(2 / delta) / (1000 * alpha))
    below = least[0] - _deviation(1.0, target, least[1], delta / 2)
    above = most[0] + _deviation(1 / smallest, target, most[1], delta / 2)
    return most[0], below, above


def _deviation(scale: float, target: float, variation: float, error: float) -> float:
    """Return how far the sum may stray at any time: D with sum_k w_k exp(u_k D - psi(u_k) V) = 1/error."""
    rates = [0.95 * 2.0**-k / scale for k in range(_RATES)]
    weights = [3.0 ** -abs(math.log2(rate / target)) for rate in rates]
    total, goal = math.fsum(weights), -math.log(error)
    rests = [
        math.log(weight / total) - variation * (-math.log1p(-scale * rate) - scale * rate) / scale**2
        for rate, weight in zip(rates, weights, strict=True)
    ]

    def reaches(deviation: float) -> bool:
        exponents = [rest + rate * deviation for rate, rest in zip(rates, rests, strict=True)]
        peak = max(exponents)
        return peak + math.log(math.fsum(math.exp(one - peak) for one in exponents)) >= goal

    low, high = 0.0, min((goal - rest) / rate for rate, rest in zip(rates, rests, strict=True))
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high


def same_figure(a: Any, b: Any) -> bool:
    """Report whether two values say the same; numbers that are no whole ones to a billionth."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, float) or isinstance(b, float):
        return isinstance(a, int | float) and isinstance(b, int | float) and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)  # fmt: skip
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_figure(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same_figure, a, b))
    return type(a) is type(b) and bool(a == b)


def verified_with(keys: Sequence[bytes], outside: Sequence[bytes] | None) -> dict[str, Any]:
    """Say by which public keys, and against which checkpoints from elsewhere, a bundle was verified."""
    return {
        "keys": sorted(sha256(key) for key in keys),
        "checkpoints": None if outside is None else {"lines": len(outside), "sha256": sha256(b"\n".join(outside))},
    }  # fmt: skip


def figures_for(report: dict[str, Any]) -> Figures:
    """Return what derives the figures that a report has. Raises `ValueError` or `KeyError` when it is none."""
    if report.get("format") != REPORT:
        raise ValueError(f"it is not of the form {REPORT}")
    period = report["period"]
    return Figures(period["since"], period["until"], report["gates"])


def compare_report(
    report: dict[str, Any], bundle: Bundle, derived: dict[str, dict[str, Any]], given: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Name each figure of a report that does not follow from the bundle: which it is, and what is wrong."""
    if report["bundle"] != bundle.digest:
        yield "bundle", f"it was made from another bundle, whose manifest has the SHA-256 {report['bundle']}"
    if report["made_at"] != bundle.manifest["made_at"]:
        yield "made_at", f"the bundle was made at {bundle.manifest['made_at']}"
    said = report["figures"]
    for name in sorted(said.keys() - derived.keys()):
        yield name, "no such figure follows from the bundle"
    for name, one in sorted(derived.items()):
        if name not in said:
            yield name, "it is missing"
            continue
        for part in sorted(one.keys() | said[name].keys()):
            if name == "unchecked" and part == "value" and report["verified_with"] != given:
                continue
            if part not in said[name] or part not in one:
                yield name, f"its {part} is missing or unknown"
            elif not same_figure(said[name][part], one[part]):
                shown = canonical_json(one[part]).decode()
                yield (
                    name,
                    f"its {part} differs: from the bundle follows {shown if len(shown) <= 300 else shown[:300] + ' ...'}",
                )
    for clause in report["clauses"]:
        for name in clause["shows"]:
            if name not in derived:
                yield (
                    f"clause {clause['clause']}",
                    f"it refers to the figure {name}, which does not follow from the bundle",
                )


def verify_bundle(
    bundle: Bundle,
    keys: Sequence[bytes],
    outside: Iterable[bytes] | None,
    receipts: Iterable[bytes] | None = None,
    figures: Figures | None = None,
    verify_signature: Callable[[bytes, bytes, bytes], bool] = ed25519_verify,
    policy_keys: Sequence[bytes] = (),
    label_keys: Mapping[str, tuple[str, bytes]] | None = None,
) -> Verifier:
    """Verify everything that a bundle holds, against checkpoints and receipts from elsewhere where they are given.

    `figures` reads along. With `policy_keys` the signatures of policies are verified, with `label_keys` those of the labels that
    runs of gates with signed labels have read.
    """
    verifier = Verifier(keys, verify_signature=verify_signature)
    verifier.left_out = bundle.manifest.get("left_out") or {}
    if receipts is not None:
        verifier.receipts(receipts, origin="the file", may_be_younger=True)
    for name in bundle.damaged():
        verifier.faults.append(
            {"check": "bundle", "place": name, "detail": "it is not the file that was exported"}
        )
    if outside is not None:
        verifier.checkpoints(outside, origin="the file", until=bundle.manifest["made_at"])
    else:
        verifier.notes["outside"] = (
            "checkpoints were taken from the bundle itself: its maker could have left out the newest ones"
        )
    verifier.checkpoints(bundle.lines("checkpoints.jsonl"), origin="the bundle", complete=True)
    verifier.log_of_heads(bundle.lines("heads.jsonl"), bundle.manifest["head"]["record_id"])
    head, runs = bundle.manifest["head"], Runs(label_keys, verify_signature)
    control, outcomes = (
        runs.control(bundle.values("control.jsonl", verifier.fault), head["record_id"]),
        runs.outcomes(bundle.values("outcomes.jsonl", verifier.fault)),
    )
    if figures is not None:
        figures.heads(bundle.lines("heads.jsonl"), bundle.lines("checkpoints.jsonl"))
        control, outcomes = figures.control(control), figures.outcomes(outcomes)
    verifier.control(head, control)
    if policy_keys:
        verifier.policy_signatures(policy_keys)
    verifier.outcomes(outcomes)
    verifier.unchained(bundle.values("unchained.jsonl", verifier.fault))
    verifier.heads(head)
    runs.check(bundle.values("control.jsonl"), verifier)
    runs.check_budgets(bundle.values("outcomes.jsonl"), verifier)
    return verifier


def check_report(
    report: dict[str, Any], figures: Figures, bundle: Bundle, verifier: Verifier, given: dict[str, Any]
) -> None:
    """Compare a report with the bundle that was just verified while `figures` read along; differences become faults."""
    bundle.at = "the report"
    derived = figures.result(bundle, verifier)
    differing = list(compare_report(report, bundle, derived, given))
    verifier.counts["figures derived again"] += len(derived)
    verifier.notes["words"] = (
        "what the report says beside its figures, and its HTML and PDF files: `streamer audit report --bundle` makes them again"
    )
    if report["verified_with"] != given:
        verifier.notes["report"] = (
            "the list of what was not checked, in the report: it was made with other keys or checkpoints than were given now"
        )
    for name, detail in differing:
        verifier.fault("report", f"report, {name}", detail)


def dsse_signed(kind: str, payload: bytes) -> bytes:
    """Write what a DSSE signature covers: type and payload, each with its length."""
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind.encode(), len(payload), payload)


def check_signature(report: Path, keys: Sequence[bytes], verifier: Verifier) -> None:
    """Verify the signature beside a report, over each of its files that lies there; a fault where it is not good."""
    known = {sha256(key): key for key in keys}
    try:
        envelope = strict_json(report.with_name(SIGNATURE).read_bytes())
        payload = base64.b64decode(envelope["payload"], validate=True)
        signed = dsse_signed(envelope["payloadType"], payload)
        good = envelope["payloadType"] == IN_TOTO and any(
            ed25519_verify(known.get(one["keyid"], b""), signed, base64.b64decode(one["sig"], validate=True))
            for one in envelope["signatures"]
        )
        digests = {Path(one["name"]).name: one["digest"]["sha256"] for one in strict_json(payload)["subject"]}
    except OSError:
        verifier.fault("report", SIGNATURE, "it is not beside the report, which nobody has signed then")
        return
    except (ValueError, TypeError, LookupError, AttributeError):
        verifier.fault("report", SIGNATURE, "it is no signature of a report")
        return
    if not good:
        verifier.fault("report", SIGNATURE, "no trusted key has signed it")
        return
    for name in sorted({report.name, *digests}):
        file = report.with_name(name or report.name)
        if file.is_file() and sha256(file.read_bytes()) != digests.get(name):
            verifier.fault("report", name, "it is not the file that was signed")
    verifier.counts["report signatures"] += 1


def complete_lines(data: bytes) -> list[bytes]:
    """Split a file of checkpoints; a last line without an end is one that a crash interrupted."""
    return [line for line in data.split(b"\n")[:-1] if line]


def checkpoint_lines(data: bytes) -> list[bytes]:
    """Split a file of checkpoints; a signed note, as a witness gives it, is one."""
    return complete_lines(data) if data.startswith(b"{") or not data.strip() else [data]


def receipt_lines(data: bytes) -> list[bytes]:
    """Split a file of receipts. A last line without an end was interrupted, unless it is whole."""
    lines = data.splitlines()
    if lines and not data.endswith((b"\n", b"\r")):
        try:
            strict_json(lines[-1])
        except ValueError:
            del lines[-1]
    return [line for line in lines if line.strip()]


def printable(text: str) -> str:
    """Escape what could steer the terminal: names in a record come from others."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


FILES_BESIDE = {
    "--public-key": "PEM file with the public keys that may sign checkpoints",
    "--checkpoints": "checkpoints kept outside the database: one JSON a line, or a signed note",
    "--receipts": "receipts of decisions that somebody kept, one JSON a line",
    "--policy-keys": "PEM file with the public keys that may sign policies",
    "--label-keys": "public keys of labellers, each after a line `labeller: NAME`",
    "--report-key": "PEM file with the public keys that may sign the report",
    "--report": "report.json of `streamer audit report`: derive each of its figures again",
    "--embeddings": "embeddings of the answers, one JSON a line, as `streamer audit embed` makes them: derive the scores again",
}
"""The files that an auditor may give besides the bundle."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("bundle", type=Path, help="folder or .zip made by `streamer audit export`")
    for option, said in FILES_BESIDE.items():
        parser.add_argument(option, type=Path, help=said)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args(arguments)
    reading, bundle = asked.public_key, None

    def read(path: Path | None, how: Callable[[Path], Any], otherwise: Any = None) -> Any:
        nonlocal reading
        reading = path
        return otherwise if path is None else how(path)

    try:
        keys = read(asked.public_key, lambda path: read_public_keys(path.read_text("ascii")), [])
        outside = read(asked.checkpoints, lambda path: checkpoint_lines(path.read_bytes()))
        receipts = read(asked.receipts, lambda path: receipt_lines(path.read_bytes()))
        policy_keys = read(asked.policy_keys, lambda path: read_public_keys(path.read_text("ascii")), [])
        label_keys = read(asked.label_keys, lambda path: read_label_keys(path.read_text("utf-8")))
        report_keys = read(asked.report_key, lambda path: read_public_keys(path.read_text("ascii")), [])
        report = read(asked.report, lambda path: strict_json(path.read_bytes()))
        figures = None if report is None else figures_for(report)
        reading = asked.bundle
        bundle = Bundle(asked.bundle)
        verifier = verify_bundle(
            bundle, keys, outside, receipts, figures, policy_keys=policy_keys, label_keys=label_keys
        )
        if report is not None and figures is not None:
            check_report(report, figures, bundle, verifier, verified_with(keys, outside))
            if report_keys:
                check_signature(asked.report, report_keys, verifier)
            else:
                verifier.notes["report key"] = "who signed the report: no --report-key was given"
        if asked.embeddings is not None:
            bundle.at = "the embeddings"
            with asked.embeddings.open("rb") as lines:
                check_scores(bundle, verifier, lines)
    except Exception as error:  # any error that a hostile bundle raises is reported in one line
        place = reading if bundle is None else f"{reading}, {bundle.at}"
        what = isinstance(error, OSError) and error.strerror
        sys.stderr.write(
            printable(f"cannot read {place}: {what or f'{type(error).__name__}: {error}'}") + "\n"
        )
        return 2
    if asked.json:
        report = {
            "faults": verifier.faults,
            "notes": list(verifier.notes.values()),
            "counts": verifier.counts,
        }
        sys.stdout.write(json.dumps(report) + "\n")
    else:
        for fault in verifier.faults:
            sys.stdout.write(printable(f"DOES NOT FIT  {fault['place']}: {fault['detail']}") + "\n")
        for note in verifier.notes.values():
            sys.stdout.write(printable(f"not checked   {note}") + "\n")
        for name, count in sorted(verifier.counts.items()):
            sys.stdout.write(f"{count:>12}  {name}\n")
        sys.stdout.write("Something does not fit.\n" if verifier.faults else "Everything fits.\n")
    return 3 if verifier.faults else 0


if __name__ == "__main__":
    sys.exit(main())
