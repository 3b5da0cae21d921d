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
from streamer.clouds.offline import ScoredCloud, bad_groups, measured_units
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
