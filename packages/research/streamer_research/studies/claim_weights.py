"""Weights of `support-learned`, and what they keep where they learned nothing.

``python -m streamer_research.studies.claim_weights FILE...`` learns them from the labelled claims of
response clouds whose answers name their models. Before that it prints what ships by the loss
``any``, the mean over models: with a *model* left out, random halves of the prompts teach, by the
answers of all others; with a *file*, the other files do. Of the prompts that taught nothing 65 %
calibrate that model's answers, and the rest is measured.
"""

import argparse
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

FIGURES = ("kept", "something", "wrong")
OPTIONS = ClaimOptions(losses=("any",), calibrate=0.65, splits=15)


class Answer(NamedTuple):
    """A model's answer to a prompt of a file; `inputs` : of its claims, shape (K, 6)."""

    asked: tuple[Path, str]
    model: str
    prompt: ClaimedPrompt
    group: LabelledGroup
    inputs: Floats


def answers(paths: Sequence[Path]) -> Iterator[Answer]:
    """Read every model's answers that have claims."""
    for path in paths:
        for cloud in read_clouds(path):
            for model in sorted({name for one in cloud.responses if (name := model_of(one))}):
                prompt = claimed_prompt(cloud, model)
                if prompt.group is not None:
                    others = [WHOLE.part(r.text) for r in cloud.responses if r is not prompt.answer]
                    inputs = features([one.text for one in prompt.claims], others)
                    yield Answer((path, cloud.batch_id), model, prompt, prompt.group, inputs)


def learned(taught: Sequence[Answer]) -> tuple[Floats, float]:
    """Return logistic weights and a bias, for a severity under .5."""
    right = np.concatenate([one.group.severities for one in taught]) < 0.5
    fitted = LogisticRegression(max_iter=2000)  # type: ignore[no-untyped-call]
    fitted.fit(np.vstack([one.inputs for one in taught]), right)
    return fitted.coef_[0], float(fitted.intercept_[0])


def table(found: Sequence[Answer], *, by: str, halves: int) -> dict[str, Floats]:
    """Return `FIGURES` by `CLAIM_BUDGETS` of both scores; `by` : ``model`` or ``file``."""
    asked = sorted({one.asked for one in found})
    if by == "file":
        parts = [{one for one in asked if one[0] != out} for out in {one[0] for one in asked}]
    else:
        orders = (np.random.default_rng(seed).permutation(len(asked)) for seed in range(halves))
        parts = [{asked[place] for place in order[: len(asked) // 2]} for order in orders]
    made = dict[str, list[list[list[float]]]]()
    for model in sorted({one.model for one in found}):
        for seed, part in enumerate(parts):
            judged = [one for one in found if one.model == model and one.asked not in part]
            taught = [one for one in found if one.model != model and one.asked in part]
            weights, bias = learned(taught)
            options = replace(OPTIONS, seed=OPTIONS.splits * seed)
            scores = [(1 / (1 + np.exp(-(one.inputs @ weights) - bias))).round(6) for one in judged]
            groups = [replace(one.group, scores=own) for one, own in zip(judged, scores, strict=True)]
            own = [one.prompt for one in judged]
            other = [replace(one, group=group) for one, group in zip(own, groups, strict=True)]
            for name, prompts in (("support", own), ("learned", other)):
                rows = evaluate_prompts(name, prompts, options).rows
                figures = [[getattr(row, figure).mean for row in rows] for figure in FIGURES]
                made.setdefault(name, []).append(figures)
    every = {name: np.ma.masked_invalid(np.array(some, dtype=float)) for name, some in made.items()}
    return {name: some.mean(axis=0).filled(np.nan) for name, some in every.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(description="Learn the weights of support-learned.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--halves", type=int, default=20)
    options = parser.parse_args(arguments)
    found = list(answers(options.files))
    for by in ("model", "file")[: 1 + (len(options.files) > 1)]:
        sys.stdout.write(f"{by} left out; {', '.join(FIGURES)} at {CLAIM_BUDGETS}\n")
        for name, figures in table(found, by=by, halves=options.halves).items():
            sys.stdout.write(f"{name}  {'  '.join(f'{one:.3f}' for one in figures.ravel())}\n")
    weights, bias = learned(found)
    claims = sum(len(one.inputs) for one in found)
    sys.stdout.write(f"{claims} claims: {tuple(weights.round(4).tolist())}, bias {bias:.4f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
