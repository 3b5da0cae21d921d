"""Real answers with their embeddings, and what each gate's prompts get before and after the change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.e2e.scenario.population import Prompt
from tests.e2e.swap.lives import Life


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The answers to one prompt.

    Attributes
    ----------
    event : its responses with their embeddings, as JSON.
    """

    question: str
    event: str
    severities: tuple[float, ...]
    score: float

    @classmethod
    def of(cls, prompt: Prompt) -> Answers:
        """Keep of a prompt what events need."""
        event = json.dumps(prompt.event("", "")["responses"], separators=(",", ":"))
        return cls(question=prompt.question, event=event, severities=prompt.severities, score=prompt.score)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One prompt of a gate.

    Attributes
    ----------
    id : ends in its number, from 0, in the order of the gate's prompts.
    severities : of its answers, by position.
    labelled_at : number of the gate's prompt with which the labels are there; infinite: never.
    """

    id: str
    gate: str
    event: bytes
    severities: tuple[float, ...]
    labelled_at: float


class Source:
    """Where one gate's answers come from: each prompt as likely as any other.

    Attributes
    ----------
    changed : whether a share of the prompts gets answers that were given to another prompt and agree with each other, so
        that they score well and are all wrong.
    """

    def __init__(self, life: Life, answers: Sequence[Answers], *, mean_lag: float) -> None:
        self._mean_lag = mean_lag
        self._life = life
        self._answers = answers
        middle = np.median([one.score for one in answers])
        self._agreeing = [one for one in answers if one.score > middle]
        self._rng = np.random.default_rng([life.seed, *life.gate.encode()])
        self.given = 0
        self.changed = False

    def next(self, *, late_labels: bool) -> Batch:
        """Return the gate's next prompt with its answers."""
        rng, life = self._rng, self._life
        asked = self._answers[rng.integers(len(self._answers))]
        given, swapped = asked, rng.random() < life.swapped
        while self.changed and swapped and given.question == asked.question:
            given = self._agreeing[rng.integers(len(self._agreeing))]
        lag = rng.exponential(self._mean_lag)
        missing = rng.random() < life.never
        number, self.given = self.given, self.given + 1
        name = f"{life.gate}/{number:05}"
        head = {
            "schema": "streamer.responses.v1", "gate": life.gate, "batch_id": name,
            "prompt": asked.question, "embedding_encoder": "all-MiniLM-L6-v2",
        }  # fmt: skip
        return Batch(
            id=name,
            gate=life.gate,
            event=f'{json.dumps(head)[:-1]},"responses":{given.event}}}'.encode(),
            severities=given.severities if given is asked else (1.0,) * len(given.severities),
            labelled_at=number if not late_labels else np.inf if missing else number + lag,
        )
