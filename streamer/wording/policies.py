"""Policies in words: what they cut by, whether they ship, what they promise, what a threshold does, and the budget that a decision
needed.
"""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from streamer.calibration.full_fit import allowed, chance_above
from streamer.gates.policy import MONITOR, RECALIBRATOR, SIGNED_IN, WARNING, GateRevision, Policy
from streamer.gates.rule import INDICATOR, BatchCut, Chance, Cut, Full, Needed, Quantile, Rank, Rule, Segments
from streamer.gates.setting_changes import calibrated_for_another, unread
from streamer.gates.settings import PARAMETERS, SETTINGS, GateSettings, parameter_setting
from streamer.recalibration.gate_rule import Proposal
from streamer.recalibration.sampled import SampledGroup, cuts_at_budget
from streamer.scoring.signals.signal_list import SignalList
from streamer.wording.numbers import counted, duration, percent, when

NOTHING_PROMISED = "Nothing is promised, and nothing ships."


FEWER_HELPS = "the promise does not cover them; ask for as many answers, or calibrate on prompts with as few"


def fewer_text(fewer: int, of: str, fewest: int) -> str:
    """Say how many prompts have fewer answers than those that calibrated: among few, answers agree by chance more often."""
    return f"fewer answers than any prompt that calibrated (at least {fewest}): {fewer:,} of {of}"


def setting_name(name: str) -> str:
    """Write the name of a setting for people: ``label deadline``."""
    return name.replace("_", " ").removesuffix(" seconds")


def setting_text(name: str, value: object) -> str:
    """Write the value of a setting for people: ``12h``, ``yes``, ``none``."""
    if value is None:
        return SETTINGS[name].nothing if name in SETTINGS else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "model":
        return f"{len(str(value))} characters of JSON"
    if name == "signals":
        return ", ".join(SignalList.of_text(str(value)).written) or "none but those computed here"
    if isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, float):
        return duration(value) if name.endswith("_seconds") else f"{value:.6g}"
    return str(value)


def settings_shown(settings: GateSettings) -> list[tuple[str, str, str]]:
    """Name, meaning and value, as people read them, of each setting that has an effect on its gate."""
    said = {**SETTINGS, **{one: parameter_setting(one) for one in PARAMETERS}}
    return [
        (setting_name(name), said[name].help, setting_text(name, value))
        for name, value in settings.named().items()
        if name not in unread(settings)
    ]


def cut_text(cut: Cut, rule: Rule) -> str:
    """Write a cut as its rule reads it: ``closed``, ``open``, ``Q > 0.83``, ``by batch, at most 0.83``."""
    if isinstance(rule, Segments):
        rest = cut_text(cut, INDICATOR)
        return f"{len(rule.own)} segments, the rest {rest}"
    if isinstance(rule, Full) and cut.state == "full":
        return f"all signals, {counted(rule.fits[0].groups, 'prompt', 'prompts')}"
    if cut.threshold is None:
        return cut.state
    level = f"{cut.threshold:.6g}"
    if isinstance(rule, BatchCut):
        return f"by batch, at most {level}"
    if isinstance(rule, Chance):
        return f"{rule.kind} at {level}, width {rule.width:g}"
    if isinstance(rule, Quantile) and rule.quantile is not None:
        return f"Q > {level} (quantile {rule.quantile:.4g})"
    return f"rank > {level}" if isinstance(rule, Rank) else f"Q > {level}"


def who(name: str) -> str:
    """Say who did something, and how that is known: a name that a command was given is a claim, ``ana (name not verified)``."""
    if name.startswith(SIGNED_IN):
        return f"{name.removeprefix(SIGNED_IN)} (signed in)"
    return {RECALIBRATOR: "the recalibrator", MONITOR: "an alarm", WARNING: "an early warning"}.get(
        name, f"{name} (name not verified)"
    )


def own_cuts(rule: Rule) -> bool:
    """Whether something may ship though the policy's own cut is closed: segments have cuts of their own."""
    return isinstance(rule, Segments) and any(cut.state != "closed" for _, cut in rule.own)


def threshold_text(policy: Policy) -> str:
    """Write the threshold of a policy, or that it was never calibrated."""
    if not policy.calibrated:
        return "closed, not calibrated"
    return cut_text(Cut(policy.state, policy.threshold), policy.rule)


def segment_lines(rule: Rule) -> str | None:
    """Write the cut of each segment, one a line; None for a rule without segments."""
    if isinstance(rule, Full) and rule.segment_by is not None:
        return "\n".join(
            f"{name or '(none named)'}: {counted(groups, 'prompt', 'prompts')}, {_at_most(k)}"
            for name, groups, k in rule.fits[0].own
        )
    if not isinstance(rule, Segments):
        return None
    return (
        "\n".join(f"{name or '(none named)'}: {cut_text(cut, INDICATOR)}" for name, cut in rule.own) or "none"
    )


MOST_WEIGHTS = 6
"""Signals that are shown with what they weigh: the heaviest."""


def weights_text(policy: Policy) -> str | None:
    """Say which signals carry the decisions, and which way; None for a policy that does not read them."""
    listed = policy.settings.signal_list
    if not isinstance(policy.rule, Full) or listed is None:
        return None
    weights = list(policy.rule.weights(listed.columns).items())[:MOST_WEIGHTS]
    return ", ".join(f"{name.replace('_', ' ')} {weight:+.2f}" for name, weight in weights) or None


def variability_text(policy: Policy, groups: int) -> str | None:
    """Say how much one calibration may expose, where the promise is a mean over calibrations on so many prompts; None elsewhere."""
    settings, rule = policy.settings, policy.rule
    if isinstance(rule, Full) and rule.segment_by is None:
        groups, exact = rule.fits[0].groups, "exact for a cut of one score, hardly more for all signals"
    elif groups and rule == INDICATOR and cuts_at_budget(settings, rule):
        exact = "exact for severities of 0 or 1 and scores without ties, fewer otherwise"
    else:
        return None
    level = min(1.5 * settings.alpha / settings.max_attempts, 1.0)
    chance = chance_above(level, alpha=settings.alpha, groups=groups, attempts=settings.max_attempts)
    return (
        f"{percent(chance)} of calibrations on {counted(groups, 'prompt', 'prompts')} expose more than {percent(level)} ({exact}): the promise "
        "is a mean over calibrations"
    )


def selection_text(
    policy: Policy, history: Sequence[GateRevision], sample: Sequence[SampledGroup]
) -> str | None:
    """Say that what the policy was calibrated for was settled when some of its prompts, `sample`,
    had been seen; None where it was not.

    `history` : every revision of the gate, the oldest first.
    """
    until = [one for one in history if one.revision <= policy.gate_revision]
    for before, after in reversed(list(pairwise(until))):
        if names := calibrated_for_another(before.settings, after.settings):
            seen = sum(one.decided_at is not None and one.decided_at < after.created_at for one in sample)
            return (
                None
                if not seen
                else (
                    f"{' and '.join(names).replace('_', ' ')} was settled {when(after.created_at)}, when {seen} of the {len(sample)} prompts that "
                    "calibrate were decided already: this holds if they had no part in it. What is chosen by what it ships is a "
                    "selection; its promise begins with a calibration on prompts decided since."
                )
            )
    return None


def why_text(by: str, reason: str) -> str:
    """Say why a policy was made; of one that an alarm made, which alarm: its alert says the rest."""
    return reason.partition(": ")[0] if by in (MONITOR, WARNING) else reason


def status_text(policy: Policy) -> str:
    """Say in one sentence whether the gate ships, and if not, why and what opens it."""
    shadow = "" if policy.settings.mode == "enforce" else " (shadow: consumers do not enforce)"
    to_calibrate = "not calibrated for these settings; see `streamer recalibrate`"
    if (one := policy.closing) is not None:
        why = why_text(one.by, one.reason).rstrip(".")
        also = "" if policy.calibrated else f"; {to_calibrate}"
        return f"closed, holds everything since policy {one.version}, by {who(one.by)}: {why}{also}{shadow}"
    if not policy.calibrated:
        return f"closed, holds everything: {to_calibrate}{shadow}"
    if isinstance(policy.rule, Segments) and not own_cuts(policy.rule) and policy.state == "closed":
        return (
            f"closed, holds everything: no segment by {policy.rule.key!r} has enough labels to keep the budget "
            f"{percent(policy.settings.alpha)}; more labels or a larger budget open it{shadow}"
        )
    if isinstance(policy.rule, Segments):
        return (
            f"{len(policy.rule.own)} segments by {policy.rule.key!r} ship by thresholds of their own, budget "
            f"{percent(policy.settings.alpha)} each; every other: {cut_text(Cut(policy.state, policy.threshold), INDICATOR)}{shadow}"
        )
    if policy.state == "closed":
        if policy.calibration_run is None:
            why = why_text(policy.created_by, policy.reason)
            return f"closed, holds everything: {why.rstrip('.')}{shadow}"
        return (
            "closed, holds everything: no threshold keeps the budget "
            f"{percent(policy.settings.alpha)} on the present labels; more labels or a larger budget open it{shadow}"
        )
    if isinstance(policy.rule, Full):
        (first, *newest) = policy.rule.fits
        worse = f", and of the newest {newest[0].groups} {_at_most(newest[0].allowed)}" if newest else ""
        if policy.rule.segment_by is not None:
            return (
                f"ships by all signals within each of {len(first.own)} segments by {policy.rule.segment_by!r}, budget "
                f"{percent(policy.settings.alpha)} each{shadow}"
            )
        return (
            f"ships what looks better than the wrong ones of {first.groups} labelled prompts, but for {_at_most(first.allowed)}"
            f"{worse}, budget {percent(policy.settings.alpha)}{shadow}"
        )
    if policy.state == "open":
        return f"open, ships everything: the labels allow it within the budget {percent(policy.settings.alpha)}{shadow}"
    return f"{_what_ships(policy)}, budget {percent(policy.settings.alpha)}{shadow}"


def _at_most(allowed: int) -> str:
    """How many wrong prompts may look at least as good as an answer that ships: the answer itself is one of those allowed."""
    return f"at most {max(allowed - 1, 0)}" if allowed else "none, so that nothing ships"


def _what_ships(policy: Policy) -> str:
    rule, level = policy.rule, f"{policy.threshold:.6g}"
    if isinstance(rule, BatchCut):
        return f"cuts each batch by a threshold of its own, none above {level}"
    if isinstance(rule, Chance):
        return f"ships with a probability that rises with the score ({rule.kind}, width {rule.width:g}, at {level})"
    if isinstance(rule, Rank):
        return f"ships what ranks above {level} within its batch"
    if policy.threshold is not None and policy.threshold >= 1:
        return "ships nothing, because no score is above 1: the labels allow no more"
    return f"ships what scores above {level}"


def way_into_force(gate: str, settings: GateSettings) -> str:
    """Say how what is proposed comes into force: the command, where one may."""
    if settings.two_people:
        return "at `streamer console`, by somebody who has signed in and did not ask for it"
    return f"streamer threshold activate {gate}"


def waits_text(proposal: Proposal) -> str:
    """Say in a sentence what a proposal waits for; empty where nobody said."""
    if proposal.held_until is not None:
        why = f": {proposal.why}" if proposal.why else ""
        return f"It is held until {when(proposal.held_until)} and comes into force if it passes then{why}."
    return f"It waits for a person: {proposal.why}." if proposal.why else ""


def guarantee_text(guarantee: str) -> str:
    """Break a guarantee into its parts, one a line: what holds, on what basis, if what, and what is not promised."""
    return re.sub(r" (?=(?:Basis|Assumptions|Not promised|Besides): )", "\n", guarantee)


MOST_SPOKE = 3
"""Signals that are named on each side: those that spoke most."""

NO_CHANCE = "It is no chance of being wrong, and a budget that is chosen by it has no promise."


def needed_text(needed: Needed, *, alpha: float, attempts: int = 1) -> str:
    """Say why a budget, which this many attempts share, was or was not enough for a decision: ``31
    of 250 labelled prompts were wrong and looked at least this good; ...``.
    """
    others, k = needed.count - 1, allowed(alpha, needed.groups, attempts=attempts)
    were = "was wrong and looked" if others == 1 else "were wrong and looked"
    labelled = counted(needed.groups, "labelled prompt", "labelled prompts")
    if needed.share >= 1:
        return f"of {labelled} too few had answers like these, or all {were} at least this good"
    budget = percent(alpha) if attempts == 1 else f"{percent(alpha)} for {attempts} attempts"
    room = f"{k - 1} besides it" if k else "none, not even it"
    return f"{others:g} of {labelled} {were} at least this good; the budget of {budget} allows {room}"


def smallest_budget(needed: Needed, *, attempts: int = 1) -> str:
    """Say from which budget on it ships: ``it ships from a budget of 12.4 % on``."""
    share = math.ceil(1000 * needed.share * attempts) / 1000
    return f"it ships from a budget of {percent(share)} on" if share < 1 else "no budget ships it"


def spoke_text(spoke: Mapping[str, float]) -> str:
    """Name the signals that spoke most for an answer, and those that spoke most against it, each with how much."""
    ranked = sorted(spoke.items(), key=lambda one: -one[1])

    def named(some: list[tuple[str, float]]) -> str:
        return ", ".join(f"{name} ({value:+.2f})" for name, value in some) or "nothing"

    most = [one for one in ranked if one[1] >= _LEAST][:MOST_SPOKE]
    least = [one for one in reversed(ranked) if one[1] <= -_LEAST][:MOST_SPOKE]
    return f"for it: {named(most)}; against it: {named(least)}"


_LEAST = 0.005
"""What is written as 0.00 did not speak."""
