"""Answers that nobody has labelled: what becomes of them where severities are counted."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

from streamer.clouds.cloud import Cloud
from streamer.errors import UsageError

Unlabelled = Literal["worst", "drop", "fail"]
UNLABELLED: tuple[Unlabelled, ...] = get_args(Unlabelled)
"""They count as severity 1; they are left out; or there must be none."""


def check_unlabelled(choice: str) -> Unlabelled:
    """Return a choice that is one. Raises `UsageError` for any other text."""
    found = next((one for one in UNLABELLED if one == choice), None)
    if found is None:
        raise UsageError(f"unlabelled must be one of {', '.join(UNLABELLED)}, not {choice!r}")
    return found


def unlabelled_note(
    missing: int, answers: int, choice: Unlabelled, *, option: str | None = "--unlabelled "
) -> str:
    """Say in one line how many answers have no severity, and what that means; empty for none.

    `option` : what stands before the name of another choice; None: there is no choice. Raises
    `UsageError` when the choice is `fail`, and there are some.
    """
    if not missing:
        return ""
    count = f"{missing:,} of {answers:,} answers have no severity"
    if choice == "fail":
        raise UsageError(
            f"{count}, and none may be missing; label them, or choose: {option}worst counts each as 1, {option}drop leaves "
            "them out"
        )
    if choice == "worst":
        other = "" if option is None else f" ({option}drop leaves them out)"
        return (
            f"{count} and count as 1, the worst: the budget holds whatever they are, and less ships{other}."
        )
    return (
        f"{count} and are left out: right if labels are missing at random; if bad answers are labelled less often, more "
        f"harm gets through than the budget allows ({option}worst is safe)."
    )


def counts(clouds: Sequence[Cloud]) -> tuple[int, int]:
    """Return how many answers have no severity, and how many there are."""
    missing = sum(severity is None for cloud in clouds for severity in cloud.severities)
    return missing, sum(len(cloud.responses) for cloud in clouds)


def filled(cloud: Cloud) -> Cloud:
    """Return a cloud whose missing severities are 1."""
    if None not in cloud.severities:
        return cloud
    return replace(
        cloud,
        responses=tuple(
            replace(response, severity=1.0) if response.severity is None else response
            for response in cloud.responses
        ),
    )
