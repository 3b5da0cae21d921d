"""One calibration run, derived again from what it says that it has read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any

from streamer_verify.actions import uniform_of
from streamer_verify.all_signals import RIDGE, ByScore, BySignals, fitted, ship_above_of
from streamer_verify.calibrators import METHODS, as_cut, asked_above, calibrate
from streamer_verify.runs import Decided, Label, Runs
from streamer_verify.samples import Group, Sample, mean
from streamer_verify.values import CONTROL, PLAIN, parsed, row_name, same_json, seconds_between, sha256
from streamer_verify.waits import of_same_revisions

_MOST_DELAYS, _LEAST_DELAYS = 1000, 20
"""Earlier draws whose labels' delays are looked at, and how many say something."""

_NEAR = 1e-9
"""Of levels that logarithms and exponentials go into."""


class RunAgain:
    """One run, derived again from what it says that it has read."""

    def __init__(self, runs: Runs, row: dict[str, Any], line: dict[str, Any]) -> None:
        self.place = f"control, leaf {line['index']}, {row_name('calibration_runs', row)}"
        self._runs, self._row, self._line, self._verifier = runs, row, line, runs.verifier
        self._settings: dict[str, Any] = {}
        self._inputs: list[dict[str, Any]] = []
        self._heads = {tuple(head[:3]): head[3] for head in parsed(row["heads"])}

    def check(self, *, inputs_alone: bool = False) -> None:
        """Name everything that does not follow."""
        row = self._row
        settings = self._verifier.row("gate_revisions", row["gate"], row["gate_revision"])
        gate = self._verifier.row("gates", row["gate"])
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
        served = self._verifier.settings(batch[0], found.policy)
        base = found.probability
        if found.raised:
            base = one["probability"] if served is None else served["audit_probability"]
        if one["probability"] != base:
            yield f"its own audit drew it with the probability {base}"
        own = self._runs.carried_row(settings, batch) is None
        if not of_same_revisions(settings if own else {**settings, "signals": None}, served):
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
            why = "that depends on the public keys of labellers, which were not given"
            if self._runs.label_keys is not None:
                why = "some of topics were signed by file"
            self._verifier.notes["signed labels"] = f"which labels a gate with signed labels has read: {why}"
            return
        wrong: dict[str, list[str]] = {}
        for one in self._inputs:
            response = (row["gate"], one["batch_id"], one["attempt"], one["response_id"])
            if one["severity"] not in severities(list(self._read(response)), row.get("severities")):
                said = "no label" if one["severity"] is None else f"severity {one['severity']:g}"
                wrong.setdefault(f"labels do not give {said}", []).append(self._called(one))
        self._tell(wrong)
        self._check_age_cut(*self._draws)

    def _check_complete(self, drawn: list[Decided]) -> None:
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

    def _read(self, response: tuple[Any, ...]) -> Iterator[Label]:
        """The labels of a response that the run has read: of its gate's kind and labellers, below its heads."""
        settings, named = self._settings, parsed(self._settings.get("labellers"))
        for label in self._runs.labels(response):
            if label.kind != settings["severity_kind"] or not (named is None or label.labeller in named):
                continue
            if label.leaf < self._heads.get(label.chain or CONTROL, 0) and (
                not settings.get("signed_labels")
                or self._runs.signed(label, response, self._heads.get(CONTROL, 0))
            ):
                yield label

    def _check_age_cut(self, drawn: list[Decided], before: list[Decided]) -> None:
        """From which age on draws counted follows from their ages, from which of them had labels, and from how late earlier ones got theirs."""
        row, settings, cut = self._row, self._settings, parsed(self._row.get("age_cut"))
        floor, window = settings["label_floor"], settings.get("window")
        basis = row.get("severities")
        age = timedelta(seconds=cut["seconds"], microseconds=-1 if cut["seconds"] else 0)
        began = datetime.fromisoformat(row["started_at"])
        if datetime.fromisoformat(row["older_than"]) != began - age:
            self._fault("it has not read what is older than its age cut")
            return
        if not self._runs.begins(row["gate"], row["since_version"], self._heads.get(CONTROL, 0)):
            self._fault("it does not begin where the newest alarm of its gate has it begin")
        if settings["pending"] != "age" or settings["label_deadline_seconds"]:
            if cut["seconds"] != settings["label_deadline_seconds"]:
                self._fault("its age cut is not its gate's")
            return
        of_batches = settings["unit"] == "batch" or settings["shape"] == "rank"
        if settings.get("segment_by") or settings.get("group_by") or (floor is not None and of_batches):
            return
        newest = drawn if window is None else drawn[-2 * window :]
        inputs: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for one in self._inputs:
            inputs.setdefault((row["gate"], one["batch_id"], one["attempt"]), []).append(one)
        read = {batch: self._waits(some) for batch, some in inputs.items()}
        waiting = sum(read[one.batch] if one.batch in read else self._delay(one, basis)[1] for one in newest)
        seconds, deadline = 0.0, settings["monitor_deadline_seconds"]
        if waiting:
            own = drawn[: len(drawn) - len(newest)][-_MOST_DELAYS:]
            late = [self._delay(one, basis)[0] for one in own]
            others = [
                self._delay(one, "highest") for one in before[max(0, len(before) - _MOST_DELAYS + len(own)) :]
            ]
            late += [one for one, waits in others if waits or one is not None]  # below a floor none is due
            known = sorted(deadline if one is None else min(max(one, 0.0), deadline) for one in late)
            wanted = known[math.ceil(0.95 * len(known)) - 1] if len(known) >= _LEAST_DELAYS else deadline
            seconds = min(
                wanted, seconds_between(newest[(len(newest) - 1) // 2].decided_at, row["started_at"])
            )
        self._verifier.counts["age cuts derived again"] += 1
        if (cut["draws"], cut["waiting"], cut["seconds"]) != (len(newest), waiting, seconds):
            self._fault(
                f"it counts draws from an age of {cut['seconds']:g} s on, {cut['waiting']} of {cut['draws']} waiting for a label;"
                f" by the record from {seconds:g} s on, {waiting} of {len(newest)} waiting"
            )

    def _waits(self, some: list[dict[str, Any]]) -> bool:
        """Whether a label that is asked for is missing among the inputs of a batch."""
        above = asked_above(self._settings, ((one["score"], one["severity"]) for one in some))
        return any(one["severity"] is None and one["score"] > above for one in some)

    def _delay(self, draw: Decided, basis: str | None) -> tuple[float | None, bool]:
        """How late the labels of a draw came, in seconds (None: not all, or none, did), and whether it waits for one."""
        given = [(score, list(self._read((*draw.batch, name)))) for name, score in draw.drawn]
        above = asked_above(
            self._settings, ((score, severities(some, basis)[0]) for score, some in given if some)
        )
        came = []
        for score, some in given:
            if some:
                came.append(min(label.received for label in some))
            elif score > above:
                return None, True
        return (seconds_between(draw.decided_at, max(came)) if came else None), False

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
                f"{batch_id}#{attempt}", [one["response_id"] for one in some], [one["score"] for one in some],
                severities, some[0]["draws"], some[0]["segment"] or "",
                self._runs.carried_row(self._settings, batch) or (decision and decision.signals),
                self._is_bad(batch, some, severities),
            )  # fmt: skip
            if some[0]["spare"]:
                continue
            found.append((moment, group))
            if moment < self._row["older_than"]:
                old.add(group.id)
            if self._waits(some):
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
        severity, said = mean(severities), some[0].get("bad")
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
        parameters |= parsed(settings.get("parameters")) or {}
        drawn = 1
        if settings["unit"] == "response":
            drawn = min([settings["audit_draws"], *(group.draws for group in groups)])
        history = parsed(self._row.get("history")) or {}
        floor, cuts = settings["label_floor"], history.get("cuts", ())
        return Sample(groups, alpha, str(self._row["seed"]), parameters, drawn, floor, cuts)

    def _check_candidate(self, said: dict[str, Any], sample: Sample, labelled: list[Group]) -> None:
        settings, decides, notes = self._settings, said["decides"], self._verifier.notes
        method = settings["method"] if decides else said["method"]
        if method == "full":
            method = "mean"
            sample = sample._replace(floor=ship_above_of(settings) or None)
        if method not in METHODS:
            notes[f"method {method}"] = f"what runs say by the method {method} is not derived again"
            return
        own: dict[str, Any] = {"width": settings.get("width"), "fallback": settings.get("segment_fallback")}
        own["shape"] = settings["shape"] if decides or settings["shape"] == "rank" else "indicator"
        own["segment_by"] = settings.get("segment_by") if decides else None
        if not decides and method == "clt":
            sample = sample._replace(floor=None)
        suffix = parsed(self._row.get("suffix")) if decides else None
        newest = suffix["calibrated_on"] if suffix else 0
        young = labelled[-newest:] if newest else ()
        if decides and settings["method"] == "full" and self._check_signals(said, sample.groups, young):
            return
        if decides:
            self._runs.compare(self._row["id"], ByScore(sample.groups))
        if newest > 0 and (own["segment_by"] is not None or method == "transductive"):
            notes["suffix tests"] = (
                "thresholds from the newest groups alone are not derived again for segments and transductive rules"
            )
            return
        if settings["unit"] == "claim":
            own["claims"] = settings["loss"], settings["least_kept"]
        value, rule = calibrate(sample, method, **own)
        if newest > 0:
            alone = calibrate(sample._replace(groups=young), method, **own)
            value, rule = alone if alone[0] > value else (value, rule)
        found = as_cut(value)
        exact = own["shape"] not in ("smooth", "ramp")
        cuts = [said["state"], said["threshold"]], [found["state"], found["lambda"]]
        if not (cuts[0] == cuts[1] if exact else same_json(*cuts, _NEAR)):
            first, second = (f"a cut at {level}" if state == "cut" else state for state, level in cuts)
            self._fault(f"by {said['method']} it says {first}, and its inputs give {second}")
        if not same_json(PLAIN if said["rule"] is None else parsed(said["rule"]), rule, _NEAR):
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
            "ship_above": ship_above_of(settings),
            "least_alike": int(parsed(settings["parameters"])["least_alike"]),
            "fits": fits,
        }
        rule = {"kind": "full", "parameters": parameters, "curve": None}
        full = (said["state"], said["threshold"]) == ("full", None)
        if not full or not same_json(parsed(said["rule"]), rule, _NEAR):
            self._fault(f"by {said['method']} it says another rule than its inputs give")
        compared = [some[-one["groups"] :] for some, one in zip(prompts, fits, strict=False)]
        self._runs.compare(self._row["id"], BySignals(rule, compared))
        return True


def check_runs(runs: Runs, lines: Iterable[dict[str, Any]], *, inputs_alone: bool = False) -> None:
    """Derive every run of the control log again; what does not fit is a fault of the verifier."""
    for line in lines:
        row = line.get("row")
        if line["kind"] != "calibration_runs" or row is None:
            continue
        run = RunAgain(runs, row, line)
        try:
            run.check(inputs_alone=inputs_alone)
        except (ValueError, ArithmeticError) as error:
            runs.verifier.fault(
                "calibration", run.place, f"nothing can be calibrated with its numbers: {error}"
            )


def severities(labels: Sequence[Label], basis: str | None) -> list[float | None]:
    """Return what labels of one response come to: of each labeller the latest, averaged, or the highest of all.

    Of labels of one labeller that are equally late, and of two logs, nobody outside the database can tell which was
    stored later: then there are several.
    """
    if not labels:
        return [None]
    if basis == "highest":
        return [max(one.severity for one in labels)]
    latest: dict[str, list[Label]] = {}
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
