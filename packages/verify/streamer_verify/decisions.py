"""Each decision: its seals, action, draw and event, by the policy and the settings that it was made under."""

from __future__ import annotations

import hashlib
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from streamer_verify.actions import (
    WHITE,
    Derived,
    action_id_of,
    decided_without_trust,
    derive_action,
    has_scores,
    is_blank,
    is_late,
    is_overdue,
    judged_text,
    keyed_uniform,
    segment_of,
    uniform_of,
    unread,
)
from streamer_verify.all_signals import RULES, never_enough
from streamer_verify.claims import scores_of
from streamer_verify.control import Control
from streamer_verify.signatures import ed25519_verify
from streamer_verify.values import (
    PLAIN,
    WARNING,
    base64_as_hex,
    canonical_json,
    from_base64,
    moment_of,
    parsed,
    same_json,
    sha256,
    strict_json,
    written_json,
)


class Decision(NamedTuple):
    """A decision on record, with the policy and the settings that it was made under."""

    line: dict[str, Any]
    facts: dict[str, Any]
    policy: dict[str, Any]
    settings: dict[str, Any]
    place: str

    @property
    def scored(self) -> bool:
        """Whether its answers have scores."""
        return has_scores(self.facts)

    @property
    def texts(self) -> list[str] | None:
        """The texts of its answers; None: erased, left out, or never kept."""
        content = self.line.get("content")
        return None if content is None or None in content["texts"] else content["texts"]

    @property
    def kept(self) -> bool:
        """Whether its gate kept texts and metadata."""
        return bool(self.settings["keep_texts"])

    @property
    def metadata(self) -> dict[str, Any] | None:
        """What its batch came with; None: erased, or never kept."""
        return (self.line.get("content") or {}).get("metadata") if self.kept else None

    @property
    def claims(self) -> dict[str, Any] | None:
        """The responses whose claims were decided, and where each stands; None: no texts."""
        metadata = self.metadata if self.facts["unit"] == "claim" else None
        return (metadata or {}).get("streamer.claims")

    def burst(self, key: str) -> str | None:
        """What names its burst, the empty text where it is the only one of it; None: that is erased, or was left out."""
        if self.metadata is None:
            return None
        if key == "prompt":
            prompt = unicodedata.normalize("NFKC", self.line["content"]["prompt"] or "")
            return " ".join(prompt.lower().split())
        return segment_of(self.metadata.get(key))


def is_closing(policy: dict[str, Any]) -> bool:
    """Whether somebody closed the gate by it: no calibration found it, and nothing ships by it."""
    return policy["state"] == "closed" and policy["calibration_run"] is None and policy["rule"] is None


class Decisions(Control):
    """Reads decisions."""

    def __init__(
        self,
        keys: Sequence[bytes],
        *,
        verify_signature: Callable[[bytes, bytes, bytes], bool] = ed25519_verify,
        derive: Callable[..., Derived | None] = derive_action,
        canonical: Callable[[object], bytes] = canonical_json,
        parse: Callable[[bytes], Any] = strict_json,
        write: Callable[[object], bytes] = written_json,
    ) -> None:
        super().__init__(keys, verify_signature, canonical)
        self._derive = derive
        self._parse, self._write = parse, write
        self._early: Counter[str] = Counter()
        self._rule_of_policy: dict[tuple[str, int], Any] = {}
        self._burst_names: dict[tuple[int, str], str] = {}
        self._waits: list[datetime] = []
        self._came: set[tuple[Any, ...]] = set()  # of what had an outcome at the desk
        self._later: dict[str, Any] = {}  # of a decision, for `_once`
        self._decided: set[bytes] = set()  # short digests of batches: a long record has many

    def _seal_of_batch(self, line: dict[str, Any], facts: dict[str, Any], place: str) -> bytes:
        """Compare a batch and its action with their seals; returns the published event."""
        content, action = line.get("content"), line.get("action")
        if content is None:
            self.counts["texts not given or erased"] += 1
            self._erased(line, facts["decided_at"], place, facts["batch"][0])
        else:
            sealed = [content[name] for name in ("content_hash", "prompt", "references", "metadata", "texts")]
            self.counts["texts"] += 1
            if not self.is_sealed(content, sealed, facts["content_mac"]):
                self.fault("seal", place, "the texts, references, metadata or content hash were changed")
        if action is None:
            return b""
        digest = self._canonical([action["topic"], base64_as_hex(action["key"]), action["headers"]])
        value = from_base64(action["value"])
        if sha256(digest + (b"" if value is None else b"\x01" + value)) != facts["action"]:
            self.fault("action", place, "the published action, its key or its headers were changed")
        return value or b""

    def _judged(self, decision: Decision) -> None:
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
                number = f"the number that the score of response {name!r} is made of"
                self.fault("score", place, f"{number} is not its judge's mark")

    def _at_desk(self, decision: Decision, said: Any) -> None:
        """Compare a decision with what became of it at the desk, and until when its event says that it waits."""
        facts = decision.facts
        row, of_row, where = self._desk.get(tuple(facts["batch"]), (None, {}, ""))
        seconds = decision.settings["desk_deadline_seconds"]
        until = None
        waits = facts["outcome"] == "escalate" or (facts["outcome"], facts["unit"]) == ("mixed", "claim")
        if waits and facts["mode"] == "enforce" and seconds is not None:
            until = datetime.fromisoformat(facts["decided_at"]) + timedelta(seconds=seconds)
        due = None if until is None else until.isoformat(timespec="microseconds")
        if said is not None and (due is None or moment_of(said) != due):
            self.fault(
                "desk", decision.place, "its action says another deadline at the desk than its gate has"
            )
        if row is None:
            if until is not None:
                self._later["waits"] = until
            return
        if until is None:
            self.fault("desk", where, "the batch never waited for a person")
            return
        if row["until"] != due:
            self.fault("desk", where, "its deadline is not that of the batch")
        if facts["control"][0] > of_row["index"]:
            self.fault("order", where, "it stands in the control log before its batch was decided")
        if row["action"] == "released":
            self._released(decision, row, of_row, where)

    def _released(self, decision: Decision, row: dict[str, Any], of_row: dict[str, Any], where: str) -> None:
        names = [response[0] for response in decision.facts["responses"]]
        back = None if row["claims"] is None else self._parse(row["claims"].encode())
        claims = decision.claims or {"responses": []}
        if back is not None or (decision.facts["unit"] == "claim" and decision.scored):
            held = {one[0]: one[3] != "ship" for one in decision.facts["responses"]}
            if not back or not all(map(held.get, back)):
                self.fault("desk", where, "what was put back are not held claims of its answer")
                return
            names = [name for name, _ in claims["responses"][:1]] or [row["response_id"]]
        if row["response_id"] not in names:
            self.fault("desk", where, f"the batch has no answer {row['response_id']}")
            return
        shown, own = of_row.get("content"), decision.line.get("content")
        if shown is None:
            if "missing" not in of_row:  # else that was said
                self._erased(of_row, decision.facts["decided_at"], where, row["gate"])
        elif own is not None:
            if back is None:
                came = own["texts"][names.index(row["response_id"])]
                was = judged_text(decision.settings, came)
            else:
                ships = [one[3] == "ship" or one[0] in back for one in decision.facts["responses"]]
                _, was = shipped(claims, ships, decision.settings["left_out"])
                rests = zip(ships, claims.get("rests_on", ()), strict=False)
                if not all(ships[on] for out, every in rests for on in every if out):
                    self.fault("desk", where, "a claim was put back without one it rests on")
            same = was == shown["text"]
            if same == row["edited"] and not decision.settings["judged"].startswith("call@"):
                wrong = "it says that a person edited it" if same else "the answer is not the one it says"
                self.fault("desk", where, wrong)

    def _end_of_desk(self) -> None:
        """Say what became of nothing that was decided, and what should have had an outcome by now."""
        if self._begins:
            return
        for batch, (_, _, where) in self._desk.items():
            if batch not in self._came:
                self.fault("desk", where, "no decision about its batch is on record")
        late = [one for one in self._waits if one.isoformat() < max(self._latest.values(), default="")]
        if late:
            self.notes["desk"] = (
                f"{len(late)} batches have no outcome though their deadline at the desk has passed, the first at"
                f" {min(late).isoformat()}: a worker or the service rejects them as soon as one runs"
            )

    def _decision(self, line: dict[str, Any], facts: dict[str, Any], place: str) -> None:
        published = self._seal_of_batch(line, facts, place)
        batch = self._canonical(facts["batch"])
        self._later["batch"] = hashlib.sha256(batch).digest()[:16]
        gate, policy_version = facts["batch"][0], facts["policy"]
        policy = self.row("policies", gate, policy_version)
        if policy is None:
            self.fault("policy", place, f"its policy {policy_version} is in no log")
            return
        settings = self.row("gate_revisions", gate, policy["gate_revision"])
        if settings is None:
            self.fault("policy", place, f"the gate's revision {policy['gate_revision']} is in no log")
            return
        decision = Decision(line, facts, policy, settings, place)
        self.counts["decisions"] += 1
        self._in_force(facts, policy_version, place)
        scored, untrusted = decision.scored, decided_without_trust(facts)
        self.counts["decisions without a trusted policy"] += untrusted
        # Where nothing was embedded none is named.
        nothing = not scored and facts["embedding_source"] == "none" == facts["encoder"]
        for name in ("unit", "mode", "scorer", "encoder"):
            allowed = untrusted and (name != "mode" or facts[name] == "enforce")
            if facts[name] != settings[name] and not (allowed or (name == "encoder" and nothing)):
                self.fault("action", place, f"its {name} is not that of policy {policy_version}")
        if facts["action_id"] != action_id_of(batch):
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
        key, metadata = settings["segment_by"], decision.metadata if scored else None
        if key is not None and metadata is not None and facts.get("segment") != segment_of(metadata.get(key)):
            self.fault("action", place, "its segment is not that of its metadata")
        self._judged(decision)
        best = self._action(decision)
        if best is not False:
            self._draw(decision, best)
        waits = None if line.get("action") is None else self._event(decision, best or 0, published)
        if (which := tuple(facts["batch"])) in self._desk:
            self._later["desk"] = which
        if not untrusted:
            self._at_desk(decision, waits)

    def _once(self, later: dict[str, Any], place: str) -> None:
        """Compare a decision with those before it."""
        if later["batch"] in self._decided:
            self.fault("action", place, "this batch was decided before")
        self._decided.add(later["batch"])
        if "desk" in later:
            self._came.add(later["desk"])
        if "waits" in later:
            self._waits.append(later["waits"])
        for of, name, burst, what in later.get("bursts", ()):
            alike = not name and burst is None
            if name and burst:
                named = self._burst_names.setdefault((of, "=" + name), burst)
                alike = named == burst and self._burst_names.setdefault((of, burst), name) == name
            if not alike:
                self.fault("action", place, f"its burst in run {of} is not that of its {what}")

    def _of_upstream(self, decision: Decision) -> None:
        """Check that a gate which is calibrated for one upstream scored its answers alone, as far as metadata are there."""
        wanted, place = decision.settings["upstream"], decision.place
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
            if is_closing(self._rows["policies"][gate, version]):
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
        if facts["scorer"] != "judge":
            return
        for name, score, made_of, *_ in facts["responses"]:
            # A blank answer scores 0, whatever it brought.
            derived = 0.0 if made_of is None else round(made_of / 100, 6)
            if abs(derived - score) > 2e-6:
                wrong = f"the score of response {name!r} does not follow from the number it is made of"
                self.fault("score", place, wrong)
        self.counts["batches whose scores follow from recorded numbers"] += 1

    def _action(self, decision: Decision) -> int | bool | None:
        """Derive what ships again; returns the best response's position (None: no such), False if that is unknown."""
        _, facts, policy, settings, place = decision
        scores = [response[1] for response in facts["responses"]]
        actions = [response[3] for response in facts["responses"]]
        held, best = settings["hold_action"], None
        shipped: list[bool] | None
        if not decision.scored:
            shipped, reason = [False] * len(scores), ""
            if facts["reason"] in ("scored", "closed", "early_warning", "bad_burst", "too_few_alike"):
                self.fault("action", place, f"its reason is {facts['reason']!r}, and it has no scores")
            if facts["reason"] == "not_read" and "not_read" not in facts:
                self.fault("action", place, "it was held as not read, and names no answer")
        else:
            marks = tuple(float(one in facts.get("not_read", ())) for one in RULES)
            if marks != (unread(facts.get("signals")) or (0.0,) * 3):
                self.fault("action", place, "which answers were not read does not follow from its signals")
            self._made_of(facts, place)
            if facts["unit"] == "claim":
                blank = [False] * len(scores)
            elif settings["judged"].partition("@")[0] not in ("whole", "raw"):
                blank = [response[2] is None for response in facts["responses"]]  # nothing in it is judged
            elif (texts := decision.texts) is not None:
                blank = [is_blank(judged_text(settings, text)) for text in texts]
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
            if facts["unit"] == "claim" and sum(shipped) < settings["least_kept"] * len(shipped):
                shipped = [False] * len(shipped)
            reason = "scored"
            bad_burst = self._of_burst(decision)
            if not policy["calibrated"]:
                reason = "no_threshold"
            elif cut[0] == "closed":
                held_early = policy["created_by"] == WARNING and policy["calibration_run"] is None
                reason = "early_warning" if held_early else "closed"
            elif bad_burst:
                shipped, reason = [False] * len(scores), "bad_burst"
            elif 1 in unread(facts.get("signals")) and (
                cut[0] != "full" or never_enough(facts.get("budget"))
            ):
                reason = "not_read"
            elif cut[0] == "full" and never_enough(facts.get("budget")):
                reason = "too_few_alike"
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

    def _check_shipped(self, decision: Decision, event: dict[str, Any]) -> None:
        """What the event lets be shown is what ships of the answer, as its claims partition it."""
        facts, claims, content = decision.facts, decision.claims or {}, decision.line["content"]
        ships = [one[3] == "ship" for one in facts["responses"]]
        parts, shown = shipped(claims, ships, decision.settings["left_out"])
        said = event.get("answer"), event.get("parts", []), event.get("text_seal")
        seal = sha256(bytes.fromhex(content["content_hash"]) + shown.encode()) if parts else None
        if said != (claims["responses"][0][0], parts, seal):
            self.fault("action", decision.place, "what it lets be shown does not follow from its claims")
        self.counts["texts put together again from claims"] += 1
        again = scores_of(claims, decision.settings, facts["scorer"], facts["encoder"])
        if again is None:
            by = f"scores of claims by {facts['scorer']} ({facts['encoder']})"
            self.notes[by] = f"{by} were not derived again"
        for (claim, score, *_), one in zip(facts["responses"], again or (), strict=False):
            if abs(score - one) > 2e-6:
                what = f"claim {claim!r} has the score {score}, and from the texts follows {one:.6f}"
                self.fault("score", decision.place, what)
                return

    def _of_burst(self, decision: Decision) -> bool:
        """Whether a prompt of a decision's burst has a bad label; bursts are compared with their names where texts are there."""
        _, facts, policy, settings, place = decision
        key, run = settings["group_by"], policy["calibration_run"]
        for of, (by, burst) in self._bursts_read.get(tuple(facts["batch"]), {}).items():
            self._same_burst(decision, of, by, burst)
        if key is None or run is None or settings["method"] != "full":
            if "burst" in facts:
                self.fault("action", place, "it names a burst, and its policy knows none")
            return False
        self._same_burst(decision, run, key, facts.get("burst"))
        self.counts["decisions by burst"] += 1
        return facts.get("burst") in self._bad_bursts.get(run, ())

    def _same_burst(self, decision: Decision, run: int, key: str, burst: str | None) -> None:
        if (name := decision.burst(key)) is not None:
            what = "question" if key == "prompt" else "metadata"
            self._later.setdefault("bursts", []).append((run, name, burst, what))

    def _rule_of(self, policy: dict[str, Any]) -> Any:
        key = (policy["gate"], policy["version"])
        if key not in self._rule_of_policy:
            self._rule_of_policy[key] = parsed(policy["rule"] or PLAIN)
        return self._rule_of_policy[key]

    def _draw(self, decision: Decision, best: Any) -> None:
        line, facts, _, settings, place = decision
        (gate, batch, attempt), scored = facts["batch"], decision.scored
        ids = [response[0] for response in facts["responses"]]
        drawn = [response[0] for response in facts["responses"] if response[4]]
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
                wrong = "the random numbers that it was shipped by are not those of its salt"
                self.fault("draw", place, wrong)
        number = keyed_uniform(salt, "audit", *names)
        sampled, extra = scored and number < probability, scored and base <= number < probability
        if facts["sampled"] != sampled:
            self.fault(
                "draw", place, f"the audit sample {'takes' if sampled else 'does not take'} this batch"
            )
        if facts.get("extra_draw", False) != extra:
            wrong = "it says that a raised audit rate drew it"
            if sampled:
                takes = "does not take" if extra else "takes"
                wrong = f"the gate's own probability {takes} this batch, the record says otherwise"
            self.fault("draw", place, wrong)
        if sampled and facts["unit"] == "best" and best is None and line.get("content") is None:
            return  # all scores are 0, and which text was blank is unknown
        if not sampled:
            expected = []
        elif facts["unit"] == "best" and best is not None:
            expected = [ids[best]]
        else:
            order = sorted(ids, key=lambda i: (keyed_uniform(salt, "draw", *names, i), i))
            expected = order if facts["unit"] == "claim" else order[: settings["audit_draws"]]
        if set(drawn) != set(expected):
            self.fault("draw", place, f"the audit draw takes {sorted(expected)}, not {sorted(drawn)}")

    def _raised(self, decision: Decision, scored: bool) -> float:
        """Return the probability that a decision was drawn with that names an audit rate."""
        facts, settings = decision.facts, decision.settings
        (gate, _, attempt), number = facts["batch"], facts["audit_rate"]
        rate, boost = self.row("audit_rates", number), settings["audit_boost"] or 1.0
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

    def _event(self, decision: Decision, best: int, published: bytes) -> Any:
        """Compare the published event with what was recorded of the decision, and return until when it waits at the desk."""
        decided_at, place = decision.facts["decided_at"], decision.place
        written = _recorded(decision, best, {}) | {"decided_at": decided_at[:26] + "Z"}
        if decision.claims is None and published == self._write(written):
            return None  # as most are; to read and to compare takes several times as long
        try:
            event = self._parse(published)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            self.fault("action", place, "the published event cannot be read")
            return None
        for name, value in _recorded(decision, best, event).items():
            if not same_json(event.get(name), value):
                self.fault("action", place, f"the published event does not have the recorded {name}")
        if decision.claims is not None:
            self._check_shipped(decision, event)
        if moment_of(event.get("decided_at")) != decided_at:
            self.fault("action", place, "the published event does not have the recorded moment of decision")
        return event.get("desk_until")


def _recorded(decision: Decision, best: int, event: dict[str, Any]) -> dict[str, Any]:
    """What the event of a decision says; of erased texts `event` itself names what went out."""
    line, facts, policy, settings, _ = decision
    responses = [{"id": one[0], "score": one[1], "action": one[3]} for one in facts["responses"]]
    if facts.get("budget") is not None and best < len(responses):
        count, groups = facts["budget"]
        responses[best]["budget_needed"] = count / (groups + 1)
    for one, rule in zip(responses, facts.get("not_read") or (), strict=False):
        one |= {} if rule is None else {"not_read": rule}
    for one, span in zip(responses, _spans(decision, event), strict=True):
        one |= span
    # what scores at or below a label floor is drawn, and never asked for
    floor = settings["label_floor"]
    cut = (policy["state"], policy["threshold"])
    if "cut_state" in facts:
        cut = (facts["cut_state"], facts.get("cut_threshold"))
    elif decided_without_trust(facts):
        cut = ("closed", None)
    gate, batch_id, attempt = facts["batch"]
    return {
        "schema": "streamer.actions.v1", "action_id": facts["action_id"], "gate": gate, "batch_id": batch_id,
        "attempt": attempt, "unit": facts["unit"], "action": facts["outcome"],
        "enforced": facts["mode"] == "enforce", "selected": facts["selected"], "reason": facts["reason"],
        "responses": responses,
        "policy": {
            "version": policy["version"], "state": cut[0], "lambda": cut[1], "alpha": settings["alpha"],
            "method": settings["method"], "segment": facts.get("segment"),
        },
        "scorer": {
            "name": facts["scorer"], "encoder": facts["encoder"], "embedding_source": facts["embedding_source"],
        } | ({} if settings["judged"] == "whole@1" else {"judged": settings["judged"]}),
        "audit": {
            "sampled": facts["sampled"], "probability": facts["sampling_probability"],
            "label": [
                one[0]
                for one in facts["responses"]
                if one[4] and (floor is None or one[1] is None or one[1] > floor)
            ],
        },
        "source": dict(zip(("topic", "partition", "offset"), line["source"][1:], strict=True)),
    }  # fmt: skip


def shipped(claims: dict[str, Any], ships: Sequence[bool], left_out: str) -> tuple[list[Any], str]:
    """What ships of an answer, in pieces (where in it they stand, or another text), and joined."""
    text, made = claims["responses"][0][1], list[Any]()
    place = kept = 0
    for (first, last), out in zip(claims["spans"], ships, strict=True):
        if out or left_out == "mark":
            bare_gap = not text[place:first].strip()
            line = text[:kept].rstrip(" ")
            ended, lost = len(line) - len(line.rstrip("\n")), kept < place or not bare_gap
            if made and lost and ended < 2 and "\n" * (ended + 1) in text[kept:first]:
                made.append("\n\n"[ended:])
            elif made:
                made.append([place, first] if bare_gap else " ")
            kept = last
            bare = first + len(text[first:last].rstrip())
            made += [[first, last]] if out else ["[unsupported: ", [first, bare], "]", [bare, last]]
        place = last
    joined: list[Any] = []
    for part in made if any(ships) else ():
        last = joined[-1] if joined and isinstance(joined[-1], list) else [None, None]
        if isinstance(part, list) and last[1] == part[0]:
            joined[-1] = [last[0], part[1]]
        elif isinstance(part, str) or part[0] < part[1]:
            joined.append(part)
    return joined, "".join(one if isinstance(one, str) else text[slice(*one)] for one in joined)


def _spans(decision: Decision, event: dict[str, Any]) -> list[dict[str, Any]]:
    """Which part of each text that ships goes out, where that is not all; as the event says it, where texts are erased."""
    settings, responses, published = decision.settings, decision.facts["responses"], event.get("responses")
    if decision.claims is not None:
        return [{"span": span} for span in decision.claims["spans"]]
    of_claims = decision.facts["unit"] == "claim" and decision.scored
    texts = None if of_claims or settings["judged"].startswith("call@") else decision.texts
    if texts is not None:
        return [
            {"span": [end - len(out), end]}
            if one[3] == "ship" and (out := judged_text(settings, text)) != text
            else {}
            for one, text in zip(responses, texts, strict=True)
            for end in [len(text.rstrip(WHITE))]
        ]
    if not isinstance(published, list) or len(published) != len(responses):
        published = [None] * len(responses)
    spans = [one.get("span") if isinstance(one, dict) else None for one in published]
    return [
        {"span": span} if of_claims or (span is not None and one[3] == "ship") else {}
        for one, span in zip(responses, spans, strict=True)
    ]
