"""What is evaluated: response clouds with their severities, and the scores that are known of each response."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from streamer.clouds.cloud import read_clouds, severity_kind
from streamer.clouds.offline import ScoredCloud
from streamer.errors import UsageError
from streamer.research.evaluation.results import JUDGE_FIELD
from streamer.scoring.blank import is_blank

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streamer.clouds.cloud import Cloud

Scores = tuple[tuple[float | None, ...] | None, ...]
"""For each cloud the score of each response: None for a response without one, None for a cloud with none at all."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DataSet:
    """Clouds of one origin.

    Attributes
    ----------
    name : for tables; unique within an evaluation.
    source : a file's path, or ``gate NAME`` of a record.
    clouds : at least 2, in the order of their batch ids, so that a file's order changes nothing.
    severity_kind : the one kind of severity that they have.
    scores : by scorer.
    encoder : what made the embeddings, ``name@hash``; None where scores came without.
    judge : what made the scores ``judge``, where they are there.
    subscores : the judge's points by aspect, for each response of each cloud; empty where nobody knows.
    notes : what a reader has to know, in sentences.
    """

    name: str
    source: str
    clouds: tuple[Cloud, ...]
    severity_kind: str
    scores: Mapping[str, Scores] = field(default_factory=dict)
    encoder: str | None = None
    judge: str | None = None
    subscores: tuple[tuple[Mapping[str, float] | None, ...], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of questions, answers and severities, hexadecimal; the same for any order of the questions."""
        return hashlib.sha256(
            msgspec.json.encode(
                [
                    [
                        c.batch_id,
                        c.question,
                        c.references,
                        [
                            [r.id, r.text, None if r.severity is None else float(r.severity)]
                            for r in c.responses
                        ],
                    ]
                    for c in self.clouds
                ]
            )
        ).hexdigest()

    @property
    def unlabelled(self) -> int:
        """Responses without a severity."""
        return sum(severity is None for cloud in self.clouds for severity in cloud.severities)

    @property
    def blank(self) -> int:
        """Responses that are nothing but white space."""
        return sum(is_blank(text) for cloud in self.clouds for text in cloud.texts)

    def scored(self, scorer: str) -> list[ScoredCloud]:
        """Return the clouds with the scores of one scorer; a response without a score is held, as a blank one is."""
        return [
            _scored(cloud, scores) for cloud, scores in zip(self.clouds, self.scores[scorer], strict=True)
        ]

    def with_scores(self, scorer: str, scores: Sequence[Sequence[float | None] | None]) -> DataSet:
        """Return the data set with one scorer more."""
        found = tuple(None if one is None else tuple(one) for one in scores)
        return replace(self, scores={**self.scores, scorer: found})


def _scored(cloud: Cloud, scores: Sequence[float | None] | None) -> ScoredCloud:
    if scores is None or all(score is None for score in scores):
        return ScoredCloud(cloud, None)
    if None in scores:
        responses = tuple(
            response if score is not None else replace(response, text="")
            for response, score in zip(cloud.responses, scores, strict=True)
        )
        cloud = replace(cloud, responses=responses)
    return ScoredCloud(cloud, tuple(0.0 if score is None else score for score in scores))


def read_data_set(
    path: Path | str, *, judge_field: str = JUDGE_FIELD, external: Sequence[str] = ()
) -> DataSet:
    """Read a file of clouds with the scores that it brings.

    Parameters
    ----------
    path : ``.jsonl`` or ``.jsonl.gz``, or ``-`` for standard input.
    judge_field : field of a response's ``meta`` with the judge's score in [0, 1], higher is safer, given without
        references; read as scorer ``judge`` where it is there.
    external : other fields of ``meta`` with scores in [0, 1], each a scorer of its own.

    Raises
    ------
    UsageError
        If the file cannot be read, a line is not a cloud, nothing has a severity, kinds of severity are mixed, there are
        fewer than two questions, or a score is not one; the text names file and line or question.
    """
    name = "standard input" if str(path) == "-" else str(path)
    clouds = sorted(read_clouds(path), key=lambda cloud: cloud.batch_id)
    data = data_set(_stem(name), name, clouds)
    marks = _field_scores(data, judge_field)
    if marks is not None:
        data = replace(data.with_scores("judge", marks), judge=f"field {judge_field} of the file")
        data = _noting_gaps(data, "judge", judge_field)
    elif judge_field != JUDGE_FIELD:
        note = (
            f"No response has a field {judge_field!r} in its meta object, which was to be the judge's score."
        )
        data = replace(data, notes=(*data.notes, note))
    for meta_field in external:
        found = _field_scores(data, meta_field)
        if found is None:
            raise UsageError(
                f"{name}: no response has a field {meta_field!r} in its meta object, and it was to be a score"
            )
        data = _noting_gaps(data.with_scores(meta_field, found), meta_field, meta_field)
    return data


def data_set(name: str, source: str, clouds: Sequence[Cloud]) -> DataSet:
    """Make a data set of clouds; see `read_data_set` for what is refused."""
    if len(clouds) < 2:
        raise UsageError(
            f"{source} holds {len(clouds)} question: one half calibrates and the other is measured, so that there must "
            "be at least two, and about a hundred for a budget of 1 %"
        )
    try:
        kind = severity_kind(clouds)
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from None
    made = DataSet(
        name=name, source=source, clouds=tuple(sorted(clouds, key=lambda c: c.batch_id)), severity_kind=kind
    )
    return replace(made, notes=tuple(_notes(made)))


def _notes(data: DataSet) -> Iterator[str]:
    if data.unlabelled:
        responses = sum(len(cloud.responses) for cloud in data.clouds)
        yield f"{data.unlabelled} of {responses} responses have no severity and count as 1."
    asked = Counter(cloud.question.strip() for cloud in data.clouds if cloud.question.strip())
    if copies := sum(asked.values()) - len(asked):
        yield (
            f"{copies} of {len(data.clouds)} questions are word for word those of others, under ids of their own: where "
            "copies are on both sides of a split, calibration has seen what is measured, and figures look better and "
            "surer than they are. Put all answers to a question on one line."
        )


def _stem(name: str) -> str:
    return Path(name).name.removesuffix(".gz").removesuffix(".jsonl") or "clouds"


def _field_scores(data: DataSet, name: str) -> Scores | None:
    """The scores in a field of ``meta``; None where no response has it."""
    found = tuple(
        tuple(_number(response.meta.get(name), name, data.source, cloud) for response in cloud.responses)
        for cloud in data.clouds
    )
    return None if all(score is None for one in found for score in one) else found


def _number(value: Any, name: str, source: str, cloud: Cloud) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise UsageError(
            f"{source}, question {cloud.question_id!r}: the score {name} must be a number in [0, 1], higher is safer, "
            f"not {str(value)[:40]!r}"
        )
    return round(float(value), 6)


def _noting_gaps(data: DataSet, scorer: str, name: str) -> DataSet:
    gaps = sum(score is None for one in data.scores[scorer] for score in one or ())
    if not gaps:
        return data
    note = f"{gaps} responses have no {name}; gates that use this score hold them."
    return replace(data, notes=(*data.notes, note))


def named_apart(data_sets: Sequence[DataSet]) -> list[DataSet]:
    """Give data sets of the same name different ones: ``clouds``, ``clouds (2)``, ..."""
    seen: Counter[str] = Counter()
    named = []
    for data in data_sets:
        seen[data.name] += 1
        named.append(data if seen[data.name] == 1 else replace(data, name=f"{data.name} ({seen[data.name]})"))
    return named
