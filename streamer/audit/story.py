"""`audit show`: one decision, described from its record.

A decision's full receipt: its leaf, and the proof that a signed checkpoint covers it. It can be checked alone, without the
record: the leaf's hash and a proof lead to the log's root in a leaf of the log of heads, and that leaf's hash and a proof to the
checkpoint's (RFC 9162, section 2.1.3).
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamer.audit import story
from streamer.calibration.calibrators.full import Full
from streamer.calibration.guarantee import budget
from streamer.events.claims import RecordedClaims
from streamer.events.labels import fields_text
from streamer.events.responses import UPSTREAM, recorded_models
from streamer.gates.rule import INDICATOR, Cut, Needed, rule_of_text
from streamer.gates.settings import HELD_WORDS
from streamer.scoring.claims.answer import WHY_HELD, assembled, parts
from streamer.scoring.judged import form
from streamer.scoring.unread_answers import HELPS, SAYS
from streamer.signing.canonical_json import canonical_json
from streamer.signing.merkle import among, inclusion_proof, leaf_hash, root_of
from streamer.wording.numbers import counted, percent
from streamer.wording.policies import NO_CHANCE, cut_text, needed_text, smallest_budget, spoke_text, who

LEAF = ("kind", "source", "index", "recorded_at", "facts")
"""What of an outcome its leaf covers."""


def leaf_data(line: dict[str, Any]) -> bytes:
    """What a leaf is the hash of; `line` as a bundle has it."""
    return canonical_json({name: line[name] for name in LEAF})


def fits(line: dict[str, Any]) -> bool:
    """Report whether a decision's leaf follows from what the tables say now."""
    return line["facts"] is not None and leaf_hash(leaf_data(line)).hex() == line["leaf"]


def full_receipt(
    line: dict[str, Any],
    head: dict[str, Any],
    leaves: Callable[[Sequence[Any], int], Sequence[bytes]],
    proof_of_head: Callable[[int], dict[str, Any]],
) -> dict[str, Any]:
    """Prove that a checkpoint covers a decision. Raises `ValueError` when the log is not the one that was signed.

    `line` is the decision, as a bundle has it; it `fits`. `head` is the leaf of the log of heads that covers it. `leaves` returns
    the hashes of the first leaves of a log, from log id, topic and partition, and how many; `proof_of_head` the receipt's `head`
    and `checkpoint`, given the leaf's index.
    """
    place = line["source"][:3]
    said = next(one for one in head["partitions"] if [one["log_id"], one["topic"], one["partition"]] == place)
    hashes = leaves(place, said["size"])
    if root_of(hashes).hex() != said["root"]:
        raise ValueError(f"checkpoint {head['index'] + 1} was made of another log")
    return {
        "log": place,
        "index": line["index"],
        "data": leaf_data(line).decode(),
        "leaf": line["leaf"],
        "size": said["size"],
        "root": said["root"],
        "proof": [one.hex() for one in inclusion_proof(line["index"], said["size"], among(hashes))],
        **proof_of_head(head["index"]),
    }


HELD = {
    "no_threshold": "the gate had not been calibrated",
    "closed": "the gate was closed",
    "early_warning": "an early warning held the gate until people had looked",
    "bad_burst": "a prompt of its burst has a bad label",
    "too_few_responses": "there were too few responses to compare",
    **WHY_HELD,
    "empty_text": "an answer was blank",
    "not_read": "the encoder could not read an answer",
    "too_few_alike": "too few labelled prompts had answers like these, or all of them were wrong",
    "encoder_mismatch": "the gate is calibrated for a different encoder than the worker's",
    "scorer_failed": "the scorer failed",
    "signal_out_of_range": "a number that came with an answer is outside the range that the gate names",
    "no_logprob": "the event has no log-probability of an answer, and the gate scores by it",
    "no_mark": "the judge that the gate's score is made of gave no mark in time, or not to every answer",
    "upstream_mismatch": "the gate is calibrated for the answers of a different upstream, or with different settings of it",
    "attempts_exhausted": "the prompt had used up its attempts",
    "deadline_passed": "it came too late",
}
_EXCERPT = 300


def story_of(found: dict[str, Any]) -> list[tuple[str, object]]:
    """Turn what `decisions_of` returns of one decision into headings and texts, in the order of a story."""
    line = found["line"]
    facts = line["facts"]
    if facts is None:
        if "given_out" in line:
            return [("given out", line["missing"].removeprefix("it was given out in "))]
        return [("damaged", f"{line['missing']}; `streamer audit verify` says more")]
    policy, revision = found["policy"], found["revision"]
    gate, batch, attempt = facts["batch"]
    topic, partition, offset = line["source"][1:]
    lines: list[tuple[str, object]] = [
        ("batch", f"{batch} of gate {gate}, attempt {attempt}"),
        ("came", f"as {topic}[{partition}] offset {offset}, recorded {line['recorded_at']}"),
    ]
    lines += [("prompt", _excerpt(line["content"]["prompt"]) if line.get("content") else "erased")]
    models = models_of(line)
    unit = unit_of(facts)
    lines += [
        (unit, _response(one, position, line, models)) for position, one in enumerate(facts["responses"])
    ]
    lines += [("disputed", said) for said in _disputed(line, revision)]
    lines += [("upstream", said) for said in _upstream(line.get("content"))]
    lines += [("decision", _decision(facts, revision)), ("policy", _policy(facts, policy, revision))]
    if (needed := needed_of(facts)) is not None:
        alpha, attempts = revision["alpha"], revision["max_attempts"]
        compared = needed_text(needed, alpha=alpha, attempts=attempts)
        lines.append(("compared", f"{compared}; {smallest_budget(needed, attempts=attempts)}. {NO_CHANCE}"))
    if found.get("spoke"):
        lines.append(("signals", spoke_text(found["spoke"])))
    if found["run"] is not None:
        lines.append(("calibration", _run(found["run"], f"{unit}s")))
    if found.get("desk") is not None:
        lines.append(("desk", _desk(found["desk"])))
    lines.append(("audit", _draw(facts, found["labels"])))
    lines += [("label", _label(row)) for row in found["labels"]]
    for (name, kind), severity in _labelled(found).items():
        mean = (
            "none of these labels"
            if severity is None
            else f"severity {severity!r}, the mean of each labeller's newest"
        )
        lines.append(("counts", f"{name} ({kind}): {mean}"))
    for one in found["deliveries"]:
        _, topic, partition, offset = one["source"]
        lines.append(("again", f"delivered as {topic}[{partition}] offset {offset}: {one['kind']}"))
    lines.append(("action", f"{facts['action_id']}, for the topic {line['action']['topic']}"))
    lines.append(("sealed", _seal(found)))
    return lines


def _excerpt(text: str | None) -> str:
    if text is None:
        return "not kept"
    text = " ".join(text.split())
    return text if len(text) <= _EXCERPT else text[:_EXCERPT] + " ..."


def unit_of(facts: Mapping[str, Any]) -> str:
    """What a decision's rows are: a `claim` each, or a `response`."""
    scored = any(one[1] is not None for one in facts["responses"])
    return "claim" if facts["unit"] == "claim" and scored else "response"


def shown_of(found: Mapping[str, Any]) -> str | None:
    """Return the text of a gate of claims as it ships; None: nothing does, or no text is kept."""
    line = found["line"]
    claims = RecordedClaims.of((line.get("content") or {}).get("metadata"))
    if claims is None:
        return None
    ships = [one[3] == "ship" for one in line["facts"]["responses"]]
    shipped = parts(claims.answer, claims.spans, ships, found["revision"]["left_out"])
    return assembled(claims.answer, shipped) if shipped else None


def models_of(line: dict[str, Any]) -> tuple[str, ...]:
    """The language model of each response; nothing at all where none is named, or it is erased."""
    content = line.get("content") or {}
    return recorded_models(content.get("metadata"), [one[0] for one in line["facts"]["responses"]])


def _response(response: list[Any], position: int, line: dict[str, Any], models: tuple[str, ...]) -> str:
    name, score, _, action, drawn = response
    text = _excerpt(line["content"]["texts"][position]) if line.get("content") else "erased"
    scored = "not scored" if score is None else f"score {score:.6f}"
    if (rule := (line["facts"].get("not_read") or {position: None})[position]) is not None:
        scored += f", {SAYS[rule]} ({rule})"
    of = f" by {models[position]}" if models and models[position] else ""
    return f"{name}{of}: {scored}, {action}{', drawn for a label' if drawn else ''}: {text}"


def _disputed(line: dict[str, Any], revision: Mapping[str, Any]) -> list[str]:
    """The fields in which others differ from the best answer, where a gate compares fields and the texts are kept."""
    judged, scores = form(revision["judged"]), [one[1] for one in line["facts"]["responses"]]
    if not judged.structured or not line.get("content") or None in scores:
        return []
    parts = judged.parts([text or "" for text in line["content"]["texts"]])
    found = judged.disputed(parts, max(range(len(scores)), key=scores.__getitem__))
    told = (
        f"{path or 'the value'} ({percent(share, 0)} of the others say the same)"
        for path, share in found.items()
    )
    return [", ".join(told)] if found else []


def _upstream(content: Mapping[str, Any] | None) -> list[str]:
    """What was asked of the gate's upstream, and what came; nothing where the answers came otherwise, or are erased."""
    metadata = (content or {}).get("metadata") or {}
    match metadata.get("sampling"):
        case {"calls": list(calls), "finish_reasons": list(answers), "problem": problem}:
            pass
        case _:
            return []
    said = f"{metadata.get(UPSTREAM)}, {counted(len(calls), 'call', 'calls')}, "
    said += counted(len(answers), "answer", "answers") if answers else "no answers"
    if ignored := metadata["sampling"].get("ignored"):
        said += f"; the caller's {', '.join(ignored)} ignored"
    if problem is not None:
        details = [call.get("detail") for call in calls if isinstance(call, dict)]
        detail = next((one for one in reversed(details) if isinstance(one, str)), None)
        said += f": {problem}" + ("" if detail is None else f" ({_excerpt(detail)})")
    return [said]


def _decision(facts: dict[str, Any], revision: dict[str, Any]) -> str:
    outcome, selected = facts["outcome"], facts["selected"]
    what = {"ship": "shipped", "mixed": "shipped in part"}.get(outcome) or HELD_WORDS.get(outcome, "held")
    if selected is not None:
        what = f"shipped response {selected}"
    shadow = "" if facts["mode"] == "enforce" else "; in shadow mode, so that nobody was to act on it"
    return f"{what}, because {why_of(facts, revision)}; decided {facts['decided_at']}{shadow}"


def why_of(facts: dict[str, Any], revision: Mapping[str, Any]) -> str:
    """Say why a batch was decided as it was."""
    why = HELD.get(facts["reason"], "scores and threshold decided")
    if facts["reason"] == "not_read":
        why += (
            ", and the labels do not yet say what such answers are worth"
            if revision["method"] == Full.name
            else f", which the method {revision['method']} always holds; what helps is {HELPS}"
        )
    if facts["embedding_source"] == "event":
        if facts["reason"] != "encoder_mismatch":
            why += f" (the embeddings came with the event, as those of {facts['encoder']}: no worker ran it)"
        elif revision.get("embeddings") == "accept":
            why = (
                f"the embeddings that came with it were not said to be of {facts['encoder']}, or are not of dimension "
                f"{revision['dimension']}"
            )
        else:
            why = "it brought embeddings, and the gate refuses those that it does not make"
    if facts["reason"] == "too_few_responses" and not facts["responses"]:
        why = "no answer came"
    if facts["reason"] == "no_threshold" and all(one[1] is None for one in facts["responses"]):
        why = "the worker trusted no policy of the gate: none was signed with a key that it knows"
    return why


def needed_of(facts: Mapping[str, Any]) -> Needed | None:
    """The budget that a batch would have shipped with, where the policy said it."""
    return None if facts.get("budget") is None else Needed(*facts["budget"])


def threshold_of(facts: Mapping[str, Any], policy: Mapping[str, Any]) -> str:
    """Write the threshold that a batch was decided by: its own, where it had one."""
    if "cut_state" in facts:
        return cut_text(Cut(facts["cut_state"], facts.get("cut_threshold")), INDICATOR)
    rule = INDICATOR if policy["rule"] is None else rule_of_text(policy["rule"])
    return cut_text(Cut(policy["state"], policy["threshold"]), rule)


def _policy(facts: dict[str, Any], policy: dict[str, Any], revision: dict[str, Any]) -> str:
    own = " for this batch" if "cut_state" in facts else ""
    if own and facts.get("segment") is not None:
        own += f", segment {facts['segment']!r}"
    cut = threshold_of(facts, policy)
    return (
        f"version {policy['version']}, in force since {policy['valid_from']}: {cut}{own}, unit {facts['unit']}, "
        f"budget {budget(revision['alpha'])}, method {revision['method']}; by {who(policy['created_by'])}: {policy['reason'].rstrip('.')}. "
        + (policy["guarantee"] or "Nothing was promised.")
    )


def _run(run: dict[str, Any], what: str) -> str:
    return (
        f"run {run['id']} by {who(run['requested_by'])}, {run['finished_at']}: {run['groups']} groups, {run['items']} "
        f"drawn {what}, {run['missing']} without a label"
    )


def _draw(facts: dict[str, Any], labels: list[dict[str, Any]]) -> str:
    chance = f"probability {facts['sampling_probability']!r}"
    if facts.get("audit_rate") is not None:
        beyond = ", which alone drew it" if facts["extra_draw"] else ""
        chance += f", raised by audit rate {facts['audit_rate']}{beyond}"
    if not facts["sampled"]:
        return f"not drawn for the audit sample ({chance})"
    waits = "" if labels else "; nobody has labelled it yet"
    return f"drawn for the audit sample ({chance}){waits}"


def _desk(row: dict[str, Any]) -> str:
    if row["reason"] == "deadline_passed":
        return f"rejected at {row['at']}: nobody had decided by the deadline, {row['until']}"
    what = "rejected"
    if row["action"] == "released":
        shown = _excerpt(row["content"]["text"]) if "content" in row else "erased"
        back = "" if row["claims"] is None else f" with {', '.join(json.loads(row['claims']))} put back"
        edited = ", edited" if row["edited"] else ""
        what = f"released response {row['response_id']}{back}{edited}: {shown};"
    return f"{what} by {who(row['by'])}, {row['at']}" + (f": {row['remark']}" if row["remark"] else "")


def _label(row: dict[str, Any]) -> str:
    return (
        f"{row['response_id']}: severity {row['severity']!r}{fields_text(row['severities'])} ({row['kind']}) by {row['labeller']}, "
        f"{row['labelled_at']}, by {row['source']}"
    )


def _labelled(found: dict[str, Any]) -> dict[tuple[str, str], float | None]:
    """The severity of each response and kind that counts, where that is not its only label's; None where none of them counts."""
    given = Counter((row["response_id"], row["kind"]) for row in found["labels"])
    counts = {(one["response_id"], one["kind"]): one["severity"] for one in found["severities"]}
    return {of: counts.get(of) for of, labels in given.items() if labels > 1 or of not in counts}


def _seal(found: dict[str, Any]) -> str:
    line, head = found["line"], found["head"]
    fits = "which fits what the tables say" if story.fits(line) else "which DOES NOT FIT what the tables say"
    covered = "no checkpoint covers it yet"
    if head is not None:
        covered = f"checkpoint {head['index'] + 1} of {head['at']} covers it"
    return f"leaf {line['index']}, {line['leaf'][:16]}..., {fits}; {covered}"
