"""A gate of claims: of each answer what the other answers support ships, and the rest is left out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from streamer.calibration.calibrators.mean import Mean
from streamer.calibration.claims import calibrate_claims, shipped_claims
from streamer.calibration.registry import calibrator, check_parameters
from streamer.calibration.threshold import Threshold
from streamer.clouds.claims import (
    LEFT_OUT,
    RESTS_ON,
    ClaimedPrompt,
    LeftOut,
    RestsOn,
    check_answered,
    claimed_prompt,
    claims_in,
    shipped_text,
)
from streamer.clouds.tables.answers import Reading
from streamer.clouds.tables.marks import Annotators, Marks
from streamer.errors import NotFittedError, UsageError
from streamer.frames.answers import mapping_of, read
from streamer.scoring.claims.sentences import splitter
from streamer.scoring.registry import SUPPORT, claim_scorer

Action = Literal["ship", "mixed", "hold"]
GIVEN = "given"
"""The splitter of claims that came with the answers."""


@dataclass(frozen=True, slots=True)
class DecidedClaim:
    """One claim.

    `score`: in [0, 1], higher is safer; of it and of what it rests on the least. `span`: its
    characters in the answer, if known.
    """

    id: str
    text: str
    span: tuple[int, int] | None
    score: float
    ships: bool


@dataclass(frozen=True, slots=True)
class DecidedAnswer:
    """The answer to a prompt that was cut.

    `answer_id`: None where no answer is as was asked. `action`: `ship`: all claims; `mixed`: some;
    `hold`: none. `text`: as it ships; None where nothing does, or a claim does not stand in the
    answer. `units`: the claims in order; empty where the prompt is held whatever the threshold.
    `reason`: why that is so, a key of `streamer.clouds.claims.WHY_HELD`; else empty.
    """

    prompt_id: str
    answer_id: str | None
    action: Action
    text: str | None
    units: tuple[DecidedClaim, ...]
    reason: str


class ClaimGate:
    """Ships claims of an answer so that a loss is at most `alpha` on average.

    Tables and files are those of `streamer.Gate`, with claims as in docs/claims.md.

    Parameters
    ----------
    alpha : the budget, in (0, 1).
    loss : ``any``, ``share``, ``mass:C`` or ``wrong-among``.
    answer : which answer to a prompt is cut: ``first``, or that of a model by its name.
    least_kept : the share of an answer's claims that must be left, in [0, 1], or none ships.
    left_out : claims that do not ship are missing in the text (`drop`), or stand between marks (`mark`).
    rests_on : what a claim ships with or not at all: those that it names (`named`), or all before
        it (`prefix`), as in a derivation.
    score : ``support`` or ``support-learned``; see docs/claims.md.
    method, parameters : the calibrator, one of mean, age, hb, betting and bernstein, and what it
        has, as in ``{"delta": 0.05}``: docs/guarantees.md. `age` goes by the order of rows.
    seed : any whole number, fixed before labels are read.
    columns, scale, words, annotators, trust_score : how a table is read; see `streamer.Gate`.

    Attributes
    ----------
    threshold_ : with its guarantee.
    splitter_ : what cut the answers that calibrated: `sentences@1` with its version, or `given`. An
        answer without claims is cut by the former alone: the promise is about claims of one kind.
    """

    threshold_: Threshold
    splitter_: str

    def __init__(
        self,
        *,
        alpha: float = 0.05,
        loss: str = "any",
        answer: str = "first",
        least_kept: float = 0.0,
        left_out: LeftOut = "drop",
        rests_on: RestsOn = "named",
        score: str = SUPPORT,
        method: str = Mean.name,
        parameters: Mapping[str, float] | None = None,
        seed: int = 0,
        columns: Mapping[str, Any] | None = None,
        scale: tuple[float, float] | None = None,
        words: Mapping[str, float] | None = None,
        annotators: Annotators = "mean",
        trust_score: bool = False,
    ) -> None:
        if left_out not in LEFT_OUT:
            raise ValueError(f"left_out must be one of {', '.join(LEFT_OUT)}, not {left_out!r}")
        if rests_on not in RESTS_ON:
            raise ValueError(f"rests_on must be one of {', '.join(RESTS_ON)}, not {rests_on!r}")
        self.alpha, self.loss, self.answer = alpha, loss, answer
        self.least_kept, self.left_out, self.rests_on = least_kept, left_out, rests_on
        self.score = claim_scorer(score).name
        self._reading = Reading(
            columns=mapping_of(columns),
            marks=Marks(scale, words or {}),
            annotators=annotators,
            trust_score=trust_score,
        )
        self.method, self.parameters, self.seed = method, parameters, seed

    def fit(self, frame: Any) -> "ClaimGate":
        """Calibrate on answers with labelled claims; one without a label counts as wrong.

        Raises `UsageError` when the table cannot be read, or has no labelled claims. Raises
        `ValueError` when a parameter is out of its range.
        """
        found = self._prompts(frame, severities=True, cut=False)
        check_answered(found, self.answer, "the table")
        groups = [one.group for one in found if one.group is not None]
        if all(claim.severity is None for one in found for claim in one.claims):
            raise UsageError("no claim has a severity, so nothing can be learnt (docs/claims.md)")
        how: Any = {"alpha": self.alpha, "loss": self.loss, "least_kept": self.least_kept}
        by = calibrator(self.method, self.parameters or {})
        check_parameters(self.method, self.parameters or {})
        self.threshold_ = calibrate_claims(groups, by=by, seed=self.seed, **how)
        alike = all(_as_cut(one) for one in found if one.group is not None)
        self.splitter_ = splitter() if alike else GIVEN
        return self

    def decide(self, frame: Any) -> list[DecidedAnswer]:
        """Decide the claims of answers, one prompt after the other; labels are not looked at.

        Raises `NotFittedError` before `fit`. Raises `UsageError` when the table cannot be read.
        """
        if not hasattr(self, "threshold_"):
            raise NotFittedError("this ClaimGate has not been calibrated: call fit() before decide()")
        found = self._prompts(frame, severities=False, cut=self.splitter_ == splitter())
        return list(map(self._decided, found))

    def _prompts(self, frame: Any, *, severities: bool, cut: bool) -> list[ClaimedPrompt]:
        table = read(frame, self._reading, severities=severities)
        how: Any = {"cut": cut, "rests_on": self.rests_on, "scorer": claim_scorer(self.score)}
        return [claimed_prompt(cloud, self.answer, **how) for cloud in table.clouds]

    def _decided(self, prompt: ClaimedPrompt) -> DecidedAnswer:
        name, answer = prompt.cloud.question_id, prompt.answer
        if prompt.group is None or answer is None:
            held = None if answer is None else answer.id
            return DecidedAnswer(name, held, "hold", None, (), prompt.held)
        scores = prompt.group.scores
        ships = shipped_claims(scores, self.threshold_.value, least_kept=self.least_kept).tolist()
        units = tuple(
            DecidedClaim(claim.id, claim.text, claim.span, score, out)
            for claim, score, out in zip(prompt.claims, scores.tolist(), ships, strict=True)
        )
        text = shipped_text(answer.text, prompt.claims, ships, self.left_out)
        action: Action = "ship" if all(ships) else "mixed" if any(ships) else "hold"
        return DecidedAnswer(name, answer.id, action, text, units, "")


def _as_cut(prompt: ClaimedPrompt) -> bool:
    """Whether the claims are those that `sentences` makes, but for white space around them."""
    text = "" if prompt.answer is None else prompt.answer.text
    given, made = ([one.text.strip() for one in some] for some in (prompt.claims, claims_in(text)))
    return given == made
