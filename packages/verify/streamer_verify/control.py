"""The control log: what it says of gates, policies, runs and people, and what decisions are checked against."""

from __future__ import annotations

import base64
import hmac
import json
import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from streamer_verify.calibrators import asked_above
from streamer_verify.checkpoints import Chain, Checkpoints
from streamer_verify.logs import Log
from streamer_verify.signatures import ed25519_verify, policy_statement, signed_text
from streamer_verify.values import (
    CLOCKS_APART,
    CONTROL,
    DESK_NAMESPACE,
    RECALIBRATOR,
    SIGNED_IN,
    canonical_json,
    log_of,
    parsed,
    row_name,
    sha256,
)
from streamer_verify.waits import Served, Waits, calibrated_for_another

SIX_MONTHS = timedelta(days=184)

WRITTEN_AT = {
    "accounts": "created_at", "alert_acknowledgements": "at", "api_key_revocations": "revoked_at", "api_keys": "created_at",
    "calibration_runs": "finished_at", "candidate_policies": "at", "data_gaps": "recorded_at", "dead_letter_replays": "at",
    "desk_outcomes": "at", "encoders": "first_seen_at", "erasures": "at", "gate_revisions": "created_at", "gates": "created_at",
    "judgements": "judged_at",
    "label_revisions": "received_at", "label_signatures": "received_at", "policies": "valid_from", "policy_events": "at",
    "proposal_rejections": "rejected_at", "restorations": "at", "give_outs": "at",
}  # fmt: skip
"""The column of a control row that says when it was written. An alert is raised before that, and a rate may begin later."""


KEPT_BY = {
    "gates": ("name",), "gate_revisions": ("gate", "revision"), "policies": ("gate", "version"), "calibration_runs": ("id",),
    "audit_rates": ("id",), "api_keys": ("id",), "api_key_revocations": ("id",), "accounts": ("name", "revision"),
    "proposal_rejections": ("run",), "restorations": ("id",), "give_outs": ("id",),
}  # fmt: skip
"""The key of each row that is kept."""


class Control(Checkpoints):
    """Reads the control log."""

    def __init__(
        self,
        keys: Sequence[bytes],
        verify_signature: Callable[[bytes, bytes, bytes], bool] = ed25519_verify,
        canonical: Callable[[object], bytes] = canonical_json,
    ) -> None:
        super().__init__(keys, verify_signature)
        self._canonical = canonical
        self.record_id = ""
        self._rows: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
        self._salts: dict[str, bytes] = {}
        self._models: dict[str, str] = {}
        self._rules: dict[int, Any] = {}
        self._control_size = 0
        self._control_roots: dict[int, str] = {}  # by size; a leaf may say any index
        self._control_leaf: dict[tuple[str, tuple[Any, ...]], int] = {}
        self._written: dict[str, list[tuple[int, int]]] = {}
        self._lost: dict[Chain, list[tuple[int, int]]] = {}
        self._latest: dict[Chain, str] = {}
        self._back: dict[Chain, tuple[int, timedelta, str]] = {}
        self._bad_bursts: dict[int, set[str]] = {}
        self._bursts_read: dict[tuple[Any, ...], dict[int, tuple[str, str | None]]] = {}
        self._erasable = ""
        self._forgotten: list[tuple[str, str]] = []  # judges' words that are erased
        self._desk: dict[tuple[Any, ...], tuple[dict[str, Any], dict[str, Any], str]] = {}
        self._looser = Waits()
        self._in_force_before: set[int] = set()  # runs

    def control(self, head: dict[str, Any], lines: Iterable[dict[str, Any]]) -> None:
        """Verify the control log and keep what decisions are checked against."""
        self.record_id = head["record_id"]
        self._link_receipts(head)
        log = Log()
        self._mark((), log, "control")
        self._control_roots[0] = log.root()
        for line in lines:
            row, kind = line.get("row"), line["kind"]
            if line["index"] != log.size:
                self.fault("log", f"control, leaf {log.size}", f"it is missing (the next is {line['index']})")
                log = Log(line["index"], whole=False)
            place = f"control, leaf {log.size}, {row_name(kind, row)}"
            if row is None:
                self._not_read(line, place, "the row that was sealed here is gone")
            else:
                entry = {
                    "record": self.record_id, "index": log.size, "kind": kind,
                    "recorded_at": line["recorded_at"], "row": row,
                }  # fmt: skip
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
        base = f"streamer/{self.record_id}"
        known, given = {base}, []
        for (number,), row in self.rows("restorations").items():
            leaf = self._control_leaf["restorations", (number,)]
            said = {name: value for name, value in row.items() if name != "signature"}
            signed = signed_text("restoration", {**said, "record": self.record_id})
            signature = base64.b64decode(row["signature"])
            if self._keys and not any(self.signed(key, signed, signature) for key in self._keys):
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
        policies = sorted(self.rows("policies").items())
        if not known:
            if any(row["signature"] is not None for _, row in policies):
                self.notes["policy keys"] = "signatures of policies: no public key of theirs was given"
            return
        for (gate, version), row in policies:
            place = f"control, leaf {self._control_leaf.get(('policies', (gate, version)), -1)}, policies gate {gate} version {version}"
            key = known.get(row["key_id"] or "")
            if row["signature"] is None or key is None:
                if gate in trusted:
                    how = (
                        "not signed" if row["signature"] is None else "signed with a key that is not trusted"
                    )
                    self.fault("policy", place, f"it is {how}, and a policy before it was")
                else:
                    self.counts["policies before the first that is signed with a trusted key"] += 1
                continue
            settings, named = self.settings(gate, version), self.row("gates", gate)
            signature = base64.b64decode(row["signature"])
            if (
                settings is not None
                and named is not None
                and self.signed(key, policy_statement(row, settings, named, self.record_id), signature)
            ):
                trusted.add(gate)
                self.counts["policy signatures"] += 1
            else:
                self.fault("policy", place, "its signature is not good for what it says")

    def _keep(self, kind: str, row: dict[str, Any], line: dict[str, Any], place: str) -> None:
        if kind in KEPT_BY:
            identity = tuple(row[name] for name in KEPT_BY[kind])
            if identity in self._rows.setdefault(kind, {}):
                self.fault("log", place, "it occurs twice in the log")
            self._rows[kind][identity] = row
            self._control_leaf[kind, identity] = line["index"]
        if kind == "label_revisions":
            self._label(row, row["effective_at"], place)
        elif kind == "erasures":
            self._keep_erasure(row, place)
        elif kind == "desk_outcomes":
            self._keep_desk(row, line, place)
        elif kind == "judgements" and self._words(line, row["content_mac"], place, row["gate"]):
            self._forgotten.append((row["judged_at"], place))
        elif kind == "proposal_rejections":
            self._looser.rejection(row["run"])
        elif kind == "data_gaps":
            self._lost.setdefault(log_of(row), []).append((row["from_offset"], row["to_offset"]))
        elif kind == "gates":
            self._keep_gate(row, line, place)
        elif kind == "gate_revisions":
            self._check_model(row, place)
        elif kind == "calibration_runs":
            self._keep_run(row, line, place)
        elif kind == "policies":
            self._keep_policy(row, line, place)

    def _keep_policy(self, row: dict[str, Any], line: dict[str, Any], place: str) -> None:
        written = self._written.setdefault(row["gate"], [])
        self._looser.policy(row)
        newest = written[-1][1] if written else 0
        if row["version"] != newest + 1:
            self.fault("policy", place, f"versions have no holes, and the one before it is {newest}")
        written.append((line["index"], max(row["version"], newest)))
        run = self.row("calibration_runs", row["calibration_run"])
        if run is not None:
            self._policy_of_run(row, run, place)
        elif row["calibration_run"] is not None:
            self.fault("policy", place, f"there is no run {row['calibration_run']} before it")
        elif row["state"] != "closed":
            self.fault("policy", place, "it ships, and no calibration run found it")

    def _policy_of_run(self, row: dict[str, Any], run: dict[str, Any], place: str) -> None:
        """Compare a policy with its run: what that found, and what for."""
        name = f"run {run['id']}"
        for_now, for_run = (
            self.row("gate_revisions", one["gate"], one["gate_revision"]) for one in (row, run)
        )
        if run["gate"] != row["gate"]:
            self.fault("policy", place, f"{name} is of the gate {run['gate']}")
        elif (row["state"], row["threshold"]) != (run["state"], run["threshold"]):
            self.fault("policy", place, f"it is not what {name} found")
        elif row["guarantee"] != run["guarantee"]:
            self.fault("policy", place, f"its guarantee is not that of {name}")
        elif row["rule"] != self._rules.get(run["id"]):
            self.fault("policy", place, f"its rule is not the one that {name} found")
        elif for_now is None or for_run is None:
            self.fault("policy", place, f"the revision of the gate that it, or {name}, is for is in no log")
        elif changed := calibrated_for_another(for_run, for_now):
            self.fault("policy", place, f"{name} was calibrated for different settings: {', '.join(changed)}")
        elif for_now.get("two_people") and run["id"] not in self._in_force_before:
            by, asked = row["created_by"], run["requested_by"]
            another = by.startswith(SIGNED_IN) and by.removeprefix(SIGNED_IN) != asked.removeprefix(SIGNED_IN)
            if not another and not by == asked == RECALIBRATOR:
                people = f"{asked} asked for {name}, and {by} put it in force"
                self.fault("policy", place, f"its gate demands two people: {people}")
        self._in_force_before.add(run["id"])

    def _keep_run(self, row: dict[str, Any], line: dict[str, Any], place: str) -> None:
        """Compare what a run says of itself with what it has read and found."""
        for part in ("inputs", "candidates"):
            if (sha256(canonical_json(line[part])), len(line[part])) != (
                row[part]["sha256"],
                row[part]["rows"],
            ):
                self.fault("calibration", place, f"its {part} are not those that were recorded")
        inputs, found = (
            [dict(zip(row[part]["columns"], one, strict=True)) for one in line[part]]
            for part in ("inputs", "candidates")
        )
        settings = self.row("gate_revisions", row["gate"], row["gate_revision"])
        given: dict[tuple[str, int], list[tuple[float, float | None]]] = {}
        for one in inputs:
            given.setdefault((one["batch_id"], one["attempt"]), []).append((one["score"], one["severity"]))
        missing = 0  # of what is asked for
        for some in given.values():
            floor = asked_above(settings, some)
            missing += sum(severity is None and score > floor for score, severity in some)
        if (row["groups"], row["items"], row["missing"]) != (len(given), len(inputs), missing):
            what = "groups, items or missing labels"
            self.fault("calibration", place, f"it has read another number of {what} than it says")
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
        if settings is not None:
            heads = {tuple(head[:3]): head[3:] for head in parsed(row["heads"])}
            size, root = heads.pop(CONTROL, (0, ""))
            if not 0 < size <= line["index"] or root != (self._control_roots[size] or root):
                self.fault("calibration", place, "it has read another control log than there is")
            for chain, (size, root) in heads.items():
                if size > self._begins.get(chain, (0,))[0]:
                    said = (root, row["started_at"], place)
                    self._read_at.setdefault(chain, {}).setdefault(size, []).append(said)

    def _check_model(self, row: dict[str, Any], place: str) -> None:
        """Compare the scorer of another package with what is frozen of it, whose hash its name has."""
        scorer, model = row["scorer"], row["model"]
        if "@" in scorer:
            if model is None or scorer != scorer.partition("@")[0] + "@" + sha256(model.encode())[:16]:
                self.fault("policy", place, f"its model is not {scorer}")
            else:
                self._models[scorer] = model
        elif model is not None:
            self.fault("policy", place, f"it has a model, and its scorer is {scorer}")

    def rows(self, kind: str) -> dict[tuple[Any, ...], dict[str, Any]]:
        """Return the rows of a table that were read, by their keys."""
        return self._rows.get(kind, {})

    def row(self, kind: str, *key: Any) -> dict[str, Any] | None:
        """Return a row that was read."""
        return self.rows(kind).get(key)

    def settings(self, gate: str, policy: int) -> dict[str, Any] | None:
        """Return the row of a policy's revision, from those that were read."""
        row = self.row("policies", gate, policy)
        return None if row is None else self.row("gate_revisions", gate, row["gate_revision"])

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

    def _dated(self, kind: str, row: dict[str, Any], recorded_at: Any, place: str) -> None:
        """Compare the moment at which a row says that it was written with the one at which it was sealed: they are one value."""
        said = row.get(WRITTEN_AT.get(kind, ""))
        if said not in (None, recorded_at):
            self.fault(
                "order", place, f"it says that it was written at {said}, and was sealed at {recorded_at}"
            )

    def _clock(self, chain: Chain, name: str, moment: str, place: str) -> None:
        """Remember where a log's time runs backwards by more than clocks differ."""
        latest = self._latest.get(chain, "")
        if moment >= latest:
            self._latest[chain] = moment
            return
        step = datetime.fromisoformat(latest) - datetime.fromisoformat(moment)
        if step > CLOCKS_APART:
            count, longest, first = self._back.get(chain, (0, step, place))
            self._back[chain] = count + 1, max(step, longest), first

    def _label(self, label: dict[str, Any], effective: Any, place: str) -> None:
        if effective != min(label["labelled_at"], label["received_at"]):
            self.fault("label", place, "it does not count from the earlier of labelled and received")

    def is_sealed(self, content: dict[str, Any], value: Any, seal: str) -> bool:
        """Whether a value is what was sealed under the salt of its content."""
        salt = bytes.fromhex(content["salt"])
        return hmac.digest(salt, self._canonical(value), "sha256").hex() == seal

    def _words(self, line: dict[str, Any], seal: str, place: str, gate: str) -> bool:
        """Compare a judge's words with their seal; returns whether they are erased."""
        content = line.get("content")
        if content is not None:
            self.counts["judgements"] += 1
            if not self.is_sealed(content, content["exchanges"], seal):
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
            late = "nobody was waited for until its deadline" if in_time else "its deadline had passed"
            self.fault("desk", place, late)
        if "missing" in line:
            self.fault("seal", place, "the text that was released is gone, and was not erased")
        content = line.get("content")
        if content is not None and not self.is_sealed(content, [content["text"]], row["text_mac"]):
            self.fault("seal", place, "the text that was released was changed")
        self._desk[batch] = (row, line, place)
