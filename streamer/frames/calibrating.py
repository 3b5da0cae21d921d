"""What the prompts of a table give to a calibration: segments, bursts, signals, and the scores of prompts without labels."""

import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from streamer.calibration.full_fit import Prompts
from streamer.calibration.groups import LabelledGroup
from streamer.calibration.guarantee import budget
from streamer.calibration.history import History
from streamer.calibration.specification import Sample
from streamer.clouds.offline import ScoredCloud, bad_groups, held_as, measured_units
from streamer.errors import UsageError
from streamer.frames.answers import Encode, Read
from streamer.gates.batch_key import BatchKey
from streamer.gates.declared import Unit
from streamer.gates.policy import burst_of, sealed_burst, segment_of
from streamer.gates.rule import INDICATOR
from streamer.gates.settings import GateSettings
from streamer.recalibration.candidates import for_gate
from streamer.recalibration.sampled import (
    SampledGroup,
    SampledItem,
    bad_bursts,
    cuts_at_budget,
    one_of_each,
)
from streamer.scoring.blank import is_blank
from streamer.scoring.registry import LIKELIHOOD
from streamer.scoring.unread_answers import HELPS
from streamer.wording.numbers import counted
from streamer.wording.policies import FEWER_HELPS, fewer_text


class Marking(NamedTuple):
    """An encoder of this program, which says by rows of NaN or zeros what it does not read: it has an identity."""

    encode: Encode
    identity: None = None


def encode_of(encoder: Any) -> Encode | None:
    """Return what makes embeddings of texts by a name, an object or a function; None for None. Raises `ValueError`."""
    if encoder is None:
        return None
    if isinstance(encoder, str):
        from streamer.scoring.encoders.registry import load_encoder

        loaded = load_encoder(encoder)
        return lambda texts: loaded.encode(texts)
    for one in (getattr(encoder, "encode", None), encoder):
        if callable(one):
            return one if hasattr(encoder, "identity") else partial(_by_others, one)
    raise ValueError(
        f"encoder must be a name, an object with encode(texts), or a function of texts, not {type(encoder).__name__}"
    )


def _by_others(encode: Encode, texts: list[str]) -> ArrayLike:
    rows = np.asarray(encode(texts))
    if rows.ndim != 2 or len(rows) != len(texts) or rows.dtype.kind not in "fiu":
        raise UsageError(
            f"the encoder must return one row of numbers for each text, shape ({len(texts)}, d), not "
            f"{rows.dtype} of shape {rows.shape}"
        )
    seen = [not is_blank(text) for text in texts]
    if not np.isfinite(rows[seen]).all():
        raise UsageError(
            "the encoder returned a vector that is not finite for a text that is not blank: mend it, or leave the answer out"
        )
    if not rows[seen].any(axis=1).all():
        warnings.warn(
            "the encoder returned only zeros for some texts that are not blank: it counts as not having read them, and their "
            "prompts are held until labels say what they are worth",
            stacklevel=2,
        )
    return rows


def any_budget(settings: GateSettings) -> bool:
    """Whether a decision names the budget that it needed, so that one calibration answers for all of them."""
    segmented = settings.segment_by is not None and not settings.calibrator.of_signals
    return settings.calibrator.of_signals or (cuts_at_budget(settings, INDICATOR) and not segmented)


def why_closed(settings: GateSettings, sample: Sample) -> str:
    """Say in a sentence why nothing ships, and what would help."""
    least = settings.calibrator.groups_needed(sample.alpha)
    if len(sample.groups) < least:
        return (
            f"Nothing ships: a budget of {budget(sample.alpha)} by method {settings.method} needs at least {least} labelled prompts, "
            f"and there are {len(sample.groups)}."
        )
    reason = settings.calibrator.why_closed(for_gate(settings, sample))
    return f"Nothing ships: {reason or 'even the answers with the highest scores do more harm than the budget allows'}."


def nothing_to_calibrate(found: Sequence[ScoredCloud], settings: GateSettings) -> str:
    """Say that no prompt can calibrate, and what helps where the encoder does not read the answers."""
    said = "no prompt has an answer that could ship and has a severity: nothing to calibrate on"
    likely = settings.scorer == LIKELIHOOD
    if unread := sum(held_as(item, settings.unit, likely=likely) == "not_read" for item in found):
        said += (
            f"; the encoder does not read an answer of {unread:,} of {counted(len(found), 'prompt', 'prompts')}, which the method "
            f"{settings.method} therefore holds (not_read), and what helps is {HELPS}"
        )
    return said


def fewer_note(
    found: Sequence[ScoredCloud], groups: Sequence[LabelledGroup], learnt: Sequence[ScoredCloud]
) -> str:
    """Say how many prompts that scores decide have fewer answers than any of those learnt from that calibrated; empty for none."""
    names = {group.id.removesuffix("#1") for group in groups}
    fewest = min(len(one.cloud.samples.responses) for one in learnt if one.cloud.batch_id in names)
    sizes = [len(one.cloud.samples.responses) for one in found if one.scores is not None]
    if not (fewer := sum(size < fewest for size in sizes)):
        return ""
    return f"{fewer_text(fewer, counted(len(sizes), 'prompt', 'prompts'), fewest)}; {FEWER_HELPS}."


def segments_of(table: Read, key: str | None) -> dict[str, str]:
    """Return the value of `key` of each prompt, by its id in a calibration; nothing without a key."""
    if key is None:
        return {}
    return {
        f"{cloud.batch_id}#1": segment_of(metadata, key)
        for cloud, metadata in zip(table.clouds, table.metadata, strict=True)
    }


def one_of_each_burst(
    groups: Sequence[LabelledGroup], table: Read, found: Sequence[ScoredCloud], key: str, salt: bytes
) -> tuple[list[LabelledGroup], dict[str, list[str]]]:
    """Keep one prompt of each burst, by the draw of a gate in service; returns the ids of the bad ones, by their burst, too."""
    metadata = table.metadata or ({},) * len(table.clouds)
    named = {
        f"{cloud.batch_id}#1": burst_of(cloud.question, one, key)
        for cloud, one in zip(table.clouds, metadata, strict=True)
    }
    severities = {
        f"{item.cloud.batch_id}#1": {one.id: one.severity for one in item.cloud.responses} for item in found
    }
    sampled = [
        SampledGroup(
            key=BatchKey("", group.id.removesuffix("#1"), 1),
            probability=1.0,
            items=tuple(
                SampledItem(response_id=name, score=score, severity=severities[group.id][name])
                for name, score in zip(group.item_ids, group.scores.tolist(), strict=True)
            ),
            burst=None if (name := named[group.id]) is None else sealed_burst(name, b""),
        )
        for group in groups
    ]
    marked = one_of_each(sampled, salt, datetime.max.replace(tzinfo=UTC))
    kept = [group for group, one in zip(groups, marked, strict=True) if not one.spare]
    return kept, bad_bursts(sampled, salt)


def prompts_of(
    found: Sequence[ScoredCloud], groups: Sequence[LabelledGroup], segments: Mapping[str, str], seed: int
) -> Prompts:
    """The groups with their signals."""
    rows = {f"{item.cloud.batch_id}#1": item.row for item in found}
    return Prompts(
        ids=tuple(group.id for group in groups),
        rows=np.array([rows[group.id] for group in groups], dtype=np.float32),
        bad=bad_groups(groups, seed),
        segments=tuple(segments[group.id] for group in groups) if segments else None,
    )


def history_of(found: Sequence[ScoredCloud], unit: Unit) -> History:
    """The cuts that prompts without any severity fix, where what is missing is taken to be missing at random."""
    known = [
        item
        for item in found
        if item.scores is not None and all(severity is None for severity in item.cloud.severities)
    ]
    units = measured_units(known, unit)
    return History.of(units.scores[units.shippable], prompts=len(known))
