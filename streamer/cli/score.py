"""`streamer score`: learned scores of gates."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamer import wiring
from streamer.cli import FAILED
from streamer.cli import options as opt
from streamer.cli.broker import announce_now
from streamer.cli.console import note, percent, print_fields, print_json, say
from streamer.errors import UsageError
from streamer.wording.numbers import when

if TYPE_CHECKING:
    from streamer.labels.learning import Lesson
    from streamer.scoring.learned import LearnedModel

FORMAT = "streamer.score.v1"

app = typer.Typer(no_args_is_help=True)


@app.command()
def fit(
    gate: opt.GateArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the proposal here, for `streamer score adopt`. Default: nowhere."
        ),
    ] = None,
    json: opt.JsonOption = False,
) -> None:
    """Fit a learned score on half of a gate's labels, and say whether it would serve more than Gram energy.

    A keyed hash of each batch says which half it is in, permanently: the labels that fit a score never calibrate it. Nothing is
    recorded, and the gate does not change. No proposal is written, and the exit status is 1, unless the score serves at least
    one point more of all prompts on prompts that did not fit it, and this is more than chance.
    """
    from streamer.scoring.fitting import CONFIDENCE, MARGIN

    lesson = wiring.fit_score(wiring.load_settings(), gate)
    worth = lesson.worth
    if worth.shown and out is not None:
        try:
            out.write_text(_proposal(gate, lesson), "utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {out}: {error}") from None
    if json:
        print_json(_json(gate, lesson))
    else:
        print_fields(
            {
                "score": lesson.model.name,
                "fitted on": f"{lesson.fit} labelled prompts; {lesson.calibrate} others would calibrate it",
                "Gram energy serves": f"{percent(worth.gram, 1)} of prompts",
                "it would serve": percent(worth.learned, 1),
                "difference": f"{100 * worth.gain:+.1f} points, standard error {100 * worth.error:.1f}",
            }
            | _knows(lesson.model)
        )
        note(
            "Means over budgets from half to twice the gate's, on prompts that did not fit the score, each calibrated with "
            "the labels that would be its own. Labels of the other half were not looked at."
        )
        if worth.shown and out is not None:
            say(f"It is worth having. The proposal is in {out}: streamer score adopt {gate} {out}")
        elif worth.shown:
            say("It is worth having. Run this again with --out FILE to write the proposal.")
        else:
            say(
                f"Refused: it does not serve at least {100 * MARGIN:g} points more than Gram energy, or this may be chance (the gain "
                f"must be more than {CONFIDENCE:.2f} standard errors). The gate keeps Gram energy; try again with more labels."
            )
    if not worth.shown:
        raise typer.Exit(FAILED)


def _knows(model: "LearnedModel | None") -> dict[str, object]:
    """A line about the language models that a score was fitted on; none where it does not look at them."""
    if model is None or not model.models:
        return {}
    names = ", ".join(one or "unnamed" for one in model.models)
    return {"language models": f"{names}; a batch with an answer of another one is held (unknown_model)"}


@app.command()
def adopt(
    gate: opt.GateArgument,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="The proposal that `streamer score fit` wrote. Default: what the recalibrator has proposed.",
        ),
    ] = None,
    reason: opt.ReasonOption = "learned score",
    by: opt.ByOption = None,
    explain: opt.ExplainOption = False,
    json: opt.JsonOption = False,
) -> None:
    """Put a proposed score in force: freeze it in the gate's settings, and calibrate on the labels that did not fit it.

    A FILE is checked first: the score is fitted again on the record's labels, must come out the same, and is recorded as a fit. The
    audit sample is scored again, which needs the gate's encoder. The gate is closed for the moment between the
    change and its calibration. `streamer gate set GATE --scorer gram` goes back, and closes the gate until it is recalibrated.
    """
    from streamer.cli.recalibrate import print_report, report_json

    actor = opt.who(by)
    settings = wiring.load_settings()
    if file is None:
        model, done = wiring.adopt_proposed(settings, gate, by=actor, reason=reason)
    else:
        model = _read(gate, file)
        done = wiring.adopt_fitted(settings, gate, model, by=actor, reason=reason)
    if json:
        print_json({"scorer": model.name, **report_json(done)})
    else:
        print_report(done, None, explain=explain)
    announce_now(settings)


@app.command()
def show(gate: opt.GateArgument, json: opt.JsonOption = False) -> None:
    """Show a gate's score, what is proposed in its place, and when the recalibrator fits one next."""
    from streamer.labels.learning import wanted_labels
    from streamer.scoring.learned import LearnedModel
    from streamer.scoring.registry import is_learned

    with wiring.open_store(wiring.load_settings()) as store:
        settings = store.gates.get(gate).settings
        newest = store.score_fits.newest(gate)
        labelled = store.learned_scores.labelled(gate, settings=settings, before=wiring.now())
    wanted = wanted_labels(settings, newest)
    waits = newest is not None and newest.waits(settings)
    if json:
        print_json(
            {
                "gate": gate,
                "scorer": settings.scorer,
                "learn_score": settings.learn_score,
                "labelled": labelled,
                "fits_at": wanted,
                "proposed": newest.model.name if newest is not None and newest.model and waits else None,
                "newest": None
                if newest is None
                else {
                    "outcome": newest.outcome,
                    "scorer": None if newest.model is None else newest.model.name,
                    "labelled": newest.labelled,
                    "before": newest.before,
                    "after": newest.after,
                    "error": newest.error,
                    "reason": newest.reason,
                    "by": newest.by,
                    "at": newest.at.isoformat(),
                },
            }
        )
        return
    print_fields(
        {
            "score": settings.scorer,
            "learned scores": settings.learn_score,
            "labelled prompts": f"{labelled}, with their texts",
            "fits next": "never by itself"
            if wanted is None
            else f"after a run that finds {wanted} labelled prompts",
        }
        | _knows(
            None
            if settings.model is None or not is_learned(settings.scorer)
            else LearnedModel.of_text(settings.model)
        )
    )
    if newest is not None:
        say(
            f"{newest.outcome.capitalize()} by {newest.by}, {when(newest.at)}, at {newest.labelled} labelled prompts: {newest.reason}."
        )
    if waits:
        note(f"streamer score adopt {gate}, or: streamer score reject {gate} --reason ...")
    elif (
        newest is not None
        and newest.outcome == "proposed"
        and (newest.model is None or newest.model.name != settings.scorer)
    ):
        note("The gate has other settings now than this score was fitted for: it is not proposed again.")


@app.command()
def reject(
    gate: opt.GateArgument,
    reason: Annotated[str, opt.for_the_record("--reason", "Why not, for the record.", metavar="WHY")],
    by: opt.ByOption = None,
    json: opt.JsonOption = False,
) -> None:
    """Reject the score that the recalibrator proposes: it is not proposed again, and the gate keeps the one that it has.

    The next one is fitted when there are half as many labelled prompts again.
    """
    actor = opt.who(by)
    with wiring.open_store(wiring.load_settings()) as store:
        rejected = store.score_fits.reject(gate, by=actor, reason=reason)
    name = "" if rejected.model is None else rejected.model.name
    if json:
        print_json({"gate": gate, "rejected": name})
    else:
        say(f"The score {name} is not proposed again; gate {gate} keeps the one that it has.")


def _json(gate: str, lesson: "Lesson") -> dict[str, Any]:
    worth = lesson.worth
    return {
        "format": FORMAT,
        "gate": gate,
        "scorer": lesson.model.name,
        "model": lesson.model.text,
        "fit": lesson.fit,
        "calibrate": lesson.calibrate,
        "before": worth.gram,
        "after": worth.learned,
        "error": worth.error,
        "worth_having": worth.shown,
    }


def _proposal(gate: str, lesson: "Lesson") -> str:
    import json

    return json.dumps(_json(gate, lesson), indent=1) + "\n"


def _read(gate: str, file: Path) -> "LearnedModel":
    import json

    from streamer.scoring.learned import LearnedModel

    try:
        found = json.loads(file.read_text("utf-8"))
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ValueError(f"it is no {FORMAT}")
        if found.get("gate") != gate:
            raise ValueError(f"it is for the gate {found.get('gate')!r}")
        if found.get("worth_having") is not True:
            raise ValueError("it says itself that the score is not worth having")
        model = LearnedModel.of_text(str(found.get("model")))
        if model.name != found.get("scorer"):
            raise ValueError(f"its model is {model.name}, and it names {found.get('scorer')}")
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{file} is no proposal for gate {gate}: {error}; `streamer score fit {gate} --out FILE` makes one"
        ) from None
    return model
