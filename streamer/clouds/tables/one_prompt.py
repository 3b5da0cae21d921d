"""Answers to one prompt: as a table has them, brought together from its rows, and as one response cloud."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from streamer.clouds.cloud import (
    NOT_KEPT,
    Claim,
    Cloud,
    CloudResponse,
    check_embeddings,
    identifier,
    response_id,
    witnesses_of,
)
from streamer.clouds.line_files import is_publishable
from streamer.clouds.tables.columns import Columns
from streamer.clouds.tables.rows import Table
from streamer.events.excerpts import excerpt


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer, as the row at `place` of a table has it; see `CloudResponse`.

    `key` is what it shares with the other answers to its prompt: the prompt's id, or where there is
    none its text. `text` is None where the table has no texts. `meta` are the numbers in columns
    that have no role; `witnesses` other samples for its prompt, of which none ships. `claim` is the
    one that the severity is of, empty for a row of an answer alone; `claims` those of all rows of
    the answer.
    """

    place: int
    key: str
    prompt: str
    references: tuple[str, ...]
    id: str | None
    text: str | None
    severity: float | None
    kind: str
    score: float | None
    logprob: float | None
    model: str | None
    embedding: tuple[float, ...] | None
    signals: Mapping[str, float]
    meta: Mapping[str, float]
    witnesses: tuple[str, ...] = ()
    claim: str = ""
    claims: tuple[Claim, ...] | None = None


def held_together(rows: Iterable[Answer]) -> Iterator[list[Answer]]:
    """Yield the answers to each prompt, wherever their rows are, in the order of the first ones; holds all of them."""
    groups: dict[str, list[Answer]] = {}
    for answer in rows:
        groups.setdefault(answer.key, []).append(answer)
    yield from groups.values()


def as_they_come(rows: Iterable[Answer], apart: Callable[[Answer, int], Exception]) -> Iterator[list[Answer]]:
    """Yield the answers to each prompt as soon as another prompt begins.

    `apart` makes the error for an answer whose prompt has begun at an earlier place and ended since.
    """
    begun: dict[str, int] = {}
    group: list[Answer] = []
    for answer in rows:
        if group and answer.key == group[0].key:
            group.append(answer)
            continue
        if group:
            yield group
        if answer.key in begun:
            raise apart(answer, begun[answer.key])
        begun[answer.key] = answer.place
        group = [answer]
    if group:
        yield group


def cloud_of(answers: Sequence[Answer], table: Table, columns: Columns) -> Cloud:
    """Make one cloud of the answers to a prompt.

    Raises `TableError` when they cannot be one: prompts that differ, an id twice, some with scores or
    embeddings and some without.
    """
    first = answers[0]
    for answer in answers[1:]:
        if answer.prompt != first.prompt:
            raise table.error(
                answer.place,
                columns.one("prompt"),
                f"another prompt than at {table.unit} {first.place} under the same {columns.one('prompt_id')} "
                f"{excerpt(first.key)}; if the id names something else, leave it out: --column prompt_id=",
            )
    scored = sum(answer.score is not None for answer in answers)
    if 0 < scored < len(answers):
        place = next(answer.place for answer in answers if answer.score is None)
        raise table.error(
            place, columns.named["score"][0], "missing; give all answers to a prompt a score, or none"
        )
    ids = [response_id(i) if a.id is None else identifier(a.id) for i, a in enumerate(answers)]
    if len(set(ids)) < len(ids):
        twice = next(i for i, one in enumerate(ids) if one in ids[:i])
        raise table.error(
            answers[twice].place,
            columns.one("answer_id"),
            f"{excerpt(ids[twice])} occurs twice among the answers to {excerpt(first.key)}; give each answer an id of its own",
        )
    for answer in answers:
        said = (answer.key, answer.prompt, answer.text or "", *answer.references, *answer.witnesses)
        for text in (*said, *(one.text for one in answer.claims or ())):
            if not is_publishable(text):
                raise table.error(
                    answer.place,
                    None,
                    "a text holds a NUL or half a surrogate pair, which no event may carry; remove it",
                )
    check_embeddings(
        [(answer.embedding, answer.text or NOT_KEPT) for answer in answers]
        + [(None, text) for text in first.witnesses],
        f"{table.name}, {table.unit} {first.place}",
    )
    return Cloud(
        question_id=first.key,
        question=first.prompt,
        references=first.references,
        responses=tuple(
            CloudResponse(
                id=name,
                text=NOT_KEPT if answer.text is None else answer.text,
                severity=answer.severity,
                kind=answer.kind,
                meta=answer.meta,
                embedding=answer.embedding,
                score=answer.score,
                logprob=answer.logprob,
                model=None if answer.model is None else identifier(answer.model),
                signals=answer.signals,
                claims=answer.claims,
            )
            for name, answer in zip(ids, answers, strict=True)
        ),
        witnesses=witnesses_of(first.witnesses),
    )
