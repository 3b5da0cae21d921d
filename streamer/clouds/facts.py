"""Questions with known answers, for simulation: from the tables, and made up from numbers."""

from collections.abc import Iterator
from dataclasses import dataclass

from numpy.random import Generator

from streamer.clouds import fact_tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A question, in several wordings, and what there is to know about its answers.

    `statement` has ``{}`` in the place of an answer, right or wrong; `support` are remarks that a
    model may add to whatever it answers; `rivals` wrong answers that somebody may well give;
    `misconception` the one that is widely believed. `difficulty` goes from 0 (everybody knows) to
    4.
    """

    topic: str
    questions: tuple[str, ...]
    answer: str
    statement: str
    support: tuple[str, ...]
    rivals: tuple[str, ...]
    misconception: str | None
    difficulty: float


_TABLES: tuple[tuple[str, str, tuple[str, ...], str, tuple[str, ...]], ...] = (
    (
        "capitals",
        fact_tables.CAPITALS,
        (
            "What is the capital of {}?",
            "Which city is the capital of {}?",
            "Name the capital city of {}.",
            "Where does the government of {} have its seat?",
        ),
        "The capital of {} is {{}}.",
        (
            "It is the seat of the national government.",
            "The parliament and the ministries are there.",
            "It is the political centre of {}.",
        ),
    ),
    (
        "chemical symbols",
        fact_tables.SYMBOLS,
        (
            "What is the chemical symbol of {}?",
            "Which symbol stands for {} in the periodic table?",
            "How is the element {} abbreviated?",
        ),
        "The chemical symbol of {} is {{}}.",
        (
            "Symbols in the periodic table have one or two letters.",
            "The symbol goes back to the element's old name.",
            "It is used in every formula that contains {}.",
        ),
    ),
    (
        "authors",
        fact_tables.AUTHORS,
        ("Who wrote {}?", "Who is the author of {}?", "Which writer do we owe {} to?"),
        "{} was written by {{}}.",
        (
            "It is one of the author's best known works.",
            "The book has been translated into many languages.",
            "It is taught in schools to this day.",
        ),
    ),
    (
        "dates",
        fact_tables.DATES,
        ("In which year was {}?", "What is the year of {}?", "When was {}? Give the year."),
        "The year of {} was {{}}.",
        (
            "Historians agree about this date.",
            "It changed the course of events for decades.",
            "The date is recorded in contemporary sources.",
        ),
    ),
    (
        "currencies",
        fact_tables.CURRENCIES,
        ("What is the currency of {}?", "With what money do people pay in {}?", "Name the currency used in {}."),
        "The currency of {} is the {{}}.",
        (
            "It is issued by the country's central bank.",
            "Shops there take it everywhere.",
            "Banknotes and coins are in circulation.",
        ),
    ),
)  # fmt: skip

_QUIZ_SUPPORT = (
    "This is a well known fact.",
    "It comes up in many quizzes.",
    "Most encyclopaedias say so.",
)
_NUMBER_SUPPORT = (
    "I worked it out step by step.",
    "You can check this with a calculator.",
    "The steps are simple once written down.",
)


def _rows(table: str) -> Iterator[list[str]]:
    for line in table.strip().splitlines():
        yield line.split("|")


def tabled_facts() -> list[Fact]:
    """Return every fact of the tables, in their order."""
    found = []
    for topic, table, questions, statement, support in _TABLES:
        rows = list(_rows(table))
        answers = [answer for _, answer, _, _ in rows]
        for subject, answer, difficulty, misconception in rows:
            found.append(
                Fact(
                    topic=topic,
                    questions=tuple(question.format(subject) for question in questions),
                    answer=answer,
                    statement=(said := statement.format(subject))[:1].upper() + said[1:],
                    support=tuple(remark.format(subject) for remark in support),
                    rivals=_other_years(int(answer))
                    if topic == "dates"
                    else tuple(dict.fromkeys(a for a in answers if a != answer)),
                    misconception=misconception or None,
                    difficulty=float(difficulty),
                )
            )
    for question, answer, difficulty, misconception, rivals in _rows(fact_tables.QUIZ):
        found.append(
            Fact(
                topic="general knowledge",
                questions=(question,),
                answer=answer,
                statement="The answer to this is {}.",
                support=_QUIZ_SUPPORT,
                rivals=tuple(rivals.split(", ")),
                misconception=misconception or None,
                difficulty=float(difficulty),
            )
        )
    return found


def number_fact(rng: Generator) -> Fact:
    """Make up a question about numbers: arithmetic, percentages, average speed, or a conversion of units."""
    make = _NUMBER_MAKERS[int(rng.integers(len(_NUMBER_MAKERS)))]
    return make(rng)


def _multiplication(rng: Generator) -> Fact:
    digits = int(rng.integers(1, 4))
    low, high = 10 ** (digits - 1) + 2, 10**digits
    a, b = int(rng.integers(low, high)), int(rng.integers(3, 100))
    return _number(
        "arithmetic",
        (f"What is {a} times {b}?", f"Multiply {a} by {b}.", f"{a} x {b} = ?"),
        a * b,
        f"{a} times {b} is {{}}.",
        difficulty=digits + (b > 12) - 1,
    )


def _precedence(rng: Generator) -> Fact:
    a, b, c = (int(x) for x in rng.integers(3, 20, 3))
    return _number(
        "arithmetic",
        (f"What is {a} + {b} * {c}?", f"Work out {a} + {b} * {c}."),
        a + b * c,
        f"{a} + {b} * {c} equals {{}}.",
        difficulty=1,
        misconception=(a + b) * c,
    )


def _up_and_down(rng: Generator) -> Fact:
    price, percent = 100 * int(rng.integers(2, 40)), 10 * int(rng.integers(1, 6))
    return _number(
        "percentages",
        (
            f"A price of {price} euros rises by {percent} % and then falls by {percent} %. What is it now?",
            f"Something costs {price} euros, gets {percent} % dearer and then {percent} % cheaper. What does it cost?",
        ),
        price * (100 - percent) * (100 + percent) // 10_000,
        "The price is now {} euros.",
        difficulty=2,
        misconception=price,
    )


def _average_speed(rng: Generator) -> Fact:
    # Speeds c (2 k + 1) (k + 1) and c (2 k + 1) k have the harmonic mean 2 c k (k + 1); c is even, so that the
    # arithmetic mean, which is the mistake, is whole as well.
    k, scale = int(rng.integers(1, 4)), 2 * int(rng.integers(1, 4))
    out, back = scale * (2 * k + 1) * (k + 1), scale * (2 * k + 1) * k
    return _number(
        "average speed",
        (
            f"I drive to a town at {out} km/h and back at {back} km/h. What is my average speed in km/h?",
            f"Out at {out} km/h, back the same way at {back} km/h: what is the average speed of the trip?",
        ),
        2 * scale * k * (k + 1),
        "The average speed is {} km/h.",
        difficulty=3,
        misconception=(out + back) // 2,
    )


def _conversion(rng: Generator) -> Fact:
    amount = int(rng.integers(2, 60))
    small, large, factor, difficulty, wrong_factor = _UNITS[int(rng.integers(len(_UNITS)))]
    return _number(
        "unit conversion",
        (
            f"How many {small} are in {amount} {large}?",
            f"Convert {amount} {large} to {small}.",
            f"{amount} {large} are how many {small}?",
        ),
        amount * factor,
        f"{amount} {large} are {{}} {small}.",
        difficulty=difficulty,
        misconception=None if wrong_factor is None else amount * wrong_factor,
    )


def _decimal_hours(rng: Generator) -> Fact:
    hours, tenth = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    return _number(
        "unit conversion",
        (f"How many minutes are {hours}.{tenth} hours?", f"Convert {hours}.{tenth} hours to minutes."),
        60 * hours + 6 * tenth,
        f"{hours}.{tenth} hours are {{}} minutes.",
        difficulty=1,
        misconception=60 * hours + 10 * tenth,
    )


_UNITS: tuple[tuple[str, str, int, int, int | None], ...] = (
    ("metres", "kilometres", 1000, 0, None),
    ("grams", "kilograms", 1000, 0, None),
    ("inches", "feet", 12, 1, None),
    ("feet", "yards", 3, 1, None),
    ("ounces", "pounds", 16, 1, None),
    ("seconds", "hours", 3600, 1, None),
    ("square centimetres", "square metres", 10_000, 2, 100),
    ("cubic centimetres", "litres", 1000, 1, 100),
    ("fluid ounces", "US pints", 16, 2, None),
    ("yards", "miles", 1760, 2, None),
    ("bits", "bytes", 8, 0, None),
    ("square metres", "hectares", 10_000, 1, 1000),
)  # fmt: skip

_NUMBER_MAKERS = (
    _multiplication,
    _multiplication,
    _precedence,
    _up_and_down,
    _average_speed,
    _conversion,
    _conversion,
    _decimal_hours,
)


def _number(
    topic: str,
    questions: tuple[str, ...],
    answer: int,
    statement: str,
    *,
    difficulty: float,
    misconception: int | None = None,
) -> Fact:
    rivals = dict.fromkeys(
        wrong
        for wrong in (
            *(answer + slip for slip in (1, -1, 2, 10, -10, 20, 100)),
            answer * 10,
            _swapped(answer),
        )
        if wrong > 0 and wrong not in {answer, misconception}
    )
    return Fact(
        topic=topic,
        questions=questions,
        answer=str(answer),
        statement=statement,
        support=_NUMBER_SUPPORT,
        rivals=tuple(str(wrong) for wrong in rivals),
        misconception=None if misconception in {None, answer} else str(misconception),
        difficulty=difficulty,
    )


def _other_years(year: int) -> tuple[str, ...]:
    return tuple(str(year + slip) for slip in (-20, -10, -3, -2, -1, 1, 2, 3, 5, 10, 20))


def _swapped(number: int) -> int:
    """Return `number` with its last two digits changed round, a slip of the pen."""
    tens, units = divmod(number % 100, 10)
    return number - number % 100 + 10 * units + tens
