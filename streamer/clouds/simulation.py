"""Simulated response clouds: questions with right, wrong and noisy answers whose severities are known by making.

Nothing here was answered by a language model. Each question has a chance of being answered rightly, which falls with
its difficulty and varies by luck; wrong answers sometimes agree (a shared misconception, or one slip that the
"model" keeps making) and sometimes scatter. A share of the responses is noise of the paper's families. Severity
is 0 for a right answer, 1 for a wrong one and for noise, .5 for a half right one.
"""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from streamer.clouds.cloud import Cloud, CloudResponse, response_id
from streamer.clouds.facts import Fact, number_fact, tabled_facts
from streamer.clouds.noise import make_noise, one_of
from streamer.errors import UsageError

SIMULATED_KIND = "simulated"
"""The kind of severity that simulated clouds have."""

QUESTION_ID_PREFIX = "simulated-"

DEFAULT_CLOUDS = 400
RESPONSES_PER_CLOUD = 10
NOISE_SHARE = 0.25
"""The share of noise in the paper's open-domain configurations C1, C4 and C5 (normal .75, enforced .00)."""

_LEAST_SHARE_OF_NUMBERS = 0.25
_LOG_ODDS_EASY, _LOG_ODDS_PER_DIFFICULTY, _LOG_ODDS_LUCK, _LOG_ODDS_MISCONCEPTION = 2.6, -1.1, 1.0, -0.8
"""A right answer has log odds 2.6 (chance .93) at difficulty 0 and -1.8 (chance .14) at difficulty 4, before luck:
something like a language model of ten billion parameters that answers quiz questions without looking them up."""

_STYLES: tuple[tuple[str, ...], ...] = (
    ("{a}", "{a}."),
    ("{s}",),
    ("{a}. {why}", "{s} {why}"),
    ("The answer is {a}.", "It's {a}.", "That would be {a}.", "Answer: {a}", "It is {a}."),
    (
        "I think it is {a}.",
        "I'm not completely sure, but I believe the answer is {a}.",
        "Probably {a}.",
        "If I remember correctly, {a}.",
    ),
)
"""Ways to say an answer: bare, a sentence, with a remark, conversational, hedged."""

_HALF_RIGHT = ("Either {a} or {b}.", "It could be {a} or {b}; I cannot tell which.", "{a}, or possibly {b}.")


def simulate_clouds(
    *,
    seed: int,
    clouds: int = DEFAULT_CLOUDS,
    responses: int = RESPONSES_PER_CLOUD,
    noise: float = NOISE_SHARE,
) -> list[Cloud]:
    """Make up `clouds` >= 1 questions with `responses` >= 2 answers each; the same arguments give
    the same clouds.

    Every choice derives from `seed` >= 0. At least a quarter ask for a number, and all that exceed
    the tables do. `noise` is the chance in [0, 1] that a response is noise rather than an answer,
    independently of the others.
    """
    if seed < 0 or clouds < 1 or responses < 2 or not 0 <= noise <= 1:
        raise UsageError(
            "a simulation needs a seed of 0 or more, at least 1 cloud, at least 2 responses and noise in [0, 1]; "
            f"not seed={seed}, clouds={clouds}, responses={responses}, noise={noise}"
        )
    rng = np.random.default_rng(seed)
    return [
        _cloud(fact, np.random.default_rng([seed, place]), place, seed=seed, responses=responses, noise=noise)
        for place, fact in enumerate(_choose_facts(rng, clouds))
    ]


def _choose_facts(rng: Generator, count: int) -> list[Fact]:
    tabled = tabled_facts()
    from_tables = min(len(tabled), count - int(np.ceil(_LEAST_SHARE_OF_NUMBERS * count)))
    chosen = [tabled[i] for i in rng.permutation(len(tabled))[:from_tables]]
    asked = set[str]()
    while len(chosen) < count:
        fact = number_fact(rng)
        if fact.questions[0] not in asked:
            asked.add(fact.questions[0])
            chosen.append(fact)
    return [chosen[i] for i in rng.permutation(count)]


def _cloud(fact: Fact, rng: Generator, place: int, *, seed: int, responses: int, noise: float) -> Cloud:
    chance = _chance_right(fact, rng)
    wrong_answers, wrong_weights = _wrong_answers(fact, rng)
    # A model has a manner: within one question its answers look more alike than between questions.
    manner = rng.dirichlet([1.0, 1.0, 1.0, 1.0, 0.2 + 1.5 * (1 - chance)])
    answers = []
    origin: str
    for i in range(responses):
        wrong = wrong_answers[int(rng.choice(len(wrong_answers), p=wrong_weights))]
        if rng.random() < noise:
            made = make_noise(rng, right=fact.answer, wrong=wrong, statement=fact.statement)
            text, severity, origin = made.text, made.severity, made.family
        elif rng.random() < 0.12 * (1 - chance):
            first, second = (fact.answer, wrong) if rng.random() < 0.5 else (wrong, fact.answer)
            text, severity, origin = one_of(rng, _HALF_RIGHT).format(a=first, b=second), 0.5, "half right"
        else:
            right = rng.random() < chance
            text = _phrase(fact, fact.answer if right else wrong, rng, manner)
            severity, origin = (0.0, "right") if right else (1.0, "wrong")
        answers.append(
            CloudResponse(
                id=response_id(i),
                text=text[:1].upper() + text[1:],
                severity=severity,
                kind=SIMULATED_KIND,
                meta={"label_kind": SIMULATED_KIND, "origin": origin, "topic": fact.topic},
            )
        )
    return Cloud(
        question_id=f"{QUESTION_ID_PREFIX}{seed}-{place:04d}",
        question=one_of(rng, fact.questions),
        references=(fact.answer,),
        responses=tuple(answers),
    )


def _chance_right(fact: Fact, rng: Generator) -> float:
    log_odds = (
        _LOG_ODDS_EASY + _LOG_ODDS_PER_DIFFICULTY * fact.difficulty + _LOG_ODDS_LUCK * rng.standard_normal()
    )
    if fact.misconception is not None:
        log_odds += _LOG_ODDS_MISCONCEPTION
    return float(1 / (1 + np.exp(-log_odds)))


def _wrong_answers(fact: Fact, rng: Generator) -> tuple[list[str], NDArray[np.float64]]:
    """Return wrong answers, the favoured first, and their chances: how far the model agrees with itself."""
    rivals = [
        fact.rivals[i] for i in rng.permutation(len(fact.rivals))[:6] if fact.rivals[i] != fact.misconception
    ]
    if fact.misconception is not None:
        favoured, agreement = fact.misconception, rng.beta(6.0, 2.0)
        others = rivals
    else:
        favoured, agreement = rivals[0], rng.beta(1.2, 2.0)
        others = rivals[1:]
    if not others:
        return [favoured], np.ones(1)
    weights = np.concatenate([[agreement], np.full(len(others), (1 - agreement) / len(others))])
    return [favoured, *others], weights / weights.sum()


def _phrase(fact: Fact, answer: str, rng: Generator, manner: NDArray[np.float64]) -> str:
    style = _STYLES[int(rng.choice(len(_STYLES), p=manner))]
    return one_of(rng, style).format(a=answer, s=fact.statement.format(answer), why=one_of(rng, fact.support))
