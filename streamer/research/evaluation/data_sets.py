"""What is evaluated: response clouds with their severities, and the scores that are known of each response."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from streamer.clouds.cloud import NOT_KEPT, Cloud, held_note, judged_cloud, one_call, severity_kind
from streamer.clouds.cloud_files import AS_IT_IS, read_clouds
from streamer.clouds.offline import ScoredCloud
from streamer.clouds.tables.answers import Reading
from streamer.clouds.tables.leaks import ScoreCheck
from streamer.clouds.tables.rows import SUFFIXES
from streamer.clouds.unlabelled import Unlabelled, counts, unlabelled_note
from streamer.errors import UsageError
from streamer.frames.answers import likely
from streamer.gates.declared import Unit
from streamer.research.evaluation.results import JUDGE_FIELD
from streamer.scoring.blank import is_blank
from streamer.scoring.judged import FORMS, WHOLE, Form, form
from streamer.scoring.registry import GRAM, LIKELIHOOD

OWN_SCORE = "score"
"""The scorer of scores that a table brings."""

Scores = tuple[tuple[float | None, ...] | None, ...]
"""For each cloud the score of each response: None for a response without one, None for a cloud with none at all."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DataSet:
    """Clouds of one origin, at least 2, in the order of their batch ids, so that a file's order
    changes nothing.

    `name`: for tables; unique within an evaluation. `source`: a file's path, or ``gate NAME`` of a
    record. `encoder`: what made the embeddings, ``name@hash``; None where scores came without.
    `judge`: what made the scores ``judge``; `subscores`: its points by aspect, for each response of
    each cloud; empty where nobody knows. `form`: what of the answers is judged; those that have
    nothing of it are blank. `chosen`: by unit, what method `full` reads of each cloud; empty where
    there are no texts.
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
    form: Form = WHOLE
    chosen: Mapping[Unit, tuple[ScoredCloud, ...]] = field(default_factory=dict)

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
    def one_call(self) -> bool:
        """Whether each question has one answer, whose log-probability is its score."""
        return one_call(self.clouds)

    @property
    def blank(self) -> int:
        """Responses that are nothing but white space."""
        return sum(is_blank(text) for cloud in self.clouds for text in cloud.texts)

    @property
    def unread(self) -> int:
        """Questions with an answer that the encoder did not read."""
        known = zip(self.clouds, self.scores.get(GRAM, ()), strict=False)
        asked = (cloud for cloud, scores in known if scores is None and not all(map(is_blank, cloud.texts)))
        return sum(len(cloud.responses) + len(cloud.witnesses) > 1 for cloud in asked)

    def scored(self, scorer: str) -> list[ScoredCloud]:
        """Return the clouds with the scores of one scorer; a response without a score is held, as a blank one is."""
        return [
            _scored(cloud, scores) for cloud, scores in zip(self.clouds, self.scores[scorer], strict=True)
        ]

    def with_note(self, note: str) -> DataSet:
        """Return the data set with one note more."""
        return replace(self, notes=(*self.notes, note))

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
    path: Path | str,
    *,
    judge_field: str = JUDGE_FIELD,
    external: Sequence[str] = (),
    reading: Reading = AS_IT_IS,
    unlabelled: Unlabelled = "worst",
    report: Callable[[str], None] = lambda _text: None,
    clouds: Sequence[Cloud] | None = None,
) -> DataSet:
    """Read a file of clouds with the scores that it brings.

    Raises `UsageError` if the file cannot be read, a line is not a cloud, nothing has a severity,
    kinds of severity are mixed, there are fewer than two questions, a score is not one, or a
    severity is missing and none may be; the text names file and line or question.

    `path`, `reading`, `report`: response clouds or a table; see
    `streamer.clouds.cloud_files.read_clouds`. `judge_field`: field of a response's ``meta`` with
    the judge's score in [0, 1], higher is safer, given without references; read as scorer ``judge``
    where it is there. `external`: other fields of ``meta`` with scores in [0, 1], each a scorer of
    its own; of a table the columns that have no role. `unlabelled`: what becomes of answers without
    a severity. `clouds`: of the file, where it was read before.
    """
    name = "standard input" if str(path) == "-" else str(path)
    if clouds is None:
        clouds = list(read_clouds(path, reading, report=report))
    data = _with_likelihoods(_with_own_scores(data_set(_stem(name), name, clouds, unlabelled=unlabelled)))
    marks = _field_scores(data, judge_field)
    if marks is not None:
        _check_scores(data, marks, judge_field, reading)
        data = replace(data.with_scores("judge", marks), judge=f"field {judge_field} of the file")
        data = _noting_gaps(data, "judge", judge_field)
    elif judge_field != JUDGE_FIELD:
        data = data.with_note(
            f"No response has a field {judge_field!r} in its meta object, which was to be the judge's score."
        )
    for meta_field in external:
        found = _field_scores(data, meta_field)
        if found is None:
            raise UsageError(
                f"{name}: no response has a field {meta_field!r} in its meta object, and it was to be a score"
            )
        _check_scores(data, found, meta_field, reading)
        data = _noting_gaps(data.with_scores(meta_field, found), meta_field, meta_field)
    return data


def _check_scores(data: DataSet, scores: Scores, name: str, reading: Reading) -> None:
    """Refuse scores that say just what the severities say. Raises `UsageError`."""
    check = ScoreCheck(data.source, name, trusted=reading.trust_score)
    for cloud, given in zip(data.clouds, scores, strict=True):
        for score, severity in zip(given or (), cloud.severities, strict=False):
            check.see(score, severity)
    check.check()


def _with_own_scores(data: DataSet) -> DataSet:
    """Take in the scores that a table brings: beside the Gram energy, or in its place where there are no texts."""
    scores = [cloud.own_scores for cloud in data.clouds]
    if all(one is None for one in scores):
        return data
    without = sum(
        own is None and not one.has_too_few(likely=False)
        for own, one in zip(scores, data.clouds, strict=True)
    )
    if without:
        raise UsageError(
            f"{data.source}: {without} of {len(scores)} questions have no score; give every answer one, or leave the "
            "column out: --column score="
        )
    if not keeps_texts(data) and not data.clouds[0].embedded:
        note = "There are no texts: every figure is of the scores that the file brings, not of Gram energies."
        return data.with_scores(GRAM, scores).with_note(note)
    if all(len(cloud.responses) + len(cloud.witnesses) < 2 for cloud in data.clouds):
        raise UsageError(
            f"{data.source}: each question has one answer, and agreement, which the score is compared with, is measured "
            "among several; to evaluate the scores alone, leave the texts out: --column answer="
        )
    return data.with_scores(OWN_SCORE, scores)


def _with_likelihoods(data: DataSet) -> DataSet:
    """Take in what log-probabilities say, in the Gram energy's place where nothing is compared."""
    scores = [likely(cloud).scores for cloud in data.clouds]
    if data.one_call:
        note = "Each question has one answer: every figure is of its log-probability, not of Gram energies."
        return data.with_scores(GRAM, scores).with_note(note)
    return data if all(one is None for one in scores) else data.with_scores(LIKELIHOOD, scores)


def data_set(name: str, source: str, clouds: Sequence[Cloud], *, unlabelled: Unlabelled = "worst") -> DataSet:
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
    try:
        missing = unlabelled_note(*counts(made.clouds), unlabelled)
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from None
    return replace(made, notes=(*([missing] if missing else []), *_notes(made)))


def _notes(data: DataSet) -> Iterator[str]:
    if held := held_note(data.clouds, likely=data.one_call):
        yield held
    asked = Counter(cloud.question.strip() for cloud in data.clouds if cloud.question.strip())
    if copies := sum(asked.values()) - len(asked):
        yield (
            f"{copies} of {len(data.clouds)} questions are word for word those of others, under ids of their own: where "
            "copies are on both sides of a split, calibration has seen what is measured, and figures look better and "
            "surer than they are. Put all answers to a question on one line."
        )


def by_form(data_sets: Sequence[DataSet], judged: Sequence[str]) -> list[DataSet]:
    """Return each data set once for each part of its answers that is to be judged; see `Options.judged`."""
    found = []
    for data in data_sets:
        if not keeps_texts(data):
            found.append(data)
            continue
        every = (
            [one for one in FORMS.values() if _has(data, one)] if "all" in judged else list(map(form, judged))
        )
        for one in every:
            name = data.name if one is WHOLE else f"{data.name}, judged {one.text}"
            clouds = tuple(judged_cloud(cloud, one) for cloud in data.clouds)
            found.append(replace(data, name=name, form=one, clouds=clouds))
    return found


def _has(data: DataSet, one: Form) -> bool:
    """Whether half of the questions have two answers with this part, and it is another than the answer without its reasoning."""
    if one.name == "raw@1":
        return any(WHOLE.part(text) != text for cloud in data.clouds for text in cloud.texts)
    having = sum(one.blank(cloud.texts).count(False) > 1 for cloud in data.clouds)
    return 2 * having >= len(data.clouds)


def keeps_texts(data: DataSet) -> bool:
    """Report whether every text is there, so that other scores can be computed."""
    return all(text != NOT_KEPT for cloud in data.clouds for text in cloud.texts)


def check_texts(data: DataSet, scorers: Sequence[str]) -> None:
    """Raise `UsageError` where a data set has no texts, and a scorer is asked for that reads more than scores."""
    others = [name for name in scorers if name != GRAM]
    if others and not keeps_texts(data):
        raise UsageError(
            f"{data.source}: its texts are not stored, so {', '.join(others)} cannot be computed"
        )


def _stem(name: str) -> str:
    short = Path(name).name.removesuffix(".gz")
    return (Path(short).stem if Path(short).suffix in SUFFIXES else short) or "clouds"


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
    note = f"{gaps} responses have no {name}; gates that use this score hold them."
    return data.with_note(note) if gaps else data


def named_apart(data_sets: Sequence[DataSet]) -> list[DataSet]:
    """Give data sets of the same name different ones: ``clouds``, ``clouds (2)``, ..."""
    seen: Counter[str] = Counter()
    named = []
    for data in data_sets:
        seen[data.name] += 1
        named.append(data if seen[data.name] == 1 else replace(data, name=f"{data.name} ({seen[data.name]})"))
    return named
