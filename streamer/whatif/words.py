"""Answers to what-if questions for people: what was asked, what would have come of it, and what that does not say."""

from streamer.recalibration.age_cut import span
from streamer.risk.states import RiskInterval
from streamer.whatif import Change, Changed, WhatIfAnswer
from streamer.wording.numbers import SERVED, counted, items, percent, when
from streamer.wording.policies import cut_text
from streamer.wording.verdicts import interval_text, risk_names


def sentence(answer: WhatIfAnswer, change: Change) -> str:
    """Say in one sentence what would have come of it, beside what came."""
    asked, was = answer.asked, answer.recorded
    unit = answer.settings.unit
    names = risk_names(unit, answer.settings.loss)
    share, shared = (asked.shipped, was.shipped) if unit == "response" else (asked.served, was.served)
    return (
        f"{answer.gate.gate} {_asked(answer, change)}: {percent(share)} of {SERVED[unit]} served in place of "
        f"{percent(shared)}; {names['selective']} {_interval(asked.selective)} (it was "
        f"{_estimate(was.selective)}), {names['exposure']} {_interval(asked.exposure)} (it was {_estimate(was.exposure)})."
    )


def among(answer: WhatIfAnswer, found: Changed) -> str:
    """Say how bad is what would ship, or be held, in place of what was."""
    loss, name = answer.settings.loss, "error rate among them"
    if answer.settings.unit == "claim":
        name = f"loss {loss} of a prompt that gets some of them"
    return f"{name} {interval_text(found.selective)}"


def _asked(answer: WhatIfAnswer, change: Change) -> str:
    """Name what was asked about: ``with the threshold Q > 0.7``."""
    if change.proposal:
        return "with the proposed threshold"
    if change.candidate:
        return "under its candidate policy"
    if change.policy is not None:
        return f"under policy {change.policy}"
    if change.cut is None:
        raise ValueError("nothing was asked")
    text = cut_text(change.cut, answer.reading.rule)
    return f"with the gate {text}" if change.cut.threshold is None else f"with the threshold {text}"


def _interval(interval: RiskInterval) -> str:
    """As `interval_text`; what is known exactly, because nothing ships, has no bounds."""
    if interval.estimate == interval.lower == interval.upper:
        return percent(interval.lower)
    return interval_text(interval)


def _estimate(interval: RiskInterval) -> str:
    return "not known" if interval.estimate is None else percent(interval.estimate)


def basis_sentence(answer: WhatIfAnswer) -> str:
    """Say where the threshold comes from, and on which prompts it is judged."""
    basis = answer.basis
    threshold = cut_text(answer.reading.cut, answer.reading.rule)
    if basis.source == "given":
        return (
            "The threshold was given. The intervals hold for one that was chosen without these labels; who compares k gives "
            "each a k-th of the chance that it is wrong (the monitor delta)."
        )
    if basis.source == "calibrated":
        said = f"The threshold, {threshold}, is calibrated on {counted(basis.prompts, 'prompt', 'prompts')}"
        before = "" if basis.before is None else f" decided before {when(basis.before)}"
        said += f"{before} and judged on {'those' if before else 'prompts'} decided since: no label counts for both"
        if basis.moved:
            said += " (too few were decided before the period, so its older half calibrates)"
        return said + "."
    name = basis.source
    if basis.before is None:
        return f"The policy's threshold, {threshold}, comes from no calibration."
    if name == "candidate":
        return (
            f"The candidate's threshold, {threshold}, was set at {when(basis.before)}, and is judged on prompts decided since: it was "
            "decided beside them."
        )
    return (
        f"The threshold of the {name}, {threshold}, was chosen by labels of prompts decided before {when(basis.before)}, and is "
        "judged on those decided since."
    )


def in_force(answer: WhatIfAnswer) -> str:
    """Name the policies that decided."""
    first, last = answer.versions
    return f"policy {first}, in force" if first == last else f"policies {first} to {last}, in force"


def columns(answer: WhatIfAnswer) -> list[str]:
    """Name the columns of `answer_rows` behind the first."""
    return [in_force(answer), "what if"]


def answer_rows(answer: WhatIfAnswer) -> list[tuple[str, ...]]:
    """Put side by side what was in force and what was asked about."""
    both = (answer.recorded, answer.asked)
    rows: list[tuple[str, ...]] = [
        ("prompts", *(str(one.prompts) for one in both)),
        ("share of prompts served", *(percent(one.served) for one in both)),
    ]
    if answer.settings.unit == "response":
        rows.append(("share of responses shipped", *(percent(one.shipped) for one in both)))
    if answer.settings.unit == "claim":
        rows.append(("claims that ship", *(str(one.answers) for one in both)))
    for risk, name in reversed(risk_names(answer.settings.unit, answer.settings.loss).items()):
        promised = f", budget {percent(answer.budget)}" if answer.promised == risk else ""
        rows.append((f"{name}{promised}", *(_interval(getattr(one, risk)) for one in both)))
    rows.append((f"labelled shipped {items(answer.settings.unit)[1]}", *(str(one.labelled) for one in both)))
    if any(one.exposure.overdue for one in both):
        rows.append(("drawn, shipped, not known how bad", *(str(one.exposure.overdue) for one in both)))
    return rows


def caveats(answer: WhatIfAnswer) -> list[str]:
    """Say what the figures do not say."""
    said = [
        f"Intervals hold with {percent(1 - answer.delta)}, each column for itself, at all times at once. A threshold for all of "
        "the period is not what recalibration would have done day by day."
    ]
    if answer.judged < answer.prompts and answer.age is not None:
        said.append(
            f"All figures, and the answers that are listed, are of the {answer.judged} of {answer.prompts} prompts that are older than "
            f"{span(answer.age.seconds)}: labels of younger ones may still come.{answer.younger}"
        )
    unknown = max(answer.asked.exposure.overdue, answer.recorded.exposure.overdue)
    if unknown:
        said.append(
            "What was drawn and would ship, and nobody knows how bad it is, counts 0 in the lower bound, 1 in the upper one and 1 in the "
            "estimate."
        )
    if answer.basis.missing:
        said.append(
            f"{answer.basis.missing} of {answer.basis.drawn} drawn {items(answer.settings.unit)[1]} had no label that calibration could use, and "
            "counted as severity 1."
        )
    if answer.closed:
        said.append(f"{answer.closed} of these prompts were decided while the gate was closed.")
    if answer.shadow:
        said.append(
            f"{counted(answer.shadow, 'prompt was', 'prompts were')} decided in shadow mode: in force means what the gate said, and "
            "consumers acted as if there were none."
        )
    if answer.unscored:
        said.append(
            f"{counted(answer.unscored, 'prompt was', 'prompts were')} held without scores: no policy ships these."
        )
    if answer.unaudited:
        said.append(
            f"Of {counted(answer.unaudited, 'prompt', 'prompts')} nothing is known, for the audit could not draw them."
        )
    said += [f"{count} prompts of the period are left out: {why}." for why, count in answer.left_out.items()]
    if answer.settings.max_attempts > 1:
        said.append(
            f"Of first attempts alone, at a budget of {percent(answer.budget)}: what a later attempt would have been depends on "
            "what the first one shipped."
        )
    return said
