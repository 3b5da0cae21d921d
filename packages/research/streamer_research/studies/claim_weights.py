"""Weights of `support-learned`, and what they keep where they learned nothing.

``python -m streamer_research.studies.claim_weights FILE...`` learns them from the labelled claims of
response clouds whose answers name their models. Before that it prints what ships by the loss
``any``, the mean over models: with a *model* left out, random halves of the prompts teach, by the
answers of all others; with a *file*, the other files do. Of the prompts that taught nothing 65 %
calibrate that model's answers, and the rest is measured.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from streamer.calibration.groups import LabelledGroup
from streamer.clouds.claims import ClaimedPrompt, claimed_prompt, model_of
from streamer.clouds.cloud_files import read_clouds
from streamer.clouds.evaluated_claims import CLAIM_BUDGETS, ClaimOptions, evaluate_prompts
from streamer.scoring.claims.support import features
from streamer.scoring.judged import WHOLE

Floats = NDArray[np.float64]

FIGURES, HALVES = ("kept", "something", "wrong"), 20
OPTIONS = ClaimOptions(losses=("any",), calibrate=0.65, splits=15)


class Answer(NamedTuple):
    """A model's answer to a prompt of a file; `inputs` : of its claims, shape (K, 6)."""

    asked: tuple[str, str]
    model: str
    prompt: ClaimedPrompt
    group: LabelledGroup
    inputs: Floats


def answers(paths: Sequence[str]) -> Iterator[Answer]:
    """Read every model's answers that have claims."""
    for path in paths:
        for cloud in read_clouds(Path(path)):
            for model in sorted({name for one in cloud.responses if (name := model_of(one))}):
                prompt = claimed_prompt(cloud, model)
                if prompt.group is not None:
                    others = [WHOLE.part(r.text) for r in cloud.responses if r is not prompt.answer]
                    inputs = features([one.text for one in prompt.claims], others)
                    asked = path, cloud.batch_id  # files may be of the same prompts
                    group = replace(prompt.group, id="/".join(asked))
                    yield Answer(asked, model, replace(prompt, group=group), group, inputs)


def learned(taught: Sequence[Answer]) -> tuple[Floats, float]:
    """Return logistic weights and a bias, for a severity under .5."""
    right = np.concatenate([one.group.severities for one in taught]) < 0.5
    fitted = LogisticRegression(max_iter=2000)  # type: ignore[no-untyped-call]
    fitted.fit(np.vstack([one.inputs for one in taught]), right)
    return fitted.coef_[0], float(fitted.intercept_[0])


def table(found: Sequence[Answer], by: str) -> dict[str, Floats]:
    """Return `FIGURES` by `CLAIM_BUDGETS` of both scores; `by` : ``model`` or ``file``."""
    asked = sorted({one.asked for one in found})
    if by == "file":
        parts = [{one for one in asked if one[0] != out} for out in sorted({one[0] for one in asked})]
    else:
        orders = (np.random.default_rng(seed).permutation(len(asked)) for seed in range(HALVES))
        parts = [{asked[place] for place in order[: len(asked) // 2]} for order in orders]
    made = dict[str, list[list[list[float]]]]()
    for model in sorted({one.model for one in found}):
        for seed, part in enumerate(parts):
            judged = [one for one in found if one.model == model and one.asked not in part]
            taught = [one for one in found if one.model != model and one.asked in part]
            weights, bias = learned(taught)
            options = replace(OPTIONS, seed=OPTIONS.splits * seed)
            own, other = [one.prompt for one in judged], []
            for one in judged:
                scores = 1 / (1 + np.exp(-(one.inputs @ weights) - bias))
                other.append(replace(one.prompt, group=replace(one.group, scores=scores.round(6))))
            for name, prompts in (("support", own), ("learned", other)):
                rows = evaluate_prompts(name, prompts, options).rows
                figures = [[getattr(row, one).mean or 0.0 for row in rows] for one in FIGURES]
                made.setdefault(name, []).append(figures)
    return {name: np.mean(some, axis=0) for name, some in made.items()}


def main(files: Sequence[str]) -> None:
    """Print what both scores keep, and the weights."""
    found = list(answers(files))
    for by in ("model", "file")[: len(files)]:
        sys.stdout.write(f"{by} left out; {', '.join(FIGURES)} at {CLAIM_BUDGETS}\n")
        for name, figures in table(found, by).items():
            sys.stdout.write(f"{name}  {'  '.join(f'{one:.3f}' for one in figures.ravel())}\n")
    weights, bias = learned(found)
    sys.stdout.write(
        f"{sum(len(one.inputs) for one in found)} claims: {tuple(weights.round(4).tolist())}, "
        f"bias {bias:.4f}\n"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
