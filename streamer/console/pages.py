"""What each page shows, read from the store: plain values for the templates. Calls block."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from streamer.audit import story
from streamer.audit.story import needed_of, shown_of, story_of, threshold_of, unit_of, why_of
from streamer.audit.verification import UNREADABLE
from streamer.console.charts import Moment, course_chart, interval_bar
from streamer.console.course import Courses
from streamer.console.what_if import Questions, number
from streamer.errors import Unreadable, UsageError
from streamer.gates.policy import SIGNED_IN
from streamer.gates.setting_changes import differences
from streamer.gates.settings import HELD_WORDS, GateSettings
from streamer.recalibration.comparison import NEWEST, Reading, direction, ship_rate
from streamer.recalibration.gate_rule import Proposal
from streamer.recalibration.skill import separation
from streamer.risk.rounds.report import RiskReport, report_of
from streamer.scoring.unread_answers import SAYS
from streamer.signing.policies import REFUSAL_TEXTS, PolicyKeys
from streamer.store import Store
from streamer.store.log.decision_search import Wanted
from streamer.store.risk.incident_story import goes_back
from streamer.store.risk.incident_story import story_of as story_of_incident
from streamer.wording.numbers import SERVED, counted, items, percent, when
from streamer.wording.policies import (
    NOTHING_PROMISED,
    cut_text,
    guarantee_text,
    needed_text,
    own_cuts,
    segment_lines,
    setting_name,
    setting_text,
    settings_shown,
    status_text,
    threshold_text,
    waits_text,
)
from streamer.wording.verdicts import (
    ALARMS,
    alarm_text,
    decided_text,
    facts,
    figures,
    no_alerts,
    risk_names,
    risks_of,
    sentence,
    stated,
)

T = TypeVar("T")

SHORTEST_SECONDS: Final = 2.0
"""Several open pages share a look-up for this long."""

COURSE_SECONDS: Final = 1.5
"""How long one request reads a period again; the next one continues."""

_MOST_WORDS: Final = 10
_VERSIONS: Final = 50
_ALERTS: Final = 200


class Pages:
    """What the pages show; `keys` : whose signatures of policies are trusted."""

    def __init__(self, store: Store, *, keys: PolicyKeys, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._keys = keys
        self._clock = clock
        self._kept: dict[str | None, tuple[float, Any]] = {}
        self._courses = Courses(store)
        self._questions = Questions(store, clock=clock)

    # -- gates ----------------------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """How much waits for people, for the head of every page."""
        return self._lately(None, self._count)

    def _lately(self, gate: str | None, find: Callable[[], T]) -> T:
        """What was found of a gate, or of all, a moment ago; else found now."""
        known = self._kept.get(gate)
        if known is None or monotonic() - known[0] >= SHORTEST_SECONDS:
            known = self._kept[gate] = (monotonic(), find())
        found: T = known[1]
        return found

    def _count(self) -> dict[str, int]:
        names = [one.gate for one in self._store.gates.list()]
        return {
            "proposals": sum(
                (self._store.calibration.proposal(name) is not None)
                + (self._store.candidates.newest(name) is not None)
                for name in names
            ),
            "alerts": sum(bool(one.open) for one in self._store.alerts.incidents()),
            "desk": sum(queue.waiting for queue in self._store.desk.queues().values()),
        }

    def forget(self) -> None:
        """Look everything up again: somebody changed something."""
        self._kept = {}

    def gates(self, _query: Mapping[str, str]) -> dict[str, Any]:
        """Every gate and its present state, what is in trouble first."""
        pending = self._store.labels.pending()
        lines: list[dict[str, Any]] = []
        for one in self._store.gates.list():
            try:
                lines.append(self._line(one.gate, pending.get(one.gate, 0)))
            except UsageError as error:  # a policy that cannot be read hides no other gate
                lines.append({"name": one.gate, "trouble": str(error)})
        tones = ("broken", "unsure", "kept")
        return {
            "gates": sorted(
                lines, key=lambda one: (not one["trouble"], tones.index(one.get("tone", "broken")))
            )
        }

    def gate(self, name: str, query: Mapping[str, str]) -> dict[str, Any]:
        """One gate: its promise, its present state, and its history."""
        policy = self._store.policies.newest(name)
        versions = self._store.policies.every_version(name)
        report = self._report(name)
        everything = query.get("all") == "1"
        shown = versions if everything else versions[-_VERSIONS:]
        refused = self._keys.refusal(versions[-1]) if versions else None
        proposal = self._store.calibration.proposal(name)
        return self._line(name, self._store.labels.pending().get(name, 0)) | {
            "policy": policy,
            "policy_status": status_text(policy),
            "refused": None if refused is None else REFUSAL_TEXTS[refused],
            "guarantee": guarantee_text(policy.guarantee).split("\n") if policy.guarantee else [],
            "segments": segment_lines(policy.rule),
            "settings": settings_shown(policy.settings),
            "figures": figures(report),
            "facts": facts(report, self._store.desk.in_period(name, policy.settings, now=self._clock())),
            "versions": [
                self._version(one, before)
                for one, before in zip(
                    reversed(shown), reversed([None, *versions][-len(shown) - 1 : -1]), strict=True
                )
            ],
            "older": [
                one.version
                for one in reversed(versions[:-1])
                if one.active is not None and goes_back(one.active.policy, policy)
            ],
            "more": len(versions) - len(shown),
            "proposal": proposal,
            "closed": policy.state == "closed" and not own_cuts(policy.rule),
            **self._questions.sliders(name, {}),
            **self._course(name, report),
        }

    def _line(self, name: str, waiting: int) -> dict[str, Any]:
        report = self._report(name)
        policy = self._store.policies.newest(name)
        service = report.service
        shown = None if service is None else stated(service)
        if shown is not None and not shown.share_served:  # which says nothing of what ships
            shown = None
        budget = None if report.terms is None else report.terms.budget
        promised = policy.settings.calibrator.risk
        names = risk_names(policy.settings.unit, policy.settings.loss)
        return {
            "name": name,
            "trouble": None,
            "sentence": sentence(report).removeprefix(f"{name}: "),
            "verdict": {"kept": "budget kept", "broken": "budget broken"}.get(report.verdict, report.verdict),
            "tone": {"kept": "kept", "broken": "broken"}.get(report.verdict, "unsure"),
            "status": status_text(policy),
            "unit": SERVED[policy.settings.unit],
            "budget": budget,
            "promised": promised,
            "risks": names,
            "shown": shown,
            "bar": None if shown is None or budget is None else interval_bar(shown.judged, budget),
            "waiting": waiting,
            "decided": None if report.decided is None else decided_text(report.decided),
            "incident": any(one.alert_id for one in report.standing),
            "alarms": [
                {"name": ALARMS[one.kind], "text": alarm_text(one)}
                for one in sorted(report.alarms, key=lambda one: one.raised_at is None)
            ],
            "shadow": policy.settings.mode != "enforce",
        }

    def _report(self, name: str) -> RiskReport:
        monitoring, gates = self._store.monitoring, self._store.gates
        return self._lately(
            name,
            lambda: (
                monitoring.judged(name, now=self._clock())
                or report_of(monitoring.watch(name), gates.get(name).settings)
            ),
        )

    def _course(self, name: str, report: RiskReport) -> dict[str, Any]:
        service = report.service
        if report.terms is None or service is None or service.period is None:
            return {"course": None}
        course, whole = self._courses.of(name, COURSE_SECONDS)
        risk = service.period.promised
        moments = [
            Moment(at, one.selective() if risk == "selective" else one.exposure()) for at, one in course
        ]
        # What the verdict rests on comes last: labels that came too late for it are in the course before.
        moments.append(Moment(service.period.until, service.period.judged))
        how: Any = {"risk": risk, "name": risks_of(report)[risk]}
        return {"course": course_chart(moments, budget=report.terms.budget, **how), "whole": whole}

    def _version(self, found: Any, before: Any) -> dict[str, Any]:
        refusal = self._keys.refusal(found)
        said = None if refusal is None else REFUSAL_TEXTS[refusal]
        if found.active is None:
            return {"version": found.version, "policy": None, "refused": said}
        policy = found.active.policy
        return {
            "version": found.version,
            "policy": policy,
            "threshold": threshold_text(policy),
            "changed": []
            if before is None or before.active is None
            else _differences(before.active.policy.settings, policy.settings),
            "signed": found.signature is not None,
            "refused": said,
        }

    def what_if(self, name: str, query: Mapping[str, str]) -> dict[str, Any]:
        """What another budget or threshold would have done in a gate's past."""
        return {"name": name} | self._questions.answer(name, query)

    # -- decisions ------------------------------------------------------------------------------------------

    def decisions(self, query: Mapping[str, str]) -> dict[str, Any]:
        """The decisions of a search, the newest first."""
        wrong = None
        wanted, before = Wanted(), None
        try:
            wanted, before = _wanted(query), _whole("before", query.get("before", ""))
        except UsageError as error:
            wrong = str(error)
        found = None if wrong else self._store.decision_search.find(wanted, before=before)
        kept = {name: value for name, value in query.items() if value and name in _FIELDS}
        return {
            "gates": [one.gate for one in self._store.gates.list()],
            "query": {name: query.get(name, "") for name in _FIELDS},
            "wrong": wrong,
            "asked": bool(kept),
            "found": found,
            "outcomes": HELD_WORDS | {"ship": "shipped", "mixed": "shipped in part"},
            "older": None
            if found is None or found.more is None
            else urlencode(kept | {"before": found.more}),
            "newest": urlencode(kept) if before is not None else None,
        }

    def decision(self, query: Mapping[str, str]) -> dict[str, Any]:
        """One decision and its history."""
        found = self.record_of(query)
        return {"batch": query.get("batch", ""), "told": [_story(one, query) for one in found]}

    def record_of(self, query: Mapping[str, str]) -> list[dict[str, Any]]:
        """Everything that is recorded of the decisions about a batch; raises `UsageError` where there is none."""
        batch, gate = query.get("batch", ""), query.get("gate") or None
        attempt = _whole("attempt", query.get("attempt", ""))
        with self._store.evidence.snapshot() as snapshot:
            try:
                found = snapshot.decisions_of(batch, gate=gate, attempt=attempt)
            except UNREADABLE as error:
                raise Unreadable(
                    f"the record of batch {batch[:200]!r} cannot be read ({type(error).__name__}); "
                    "`streamer audit verify` says which row it is"
                ) from error
        if not found:
            raise NotThere(f"no decision about batch {batch[:200]!r} is recorded")
        return found

    # -- alerts, proposals, people --------------------------------------------------------------------------

    def alerts(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Alerts, the newest first."""
        gate, everything = query.get("gate") or None, query.get("all") == "1"
        if gate is not None and not self._store.policies.versions([gate]):
            raise NotThere(f"there is no gate {gate[:200]!r}")
        found = self._store.alerts.incidents(gate, limit=_ALERTS)
        return {
            "incidents": [one for one in found if everything or one.open],
            "all": everything,
            "nothing": no_alerts(not everything),
            "gate": gate,
            "full": sum(len(one.alerts) for one in found) >= _ALERTS,
        }

    def incident(self, query: Mapping[str, str]) -> dict[str, Any]:
        """One incident: what happened, which labels told, and what to do."""
        try:
            found = self._store.alerts.incident(query.get("alert", ""))
        except UsageError as error:
            raise NotThere(str(error)) from None
        return {"incident": found, "story": story_of_incident(self._store, found, now=self._clock())}

    def proposals(self, _query: Mapping[str, str]) -> dict[str, Any]:
        """What is proposed, beside what is in force."""
        found, troubles = [], []
        for gate in self._store.gates.list():
            try:
                proposal = self._store.calibration.proposal(gate.gate)
                if proposal is not None:
                    found.append(self._proposal(proposal))
            except UsageError as error:
                troubles.append(str(error))
        return {"proposals": found, "troubles": troubles, "candidates": self._candidates()}

    def _candidates(self) -> list[dict[str, Any]]:
        """Candidate policies, each beside what is in force."""
        found = []
        for gate in self._store.gates.list():
            candidate = self._store.candidates.newest(gate.gate)
            if candidate is not None and candidate.settings is not None:
                cut = candidate.cut
                found.append(
                    {
                        "candidate": candidate,
                        "proposer": candidate.by.removeprefix(SIGNED_IN),
                        "two_people": gate.settings.two_people,
                        "threshold": "none yet" if cut is None else cut_text(cut, candidate.rule),
                        "rows": _differences(gate.settings, candidate.settings),
                        "beside": self._questions.candidate(candidate),
                        "counts": sum(self._store.candidates.counts(candidate.number).values()),
                    }
                )
        return found

    def people(self, _query: Mapping[str, str]) -> dict[str, Any]:
        """Every account."""
        return {"people": self._store.accounts.list()}

    def _proposal(self, proposal: Proposal) -> dict[str, Any]:
        present = self._store.policies.newest(proposal.gate)
        sample = self._store.calibration.sample(proposal.run)
        now, then = Reading.of_policy(present), Reading(proposal.cut, proposal.rule)
        unit = present.settings.unit
        report = self._report(proposal.gate)
        newest = sample[-NEWEST:]
        turn = direction(now, then, unit, newest)
        ships, would = (ship_rate(one, unit, newest) for one in (now, then))
        skill = separation(then, present.settings, sample)
        return {
            "gate": proposal.gate,
            "unskilled": None if skill is None or skill.shown else skill.said,
            "run": proposal.run,
            "proposal": proposal,
            "present": present,
            "two_people": present.settings.two_people,
            "proposer": proposal.by.removeprefix(SIGNED_IN),
            "turn": {
                "same": "It would ship the same.",
                "tighter": "It would ship less: it is stricter.",
                "looser": "It would ship more: it is looser."
                if would > ships
                else "It would ship no more, but some of what is held now.",
            }[turn],
            "sentence": sentence(report).removeprefix(f"{proposal.gate}: "),
            "rows": [
                ("threshold", threshold_text(present), cut_text(proposal.cut, proposal.rule)),
                ("budget", percent(present.settings.alpha), percent(proposal.settings.alpha)),
                ("method", present.settings.method, proposal.settings.method),
                (
                    f"{SERVED[unit]} served, of the newest {len(newest)}",
                    percent(ships),
                    percent(would),
                ),
                (
                    "found by",
                    "no run" if present.calibration_run is None else f"run {present.calibration_run}",
                    f"run {proposal.run}, {when(proposal.at)}",
                ),
            ],
            "segments": (segment_lines(present.rule), segment_lines(proposal.rule)),
            "waits": waits_text(proposal),
            "guarantees": [guarantee_text(one.guarantee) or NOTHING_PROMISED for one in (present, proposal)],
            "sample": (
                f"{counted(proposal.groups, 'prompt', 'prompts')} of the audit sample, "
                f"{counted(proposal.items, *items(unit, plain='drawn answer'))}, {proposal.missing} without a label"
            ),
        }


class NotThere(UsageError):
    """Nothing of that name is on record."""


# -- pieces ---------------------------------------------------------------------------------------------------


_FIELDS: Final = ("gate", "batch", "words", "since", "until", "least", "most", "segment", "outcome", "drawn")


def _wanted(query: Mapping[str, str]) -> Wanted:
    outcome, drawn = query.get("outcome", ""), query.get("drawn", "")
    if outcome not in ("", "shipped", "held") or drawn not in ("", "yes", "no"):
        raise UsageError("that is no outcome")
    return Wanted(
        gate=query.get("gate") or None,
        batch=query.get("batch", "").strip() or None,
        words=tuple(query.get("words", "").split()[:_MOST_WORDS]),
        since=_moment("from", query.get("since", "")),
        until=_moment("to", query.get("until", "")),
        least_score=_score("least score", query.get("least", "")),
        most_score=_score("highest score", query.get("most", "")),
        segment=query.get("segment") or None,
        outcome=outcome or None,  # type: ignore[arg-type]
        drawn=None if not drawn else drawn == "yes",
    )


def _moment(name: str, text: str) -> datetime | None:
    """Read ``2026-11-23``, ``2026-11-23T14:30`` or a moment with a zone; without one it is in UTC."""
    if not text.strip():
        return None
    try:
        found = datetime.fromisoformat(text.strip())
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):  # the first and the last day of all are none in UTC
        raise UsageError(
            f"{name!r} must be a moment like 2026-11-23 or 2026-11-23T14:30, not {text!r}"
        ) from None


def _score(name: str, text: str) -> float | None:
    return number(name, text, 0, 1) if text.strip() else None


def _whole(name: str, text: str) -> int | None:
    if not text.strip():
        return None
    if not text.strip().isdecimal() or len(text) > 15:
        raise UsageError(f"{name} must be a whole number, not {text!r}")
    return int(text)


def _differences(before: GateSettings, after: GateSettings) -> list[tuple[str, str, str]]:
    """The settings that differ: name, and what each was and is; alpha is the budget."""

    def said(name: str, value: object) -> str:
        if name == "alpha" and isinstance(value, float):
            return percent(value)
        return setting_text(name, value)

    return [
        ("budget" if name == "alpha" else setting_name(name), said(name, was), said(name, now))
        for name, (was, now) in differences(before, after).items()
        if name not in ("model", "signals")
    ]


def _story(found: dict[str, Any], query: Mapping[str, str]) -> dict[str, Any]:
    line, facts = found["line"], found["line"]["facts"]
    told = story_of(found)
    if facts is None:
        return {
            "title": query.get("batch", ""),
            "damaged": "Given out:" if "given_out" in line else "This record is damaged.",
            "story": told,
            "answers": [],
            "linked": False,
        }
    gate, batch, attempt = facts["batch"]
    content = line.get("content")
    answers = [
        {
            "id": one[0],
            "score": one[1],
            "action": one[3],
            "drawn": one[4],
            "chosen": one[0] == facts["selected"] or (facts["selected"] is None and one[3] == "ship"),
            "text": content["texts"][position] if content else None,
            "not_read": SAYS.get((facts.get("not_read") or {position: None})[position]),
        }
        for position, one in enumerate(facts["responses"])
    ]
    said = dict(told)
    shipped = facts["outcome"] in ("ship", "mixed")
    return {
        "gate": gate,
        "batch": batch,
        "attempt": attempt,
        "damaged": False,
        "shipped": shipped,
        "outcome": "shipped in part" if facts["outcome"] == "mixed" else "shipped" if shipped else "held",
        "enforced": facts["mode"] == "enforce",
        "sentence": _decided(found, facts, answers),
        "prompt": content["prompt"] if content else None,
        "erased": not content,
        "answers": answers,
        "shows": shown_of(found),
        "units": "Claims" if unit_of(facts) == "claim" else "Answers",
        "story": [
            (name, str(value))
            for name, value in told
            if name not in ("prompt", "claim", "response", "sealed", "policy")
        ],
        "policy": str(said["policy"]).removesuffix(found["policy"]["guarantee"]).strip(),
        "version": found["policy"]["version"],
        "guarantee": guarantee_text(found["policy"]["guarantee"]).split("\n"),
        "sealed": str(said["sealed"]),
        "linked": story.fits(found["line"]),
        "head": found["head"],
        "link": urlencode({"batch": batch, "gate": gate, "attempt": attempt}),
    }


def _decided(found: Mapping[str, Any], facts: dict[str, Any], answers: Sequence[Mapping[str, Any]]) -> str:
    """Say in a sentence what was decided and why."""
    policy = found["policy"]
    scores = [one["score"] for one in answers if one["score"] is not None]
    threshold = facts.get("cut_threshold") if "cut_state" in facts else policy["threshold"]
    state = facts.get("cut_state", policy["state"])
    if facts["reason"] != "scored" or not scores or state == "closed":
        return f"Held, because {why_of(facts, found['revision'])}"
    if state == "open":
        return f"The gate was open, so that everything shipped; the best score is {max(scores):.3g}"
    needed = needed_of(facts)
    if state == "full" and needed is not None:
        what = "Held" if facts["outcome"] not in ("ship", "mixed") else "Shipped"
        revision = found["revision"]
        return f"{what}: {needed_text(needed, alpha=revision['alpha'], attempts=revision['max_attempts'])}"
    if threshold is None or policy["rule"] is not None or facts["unit"] == "batch":
        what = {"ship": "Shipped", "mixed": "Shipped in part"}.get(facts["outcome"], "Held")
        whole = ", which decides on all answers together" if facts["unit"] == "batch" else ""
        return (
            f"{what} by policy {policy['version']} ({threshold_of(facts, policy)}){whole}; the best score is "
            f"{max(scores):.3g}"
        )
    above = max(scores) > threshold
    return (
        f"The best score, {max(scores):.3g}, is {'above' if above else 'not above'} the threshold {threshold:.3g} of policy "
        f"{policy['version']}"
    )
