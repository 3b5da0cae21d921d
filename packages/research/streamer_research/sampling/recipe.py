"""What a cloud is to be made of: how many answers, of which kinds, from which models, how they are decoded. Pure."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from streamer.clouds.noise import NOISE_FAMILIES, NoiseFamily
from streamer.errors import UsageError

Mode = Literal["normal", "enforced", "noise"]
MODES: tuple[Mode, ...] = get_args(Mode)

MODEL_FAMILIES: frozenset[NoiseFamily] = frozenset(
    {"off-topic", "fabricated citation", "contradiction", "multilingual snippet"}
)
"""Families that a model can be told to write. The others are always made by program: a model writes gibberish and
emoji badly, and may refuse to write prompt injections."""

MOST_ANSWERS = 1000
"""Most answers of a cloud. An event holds 256 responses at most unless the worker is configured otherwise."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Shares of normal, enforced and noisy answers: each in [0, 1], together 1."""

    normal: float = 1.0
    enforced: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        shares = (self.normal, self.enforced, self.noise)
        if not all(0.0 <= share <= 1.0 for share in shares) or not math.isclose(
            sum(shares), 1.0, abs_tol=1e-6
        ):
            raise UsageError(
                "a mix is three shares of normal, enforced and noisy answers that make 1, like .75/0/.25, not "
                f"{self.normal:g}/{self.enforced:g}/{self.noise:g}"
            )

    def counts(self, answers: int) -> dict[Mode, int]:
        """How many of `answers` are of each kind: the shares, rounded by largest remainders (ties: the first kind)."""
        wanted = [share * answers for share in (self.normal, self.enforced, self.noise)]
        # In floats, .29 of 100 is 28.999999999999996 instead of 29.
        counts = [math.floor(one + 1e-9) for one in wanted]
        by_remainder = sorted(range(3), key=lambda i: (round(counts[i] - wanted[i], 9), i))
        for i in by_remainder[: answers - sum(counts)]:
            counts[i] += 1
        return dict(zip(MODES, counts, strict=True))


@dataclass(frozen=True, slots=True)
class Arm:
    """One model at one temperature, in [0, 2]; `vendor`: its endpoint's index, `host`: for the
    record.
    """

    vendor: int
    model: str
    host: str
    temperature: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature <= 2.0:
            raise UsageError(f"a temperature is in [0, 2], not {self.temperature:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How each prompt becomes a cloud.

    Attributes
    ----------
    answers : N, answers of a cloud, in [2, `MOST_ANSWERS`].
    paraphrases : P, paraphrases of the canonical reference, which join the references. Prompts without references
        get none.
    rewordings : of the question, by the model; the answers are spread over the question as it is and these.
    mix : shares of normal, enforced and noisy answers.
    families : kinds of noise, in turn.
    noise_by_model : have the model write the families of `MODEL_FAMILIES`, by instruction.
    top_p : in (0, 1].
    max_tokens : most tokens of one answer, >= 1.
    per_request : most answers that one request asks for, >= 1. The prompt is paid once a request.
    send_seed : send a seed with each request.
    together : one cloud of all arms, the answers spread over them; otherwise each arm has clouds of its own.
    instruction : the system prompt of normal answers; None is the one of `streamer_research.sampling.instructions`, an empty
        text sends none.
    seed : every choice derives from it; >= 0.

    Raises
    ------
    UsageError : a value is out of its range.
    """

    answers: int = 10
    paraphrases: int = 0
    rewordings: int = 0
    mix: Mix = Mix()
    families: tuple[NoiseFamily, ...] = NOISE_FAMILIES
    noise_by_model: bool = False
    top_p: float = 1.0
    max_tokens: int = 256
    per_request: int = 5
    send_seed: bool = True
    together: bool = False
    instruction: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, in_range in (
            ("answers", self.answers, 2 <= self.answers <= MOST_ANSWERS),
            ("paraphrases", self.paraphrases, 0 <= self.paraphrases <= 100),
            ("rewordings", self.rewordings, 0 <= self.rewordings <= 100),
            ("top_p", self.top_p, 0.0 < self.top_p <= 1.0),
            ("max_tokens", self.max_tokens, self.max_tokens >= 1),
            ("per_request", self.per_request, 1 <= self.per_request <= 128),
            ("seed", self.seed, self.seed >= 0),
        ):
            if not in_range:
                raise UsageError(f"{name} cannot be {value!r}")
        unknown = [family for family in self.families if family not in NOISE_FAMILIES]
        if unknown or not self.families:
            raise UsageError(
                f"there is no family of noise {', '.join(map(repr, unknown)) or 'at all'}; there are "
                + ", ".join(NOISE_FAMILIES)
            )

    def document(self) -> dict[str, Any]:
        """The recipe as plain JSON values, for the record."""
        return asdict(self) | {"families": list(self.families)}


PRESETS: Mapping[str, Mapping[str, Any]] = {
    name: {
        "answers": answers,
        "paraphrases": paraphrases,
        "mix": Mix(*mix),
        "temperature": temperature,
        "top_p": top_p,
        "max_tokens": max_tokens,
        "seed": seed,
    }
    for name, answers, paraphrases, mix, temperature, top_p, max_tokens, seed in (
        ("C1", 150, 10, (0.75, 0.0, 0.25), 1.3, 1.0, 256, 42),
        ("C2", 16, 6, (0.67, 0.0, 0.33), 0.1, 1.0, 96, 7),
        ("C3", 100, 10, (0.60, 0.0, 0.40), 1.2, 1.0, 256, 11),
        ("C4", 150, 10, (0.75, 0.0, 0.25), 0.7, 0.9, 256, 23),
        ("C5", 150, 10, (0.75, 0.0, 0.25), 1.3, 1.0, 256, 23),
        ("C6", 16, 6, (0.67, 0.0, 0.33), 0.1, 1.0, 96, 8),
    )
}
"""The paper's configurations, by their names there: the tables of its appendix on experiment settings."""
