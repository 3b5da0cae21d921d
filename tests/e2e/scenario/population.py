"""Prompts with real answers, their embeddings and severities: a steady population, and a worse one of the same."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamer.clouds.cloud_files import read_clouds
from streamer.scoring.gram import gram_energy
from tests.made import an_event

_DIGITS = 4


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One prompt with `n` answers.

    Attributes
    ----------
    embeddings : (n, d), as an event carries them.
    severities : (n,), in [0, 1].
    best : index of the answer with the highest score, which alone may ship.
    score : of that answer.
    """

    question: str
    answers: tuple[str, ...]
    embeddings: list[list[float]]
    severities: tuple[float, ...]
    best: int
    score: float

    @property
    def severity(self) -> float:
        """Of the answer that may ship."""
        return self.severities[self.best]

    def event(self, gate: str, batch_id: str) -> dict[str, Any]:
        """The prompt as an event of the responses topic."""
        encoder = {"embedding_encoder": "all-MiniLM-L6-v2"}
        event = an_event(gate, batch_id, self.answers, prompt=self.question, **encoder)
        for answer, vector in zip(event["responses"], self.embeddings, strict=True):
            answer["embedding"] = vector
        return event


def read_prompts(
    path: Path, encode: Callable[[Sequence[str]], Any], *, questions: int, each: int, answers: int
) -> list[Prompt]:
    """Make `each` prompts of every one of the first questions of a file of clouds, with different answers; `encode` gives unit rows."""
    taken = []
    for _, cloud in zip(range(questions), read_clouds(path), strict=False):
        for i in range(each):
            some = cloud.responses[i * answers : (i + 1) * answers]
            if len(some) == answers and all(one.severity is not None for one in some):
                taken.append((cloud.question, some))
    texts = sorted({one.text for _, some in taken for one in some})
    vectors = dict(zip(texts, np.round(np.asarray(encode(texts)), _DIGITS), strict=True))
    return [_prompt(question, some, vectors) for question, some in taken]


def _prompt(question: str, responses: Sequence[Any], vectors: dict[str, Any]) -> Prompt:
    embeddings = np.array([vectors[one.text] for one in responses])
    scores = gram_energy(embeddings)
    best = int(np.argmax(scores))
    return Prompt(
        question=question, answers=tuple(one.text for one in responses),
        embeddings=embeddings.tolist(), severities=tuple(float(one.severity) for one in responses),
        best=best, score=float(scores[best]),
    )  # fmt: skip


def steady(prompts: Sequence[Prompt], rng: np.random.Generator) -> Iterator[Prompt]:
    """Draw prompts for ever, each as likely as any other."""
    while True:
        yield prompts[rng.integers(len(prompts))]


def worse(
    prompts: Sequence[Prompt], rng: np.random.Generator, *, between: tuple[float, float], times: float
) -> Iterator[Prompt]:
    """Draw prompts for ever; one whose answers agree on something wrong, with a score in between, `times` as often."""
    low, high = between
    weights = np.array([times if low < one.score < high and one.severity > 0.5 else 1.0 for one in prompts])
    weights /= weights.sum()
    while True:
        yield prompts[rng.choice(len(prompts), p=weights)]
