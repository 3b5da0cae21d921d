"""What the manifest and each line of a bundle must look like, and what is wrong with one that does not."""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from itertools import count
from typing import Any, cast

from streamer_verify.settings import DECIDED, FORM
from streamer_verify.values import strict_json

_FORMS = """
nothing:
names = text*
batch = [text;text;count]
ends = [text;text;count;count;hash]*
given_up = [text;count]*
given_out = [text;text;count;count;count;count;hash]*
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
 {text}, files files, segment? text
heads: record hex, index count, at time, control size, partitions head*, gates committed*
checkpoints: checkpoint text, schema? =streamer.checkpoints.v1, made_at? made
receipted = [text;text;count;count;hash;hash]
receipt = [receipted;hash?]
unchained: kind text, subject text
control.leaf: index count, kind text, recorded_at time, leaf hash, root hash
control.gates: name text, seed seed, audit_salt hash, created_at time
control.gates+: audit_salt? hex
control.gate_revisions: gate text, revision count, SETTINGS, created_at time, created_by text, reason text
control.encoders: id text, revision text, weight_hash text, dimension count, first_seen_at time
control.data_gaps: log_id text, topic text, partition count, from_offset count, to_offset count,
 epoch count, recorded_at time
control.label_revisions: id count, gate text, batch_id text, attempt count, response_id text, kind
 text, labeller text, severity share, raw_severity number?, labelled_at time, received_at time,
 effective_at time, source text, remark text?, severities numbers?
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
 reason person|deadline_passed, response_id text?, claims json:names?, edited bool, text_mac hash?,
 by text?, remark text, until time, at time
control.desk_outcomes+: content? released, erased_at? time, missing? text
control.dead_letter_replays: id count, dead_letter count, at time, by text
control.restorations: id count, at time, by text, reason text, origin text, kept count, given_up
 json:given_up, signature base64
control.give_outs: id count, at time, by text, reason text, through text, file text, sha256 hash,
 bytes count, heads count, logs json:given_out
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
outcomes.decision: control [count;hash], batch batch, number count, created_at time?, content_mac hash, action hash,
 responses [text;share?;number?;ship|abstain|regenerate|escalate;bool]*, uniforms? share?*,
 not_read? cut|unread|twin?*, judged? judged*, DECIDED
outcomes.decision+: content? texts, erased_at? time, action? message,
 judged? judgement*, given_out? count, batch? batch
outcomes.duplicate: control [count;hash], batch batch
outcomes.conflict: control [count;hash], batch batch, code text, timestamp_ms whole, content_mac
 hash
outcomes.conflict+: content? refused, erased_at? time
outcomes.dead_letter: control [count;hash], code text, timestamp_ms whole, content_mac hash
outcomes.dead_letter+: content? refused, erased_at? time
outcomes.label: control [count;hash], response [text;text;count;text], kind text, labeller text,
 severity share, severities? numbers, raw_severity number?, labelled_at time, received_at time, signature? text, key_id?
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
    "hex": {"type": "string", "pattern": "^(?:[0-9a-f][0-9a-f])*$"},
    "base64": {
        "type": "string",
        "contentEncoding": "base64",
        "pattern": f"^({_64}{{4}})*({_64}[AQgw]==|{_64}{{2}}[AEIMQUYcgkosw048]=)?$",
    },
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
    forms = (
        _FORMS.strip()
        .replace("SETTINGS", " ".join(FORM.split()))
        .replace("DECIDED", " ".join(DECIDED.split()))
    )
    for line in forms.replace("\n ", " ").split("\n"):
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
    "string": ("a text", "str"), "integer": ("a whole number", "int"), "number": ("a number", "int float"),
    "boolean": ("true or false", "bool"), "object": ("an object", "dict"), "array": ("a list", "list"),
    "null": ("null", "none"),
}  # fmt: skip
"""What types of JSON are called, and what Python reads them as."""

Wrong = tuple[str, str] | None
"""Where in a value something is not of its form, and what; None: nothing."""


def checker(schema: dict[str, Any]) -> Callable[[Any], Wrong]:
    """Return what compares a value with a schema, in the part of JSON Schema that `SCHEMAS` use.

    It is compiled: a call for each part of each line of a record would take most of the time of a verification. Stricter than
    the standard in one thing: a whole number has no point and no exponent.
    """
    source = _Source()
    source.test(schema, "value", "", 1)
    exec("\n".join(["def check(value):", *source.lines, " return None"]), source.known)  # noqa: S102
    return cast(Callable[[Any], Wrong], source.known["check"])


class _Source:
    """Lines of Python that compare a variable with a schema, and the values that they name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._numbers = count()
        self.known: dict[str, Any] = {"none": type(None), "is_moment": _is_moment, "is_base64": _is_base64}

    def name(self, value: Any) -> str:
        """Name a value."""
        self.known[f"k{len(self.known)}"] = value
        return f"k{len(self.known) - 1}"

    def test(self, schema: dict[str, Any], v: str, at: str, depth: int) -> None:
        """Add the tests of the variable `v`, which stands at the place `at` of the whole, an f-string."""

        def wrong_if(test: str, what: str, where: str = at) -> None:
            self.lines.append(f"{' ' * depth}if {test}: return f{where!r}, {what!r}")

        def wrong_by(call: str) -> None:
            self.lines.append(f"{' ' * depth}if wrong := {call}: return f{at!r} + wrong[0], wrong[1]")

        types = schema.get("type", [])
        types = [types] if isinstance(types, str) else types
        if "enum" in schema or "const" in schema:
            words = schema.get("enum", [schema.get("const")])
            no_text = f"type({v}) is not str" + (f" and {v} is not None" if None in words else "")
            wrong_if(f"({no_text}) or {v} not in {self.name(set(words))}", f"is none of {words}")
        if types:
            classes = " ".join(_SAID[one][1] for one in types).split()
            said = " or ".join(_SAID[one][0] for one in types)
            wrong_if(" and ".join(f"type({v}) is not {one}" for one in classes), f"is not {said}")
        first, nullable = len(self.lines), "null" in types
        depth += nullable
        least, most = (
            schema.get(f"{one}imum", schema.get(f"exclusive{one.title()}imum")) for one in ("min", "max")
        )
        if least is not None:
            above, below = ("<" if f"exclusive{one}imum" in schema else "<=" for one in ("Min", "Max"))
            wrong_if(f"not {least!r} {above} {v} {below} {most!r}", f"is not between {least} and {most}")
        if "contentEncoding" in schema:
            wrong_if(f"not is_base64({v})", "is not of its form")
        elif "pattern" in schema:
            wrong_if(f"not {self.name(re.compile(schema['pattern']).fullmatch)}({v})", "is not of its form")
        if "format" in schema:
            wrong_if(f"not is_moment({v})", "is no moment")
        if "contentSchema" in schema:
            wrong_by(f"{self.name(_text_checker(checker(schema['contentSchema'])))}({v})")
        parts = schema.get("prefixItems", ())
        if parts:
            wrong_if(f"len({v}) != {len(parts)}", f"has not {len(parts)} parts")
        for place, one in enumerate(parts):
            self._member(one, f"{v}[{place}]", f"{at}[{place}]", depth)
        if "items" in schema:
            if "minItems" in schema:
                wrong_if(f"len({v}) < {schema['minItems']}", f"has fewer than {schema['minItems']} parts")
            self._each(schema["items"], f"enumerate({v})", at + "[{%s}]", depth)
        if schema.get("properties") or "additionalProperties" in schema:
            self._members(schema, v, at, depth, wrong_if)
        if "if" in schema:
            holds, yes, no = (self.name(checker(schema[one])) for one in ("if", "then", "else"))
            wrong_by(f"({no} if {holds}({v}) else {yes})({v})")
        if "anyOf" in schema:
            ways = [f"{self.name(checker(one))}({v})" for one in schema["anyOf"]]
            wrong_if(" and ".join(ways), "has none of its forms")
        if nullable and len(self.lines) > first:
            self.lines.insert(first, f"{' ' * (depth - 1)}if {v} is not None:")

    def _members(
        self, schema: dict[str, Any], v: str, at: str, depth: int, wrong_if: Callable[[str, str, str], None]
    ) -> None:
        members, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        needed = schema.get("required", ())
        if needed:
            keys = self.name(dict.fromkeys(needed).keys())
            wrong_if(
                f"not {keys} <= {v}.keys()", "is missing", f"{at}.{{next(k for k in {keys} if k not in {v})}}"
            )
        if not more:
            keys = self.name(members.keys())
            unknown = f"{at}.{{next(k for k in {v} if k not in {keys})}}"
            wrong_if(f"len({v}) > {len(needed)} and not {v}.keys() <= {keys}", "is unknown", unknown)
        for name, one in members.items():
            first = len(self.lines)
            self._member(one, f"{v}[{name!r}]", f"{at}.{name}", depth + (name not in needed))
            if name not in needed and len(self.lines) > first:
                self.lines.insert(first, f"{' ' * depth}if {name!r} in {v}:")
        if isinstance(more, dict):
            self._each(more, f"{v}.items()", at + ".{%s}", depth)

    def _member(self, schema: dict[str, Any], value: str, at: str, depth: int) -> None:
        first, v = len(self.lines), f"v{next(self._numbers)}"
        self.test(schema, v, at, depth)
        if len(self.lines) > first:
            self.lines.insert(first, f"{' ' * depth}{v} = {value}")

    def _each(self, schema: dict[str, Any], pairs: str, at: str, depth: int) -> None:
        first, number = len(self.lines), next(self._numbers)
        v, key = f"v{number}", f"i{number}"
        self.test(schema, v, at % key, depth + 1)
        if len(self.lines) > first:
            self.lines.insert(first, f"{' ' * depth}for {key}, {v} in {pairs}:")


def _is_moment(value: str) -> bool:
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _is_base64(value: str) -> bool:
    try:
        return b2a_base64(a2b_base64(value), newline=False) == value.encode()
    except ValueError:
        return False


def _text_checker(inner: Callable[[Any], Wrong]) -> Callable[[Any], Wrong]:
    def check(value: str) -> Wrong:
        try:
            return inner(strict_json(value.encode()))
        except ValueError as error:
            return "", f"is no JSON ({error})"

    return check


@lru_cache
def _form(name: str) -> Callable[[Any], Wrong] | None:
    return checker(SCHEMAS[name]) if name in SCHEMAS else None


def wrong_form(name: str, value: Any) -> Wrong:
    """Say what of a manifest (`manifest`), a checkpoint or a line of a file (`control`, `outcomes`, ...) is not of its form."""
    if name in ("control", "outcomes"):
        name = f"{name}.{value['kind']}" if isinstance(value.get("kind"), str) else ""
    form = _form(name)
    wrong = (".kind", "is unknown") if form is None else form(value)
    return _uneven(value) if wrong is None and name == "outcomes.decision" else wrong


def _uneven(line: dict[str, Any]) -> Wrong:
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
    for line in lines:
        kept, wrong = form_of(name, line)
        if kept is None:
            place = [*map(str, line.get("source") or ()), "leaf", str(line.get("index"))]
            fault("form", f"{name}, {' '.join(place)[:200]}", wrong)
        else:
            yield kept
