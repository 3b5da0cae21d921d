"""The page that asks what another budget or threshold would have made of a gate's past."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Final, NamedTuple

from streamer.clouds.evaluated_claims import claims_sentence
from streamer.clouds.stored_answers import StoredBatch
from streamer.console.charts import interval_bar
from streamer.errors import StreamerError, Unavailable, UsageError
from streamer.frames.recorded import recorded, tried_claims, tried_record
from streamer.frames.results import Report, spread_text
from streamer.gates.policy import CandidatePolicy
from streamer.gates.rule import Cut
from streamer.gates.settings import GateSettings
from streamer.store import Store
from streamer.whatif import Change, Changed, WhatIf, WhatIfAnswer
from streamer.whatif.words import among, answer_rows, basis_sentence, caveats, columns, sentence
from streamer.wording.numbers import SERVED, items, percent

DAYS: Final = (1, 7, 30, 90, 365)
MOST_PROMPTS: Final = 20_000
"""A slider is to answer at once; `streamer what-if` looks at more."""

KEPT_SECONDS: Final = 60.0
_SHOWN: Final = 10
_MOST_ASKED: Final = 8


class _Asked(NamedTuple):
    asking: WhatIf
    batches: list[StoredBatch]
    young: list[str]
    own: list[tuple[Report, list[str]]]
    version: int
    at: float
    lock: threading.Lock
    beside: dict[int, dict[str, Any]]


class Questions:
    """Answers questions about gates' pasts. What was read of one is kept for a minute, so that a slider may ask often."""

    def __init__(self, store: Store, *, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock
        self._asked: dict[tuple[str, int], _Asked] = {}

    def sliders(self, gate: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return where the sliders stand; raises `UsageError` for a value that cannot be."""
        policy = self._store.policies.newest(gate)
        about = query.get("about") or "budget"
        if about not in ("budget", "threshold"):
            raise UsageError("ask about a budget or a threshold")
        # What is in force may lie beyond what is asked about: a tiny budget, a threshold of a gradual shape.
        own = float(f"{100 * policy.settings.alpha:g}")
        budget = number("budget", query.get("budget") or f"{own:g}", min(0.1, own), max(99, own))
        present = round(0.5 if policy.threshold is None else policy.threshold, 3)
        threshold = number(
            "threshold", query.get("threshold") or f"{present:.3f}", min(0, present), max(1, present)
        )
        days = int(number("days", query.get("days") or "30", 1, 36_500))
        return {
            "about": about,
            "budget_value": f"{budget:g}",
            "threshold_value": f"{threshold:g}",
            "days": days,
            "all_days": sorted({*DAYS, days}),
            "in_force": {
                "budget": policy.settings.alpha,
                "threshold": policy.threshold,
                "by_signals": policy.settings.calibrator.of_signals and policy.threshold is None,
                "version": policy.version,
            },
        }

    def answer(self, gate: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return what would have come of it, or in `wrong` why that cannot be said."""
        try:
            at = self.sliders(gate, query)
        except UsageError as error:
            return self.sliders(gate, {}) | {"wrong": str(error), "answer": None}
        try:
            asked = self._asking(gate, at["days"])
            with asked.lock:
                if at["about"] == "budget":
                    told = self._tried(gate, asked, percent_of(at["budget_value"]))
                else:
                    change = Change(cut=Cut.at(float(at["threshold_value"])))
                    told = self._told(gate, asked.asking.ask(change), change)
        except Unavailable:
            raise
        except StreamerError as error:
            return at | {"wrong": str(error), "answer": None}
        return at | {"wrong": None, "answer": True, "doubt": self._store.alerts.doubt(gate)} | told

    def _tried(self, gate: str, asked: _Asked, alpha: float) -> dict[str, Any]:
        """Another budget, tried on halves of the record; what the gate's own settings give is found once."""
        settings = self._store.gates.get(gate).settings
        if settings.unit == "claim":
            return self._tried_claims(gate, settings, asked, alpha)
        if not asked.own:
            asked.own.append(tried_record(asked.batches, settings, settings))
        (own, notes), each = asked.own[0], alpha / settings.max_attempts
        found = own.at_budget(each)
        if found is None:
            found = tried_record(asked.batches, settings, replace(settings, alpha=alpha))[0]
        both = (own, found)
        answers = [
            (
                {"batch_id": one.prompt_id, "score": one.score, "severity": one.severity},
                one.prompt,
                one.answer,
            )
            for one in found.through[:_SHOWN]
        ]
        return _beside(settings, alpha, [*asked.young, *notes]) | {
            "said": f"{found.sentence}.",
            "basis": found.basis,
            "rows": [
                ("prompts", *(str(one.prompts) for one in both)),
                *(
                    (name, *(spread_text(getattr(one.at, field)) for one in both))
                    for name, field in (
                        (f"share of {SERVED[settings.unit]} served", "ship_rate"),
                        ("error rate among shipped", "selective"),
                        ("exposure", "exposure"),
                    )
                ),
            ],
            "changes": [
                (
                    "that are wrong would have got through",
                    {"count": len(found.through), "rate": "", "answers": answers},
                )
            ],
        }

    def _tried_claims(self, gate: str, settings: GateSettings, asked: _Asked, alpha: float) -> dict[str, Any]:
        """Another budget of a gate of claims, and its own beside it."""
        results, _ = tried_claims(gate, asked.batches, settings, replace(settings, alpha=alpha))
        result, (found,), (own,) = results[0], results[0].rows, results[-1].rows
        return _beside(settings, alpha, [*asked.young, *result.notes]) | {
            "said": f"{claims_sentence([found])}.",
            "basis": f"Of {result.prompts} drawn prompts with {result.claims} claims a random half calibrates and the other is "
            "measured, again and again: no label counts for both.",
            "rows": [
                (name, *(spread_text(getattr(one, field)) for one in (own, found)))
                for name, field in (
                    ("share of prompts that get something", "something"),
                    ("kept of an answer", "kept"),
                    ("wrong among shipped claims", "wrong"),
                    (f"loss {settings.loss}", "risk"),
                )
            ],
        }

    def _asking(self, gate: str, days: int) -> _Asked:
        version = self._store.policies.newest(gate).version
        known = self._asked.get((gate, days))
        if known is not None and known.version == version and monotonic() - known.at < KEPT_SECONDS:
            return known
        now = self._clock()
        asking = WhatIf(
            self._store.gates.get(gate),
            past=self._store.past,
            sample=self._store.calibration,
            policies=self._store.policies,
            since=now - timedelta(days=days),
            now=now,
            most=MOST_PROMPTS,
            candidates=self._store.candidates,
        )
        while len(self._asked) >= _MOST_ASKED:
            self._asked.pop(next(iter(self._asked)), None)
        batches, young = recorded(
            self._store.answers,
            self._store.calibration,
            gate,
            self._store.gates.get(gate).settings,
            now=now,
            since=now - timedelta(days=days),
        )
        made = _Asked(asking, batches, young, [], version, monotonic(), threading.Lock(), {})
        self._asked[(gate, days)] = made
        return made

    def candidate(self, candidate: CandidatePolicy) -> dict[str, Any]:
        """What a gate's candidate policy made of the same past. Found once a minute."""
        try:
            asked = self._asking(candidate.gate, 30)
            with asked.lock:
                if candidate.number not in asked.beside:
                    change = Change(candidate=True)
                    answer = asked.asking.ask(change)
                    asked.beside[candidate.number] = {
                        "said": sentence(answer, change).removeprefix(f"{candidate.gate} "),
                        "basis": basis_sentence(answer),
                        "rows": answer_rows(answer),
                        "columns": columns(answer),
                    }
                return asked.beside[candidate.number]
        except Unavailable:
            raise
        except StreamerError as error:
            return {"rows": [], "basis": "", "wrong": f"Nothing to compare yet: {error}."}

    def _told(self, gate: str, answer: WhatIfAnswer, change: Change) -> dict[str, Any]:
        judged = [
            (one.selective if answer.promised == "selective" else one.exposure)
            for one in (answer.recorded, answer.asked)
        ]
        return {
            "said": sentence(answer, change).removeprefix(f"{gate} "),
            "basis": basis_sentence(answer),
            "rows": answer_rows(answer),
            "columns": columns(answer),
            "bars": [interval_bar(one, answer.budget) for one in judged],
            "caveats": caveats(answer),
            "named": items(answer.settings.unit),
            "changes": [
                ("would have got through", self._changed(gate, answer, answer.more)),
                ("would have been held instead", self._changed(gate, answer, answer.less)),
            ],
            "differences": len(answer.differences),
        }

    def _changed(self, gate: str, answer: WhatIfAnswer, found: Changed) -> dict[str, Any]:
        # Those with a label first: they say what came of it.
        shown = sorted(found.answers, key=lambda one: (one.severity is None, -(one.severity or 0.0)))[:_SHOWN]
        texts = self._store.decision_search.texts(gate, [(one.batch_id, one.response_id) for one in shown])
        return {
            "count": len(found.answers),
            "rate": f"; {among(answer, found)}",
            "answers": [(one, *texts.get((one.batch_id, one.response_id), (None, None))) for one in shown],
        }


def _beside(settings: GateSettings, alpha: float, notes: list[str]) -> dict[str, Any]:
    """What is shown alike of every budget that was tried on halves, beside the gate's own."""
    return {
        "columns": [f"its own budget, {percent(settings.alpha)}", f"{percent(alpha)}"],
        "bars": [],
        "caveats": [*notes, "Means over the halves, with one standard error of other prompts like these."],
        "named": items(settings.unit),
        "changes": [],
        "differences": 0,
    }


def percent_of(text: str) -> float:
    """Read a budget in percent as a share. Raises `UsageError`."""
    return round(number("budget", text, 0.001, 99.9) / 100, 10)


def number(name: str, text: str, least: float, most: float) -> float:
    """Read a number within bounds, whose decimals may follow a comma. Raises `UsageError`."""
    try:
        found = float(text.strip().replace(",", "."))
    except ValueError:
        found = float("nan")
    if not least <= found <= most:
        raise UsageError(f"the {name} must be a number from {least:g} to {most:g}, not {text!r}")
    return found
