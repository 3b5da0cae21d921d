"""`streamer gate`: gates are rows with append-only revisions, never files."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamer import wiring
from streamer.calibration import registry
from streamer.calibration.calibrators.full import Full
from streamer.calibration.history import LEAST, MOST, level_above
from streamer.cli import options as opt
from streamer.cli.broker import announce_now
from streamer.cli.console import (
    counted,
    note,
    print_fields,
    print_json,
    print_list,
    print_table,
    say,
    warn,
)
from streamer.cli.gate_options import DEFAULT_METHOD, SETTINGS, with_settings
from streamer.cli.policies import NO_GATE, gate_json, styled_threshold, unread_json, unread_text
from streamer.clouds.simulation import SIMULATED_KIND
from streamer.errors import UsageError
from streamer.gates.declared import Embeddings
from streamer.gates.policy import Policy
from streamer.gates.setting import EXTERNAL_PREFIX, UPSTREAM_ID
from streamer.gates.setting_changes import calibrated_for_another, differences, unread
from streamer.gates.settings import HELD_WORDS, NO_ENCODER, GateSettings, is_in_place, stands_for
from streamer.gates.shapes import INDICATOR_SHAPE
from streamer.recalibration.run import SampleQuery
from streamer.risk.rounds.report import Drawing
from streamer.scoring.encoders.registry import DEFAULT_ENCODER
from streamer.scoring.judged import WHOLE, form
from streamer.scoring.plugins import entry_points, frozen
from streamer.scoring.registry import CHOICE, CHOOSING, EVERY, GRAM, LIKELIHOOD, OF_CLAIMS, SUPPORT
from streamer.scoring.scorer import Scorer
from streamer.scoring.signals.signal_list import SignalList
from streamer.settings.settings import Settings
from streamer.wording.numbers import percent, when
from streamer.wording.policies import (
    NOTHING_PROMISED,
    guarantee_text,
    setting_name,
    setting_text,
    settings_shown,
    status_text,
    threshold_text,
)
from streamer.wording.verdicts import drawing_text

if TYPE_CHECKING:
    from streamer.store import Store
    from streamer.store.calibration.calibration_runs import Calibrations


app = typer.Typer(no_args_is_help=True)

NEW: "Mapping[str, Any]" = {"encoder": NO_ENCODER}
"""What a gate has before anything is given."""

PromiseOption = Annotated[
    str | None,
    opt.option(
        "|".join(registry.promises()),
        "What the budget bounds, in place of a method's name: "
        + "; ".join(
            f"{promise} is --method {name}, {registry.every()[name].summary}"
            for promise, name in registry.promises().items()
        )
        + ".",
        ...,
    ),
]


NewKindOption = Annotated[
    bool,
    opt.flag(
        "--new-kind",
        "The --severity-kind is meant as it is written, though it looks like a known one.",
        ...,
        hidden=True,
    ),
]


@app.command()
@with_settings
def create(
    gate: opt.GateArgument,
    *,
    given: dict[str, Any],
    promise: PromiseOption = None,
    seed: int | None = opt.option(
        "S", "Seed of calibration's randomness, fixed permanently. Default: drawn at random.", hidden=True
    ),
    new_kind: NewKindOption = False,
    reason: opt.RareReasonOption = "created",
    by: opt.RareByOption = "",
    json: opt.JsonOption = False,
) -> None:
    """Create a gate. It starts closed: it holds everything and draws batches for labelling until calibrated."""
    given = with_promise(given, promise)
    settings = wiring.load_settings()
    if not new_kind:
        check_kind(given.get("severity_kind"))
    with wiring.open_store(settings) as store:
        chosen = wanted_settings(gate, given, settings, store)
        revision = store.gates.create(gate, chosen, by=by, reason=reason, seed=seed)
        policy = store.policies.newest(gate)
    if json:
        print_json(gate_json(revision, policy))
        announce_now(settings)
        return
    say(f"Gate {gate} is created and closed: it holds everything until it is calibrated.")
    _warn_of_options(chosen, given)
    if chosen.embeddings == "accept":
        note(
            f"It takes embeddings of dimension {chosen.dimension} from events whose embedding_encoder is "
            f"{chosen.encoder.removeprefix(EXTERNAL_PREFIX)}: only the publisher vouches for them."
        )
    if chosen.audit_probability == 0:
        note(
            "Its audit probability is 0, so nothing will be drawn for labelling and it can never be calibrated."
        )
    note(
        f"Next: publish batches to it, or ask it by HTTP; label what `streamer label queue --gate {gate}` lists, "
        f"then `streamer recalibrate {gate}`."
    )
    announce_now(settings)


@app.command("set")
@with_settings
def set_(
    gate: opt.GateArgument,
    *,
    given: dict[str, Any],
    promise: PromiseOption = None,
    label_above: float | None = opt.option(
        "SHARE",
        "Label only the share (0.01 to 1) of prompts with the highest scores: a --label-floor from the newest prompts that "
        "were not drawn for labelling, frozen in the gate's settings and its policies.",
        parser=opt.share_from(0.01),
    ),
    new_kind: NewKindOption = False,
    dry_run: bool = opt.flag("--dry-run", "Only show what would happen."),
    reason: opt.ReasonOption = "changed",
    by: opt.ByOption = "",
    json: opt.JsonOption = False,
) -> None:
    """Change a gate: a new revision and a new policy version. Says whether that closes the gate.

    A change of what the threshold was calibrated for (unit, scorer, encoder, upstream, severity kind, alpha, the method and its
    parameters, shape, segments, label floor, max attempts) closes the gate until it is recalibrated. So does a change that
    excludes labels (removing a labeller, naming labellers for the first time, demanding signatures). Any other change keeps the threshold.
    """
    given = with_promise(given, promise)
    if not given and label_above is None:
        raise UsageError("nothing to change: give at least one option, see `streamer gate set --help`")
    settings = wiring.load_settings()
    if not new_kind:
        check_kind(given.get("severity_kind"))
    with wiring.open_store(settings) as store:
        before = store.gates.get(gate)
        calibrated = store.policies.newest(gate).calibrated
        unsuited = None if "upstream" in given else before.settings
        set_to = partial(wanted_settings, gate, settings=settings, store=store, before=unsuited)
        chosen = set_to(given, present=before.settings.named())
        if label_above is not None:
            given = with_floor(given, label_above, store.calibration, gate, chosen, wiring.now())
            chosen = set_to(given, present=before.settings.named())
        changes = differences(before.settings, chosen)
        another = calibrated_for_another(before.settings, chosen)
        closes = bool(another)
        labels = sum(count for (name, _), count in store.labels.counts().items() if name == gate)
        if changes and not dry_run:
            store.gates.revise(gate, {name: now for name, (_, now) in changes.items()}, by=by, reason=reason)
        revision, policy = store.gates.get(gate), store.policies.newest(gate)
    if json:
        print_json({"changes": changes, "closes": closes, "dry_run": dry_run, **gate_json(revision, policy)})
    elif not changes:
        say(f"Gate {gate} has these settings already; nothing was changed.")
    else:
        print_table(
            ["setting", "was", "would be" if dry_run else "is"],
            [
                [setting_name(name), setting_text(name, was), setting_text(name, now)]
                for name, (was, now) in changes.items()
            ],
        )
        say(_effect(gate, policy, another, calibrated=calibrated, dry_run=dry_run))
        if another and labels:
            warn(
                f"{counted(labels, 'label is', 'labels are')} there already: what a calibration on them promises holds "
                f"only if they played no part in choosing {' and '.join(another).replace('_', ' ')}. What is chosen by what it ships, "
                "in what-if or by the slider, is a selection: its promise begins with a calibration on prompts decided from now on"
            )
    _warn_of_options(chosen, given)
    if changes and not dry_run:
        announce_now(settings)


def _warn_of_options(chosen: GateSettings, given: "Mapping[str, object]") -> None:
    """Warn of options that have no effect on this gate."""
    for name in sorted(unread(chosen) & given.keys()):
        warn(
            f"--{name.replace('_', '-')} has no effect on this gate: method {chosen.method}, shape {chosen.shape.name}"
            + (", no segments" if name == "segment_fallback" else "")
            + (f", embeddings {chosen.embeddings}" if name == "dimension" else "")
        )


def check_kind(kind: object) -> None:
    """Raise `UsageError` where an unknown kind of severity looks like a known one: labels of that one would never count."""
    from streamer.labels import registry

    known = [*registry.every(), SIMULATED_KIND]
    found = [] if kind in (None, *known) else get_close_matches(str(kind), known, n=1, cutoff=0.7)
    if found:
        raise UsageError(
            f"there is no kind of severity {kind!r}, and it looks like {found[0]!r}: give --severity-kind {found[0]}, or "
            f"--new-kind if {kind!r} is meant; nothing was changed"
        )


def _effect(gate: str, policy: "Policy", another: "Sequence[str]", *, calibrated: bool, dry_run: bool) -> str:
    """Say what a change does to the threshold: the gate closes, keeps it, or had none."""
    named = ", ".join(another).replace("_", " ")
    if not calibrated:
        return f"Gate {gate} {'would stay' if dry_run else 'stays'} closed: it was not calibrated yet."
    if named:
        return (
            f"Gate {gate} {'would close' if dry_run else 'is closed now'}, because its threshold was calibrated for "
            f"different settings ({named}); it {'would hold' if dry_run else 'holds'} everything until "
            f"`streamer recalibrate {gate}`."
        )
    return f"Gate {gate} {'would keep' if dry_run else 'keeps'} its threshold: {threshold_text(policy)}."


@app.command("list")
def list_(json: opt.JsonOption = False) -> None:
    """List the gates, and whether each ships."""
    with wiring.record() as store:
        policies = store.policies.newest_of_all()
        revisions = {one.gate: one for one in store.gates.list()}
    print_list(
        json,
        list(policies.values()),
        ["gate", "threshold", "mode", "unit", "alpha", "method", "not shipped", "audit", "version", "since"],
        _cells,
        none=NO_GATE,
        to_json=lambda one: gate_json(revisions[one.gate], one),
    )


def _cells(policy: "Policy") -> list[object]:
    settings = policy.settings
    return [
        policy.gate, styled_threshold(policy), settings.mode, settings.unit, settings.alpha, settings.method,
        HELD_WORDS[settings.hold_action], f"{settings.audit_probability:.4g}", policy.version, policy.valid_from,
    ]  # fmt: skip


@app.command()
def show(gate: opt.GateArgument, json: opt.JsonOption = False) -> None:
    """Show one gate: what it decides with, and why it ships or holds."""
    with wiring.record() as store:
        revision, policy = store.gates.get(gate), store.policies.newest(gate)
        unread = store.labels.unread(gate)
        rate, extra = store.monitoring.rate(gate)
        candidate = store.candidates.newest(gate)
    drawing = Drawing.of(rate, extra, revision.settings, wiring.now())
    if json:
        print_json(
            gate_json(revision, policy)
            | {"unread_labels": unread_json(unread).get(gate), "drawing": asdict(drawing)}
        )
        return
    say(f"{gate}: {status_text(policy)}")
    print_fields(
        {name: value for name, _, value in settings_shown(revision.settings)}
        | {
            "labels drawn": drawing_text(drawing),
            **({"labels not read": unread_text(unread[gate])} if gate in unread else {}),
            "seed": revision.seed,
            "revision": f"{revision.revision}, {when(revision.created_at)} by {revision.created_by}: {revision.reason}",
            "policy": f"version {policy.version}, {when(policy.valid_from)} by {policy.created_by}: {policy.reason}",
            "guarantee": guarantee_text(policy.guarantee) or NOTHING_PROMISED,
            **({} if candidate is None else {"candidate": f"decided beside; streamer candidate show {gate}"}),
        }
    )


def with_promise(given: "Mapping[str, Any]", promise: str | None) -> dict[str, Any]:
    """Add the method that a promise asks for; raises as `promised_method` does."""
    if promise is None:
        return dict(given)
    return {**given, "method": opt.promised_method(promise, given.get("method"))}


def with_floor(
    given: "Mapping[str, Any]",
    share: float,
    scores: "Calibrations",
    gate: str,
    settings: "GateSettings",
    now: "datetime",
) -> dict[str, Any]:
    """Add the label floor above which a share of the gate's undrawn prompts score. Raises `UsageError` where they are few.

    `settings` : those that the floor is for; scores that others gave say nothing of it.
    """
    import numpy as np

    if "label_floor" in given:
        raise UsageError("--label-above finds a --label-floor: leave one of them out")
    if settings.calibrator.of_signals:
        raise UsageError(
            f"--label-above does not go with method {settings.method}: it fits the labels of all prompts. --ship-above holds what scores low"
        )
    found = scores.undrawn_scores(SampleQuery(gate, settings, now), most=MOST)
    if len(found) < LEAST:
        raise UsageError(
            f"--label-above needs {LEAST} scored prompts that were not drawn for labelling, and gate {gate} has "
            f"{len(found)} of the scorer {settings.scorer}, unit {settings.unit}: publish first, with an audit probability below 1, or name a --label-floor"
        )
    floor = level_above(np.array([score for one in found for score in one]), share)
    prompts = counted(len(found), "prompt that was", "prompts that were")
    note(f"Label floor {floor!r}: of {prompts} not drawn, {percent(share)} or more score above it.")
    return {**given, "label_floor": floor}


def wanted_settings(
    gate: str,
    given: "Mapping[str, Any]",
    settings: "Settings",
    store: "Store",
    *,
    present: "Mapping[str, Any]" = NEW,
    before: GateSettings | None = None,
    settings_of: "Callable[[str], GateSettings] | None" = None,
) -> GateSettings:
    """Return what a gate has once the given settings stand in place of the `present` ones, by their
    names.

    `before` : of a gate that may stay as unsuited for its upstream as it is. `settings_of` : of
    another gate; by default as they are on record. Raises `UsageError` for what no gate can have,
    and for one that could ship no answer of its upstream.
    """
    given = _with_upstream(
        gate, given, settings, settings_of or (lambda name: store.gates.get(name).settings)
    )
    chosen = chosen_settings(present, given, settings, store.encoders.dimension)
    why = wiring.unsuited_gate(settings, gate, chosen)
    if why is not None and (before is None or why != wiring.unsuited_gate(settings, gate, before)):
        raise UsageError(f"gate {gate} could ship no answer of its upstream: {why}; nothing was changed")
    return chosen


def chosen_settings(
    present: "Mapping[str, Any]",
    given: "Mapping[str, Any]",
    settings: "Settings",
    known_dimension: "Callable[[str], int | None]",
) -> GateSettings:
    """Merge the given settings into the present ones, and find the encoder that a change of scorer needs.

    `known_dimension` looks an encoder up that workers have run. Raises `UsageError` for what no gate can have; the
    message names the option.
    """
    chosen = dict(present)
    chosen |= given
    of_claims = "scorer" in given or chosen.get("scorer") in OF_CLAIMS
    if chosen.get("unit") == "claim" and not of_claims:
        chosen["scorer"] = SUPPORT
    chosen |= _by_signals(present, chosen, given)
    if "scorer" in given and given["scorer"] != present.get("scorer"):
        chosen["model"] = given.get("model")
    if "scorer" in given and given["scorer"] not in EVERY:
        chosen |= _of_another_package(str(given["scorer"]))
    named = EVERY.get(str(chosen.get("scorer", GRAM)))
    if named is not None and named.in_place is not None:
        chosen["encoder"] = _in_place(named, given, present, settings)
    elif "encoder" in given:
        chosen["encoder"] = _encoder_id(str(given["encoder"]), chosen, settings)
    elif is_in_place(chosen.get("encoder", NO_ENCODER)):
        chosen["encoder"] = _encoder_id(settings.encoder.name, chosen, settings)
    if chosen["encoder"] != present["encoder"]:
        # The choice for another encoder's embeddings does not carry over to this one's.
        default = {"embeddings": _embeddings_of(chosen["encoder"], settings), "dimension": None}
        chosen |= default | {name: given[name] for name in default if name in given}
    if chosen.get("embeddings") == "accept" and not is_in_place(chosen["encoder"]):
        chosen["dimension"] = _dimension_of(chosen["encoder"], chosen["dimension"], settings, known_dimension)
    try:
        return GateSettings(**chosen)
    except ValueError as error:
        raise UsageError(_as_options(str(error))) from None


def _by_signals(
    present: "Mapping[str, Any]", chosen: "Mapping[str, Any]", given: "Mapping[str, Any]"
) -> dict[str, Any]:
    """Find method, scorer and signals, as far as they follow from one another.

    A new gate has the method `full`, unless what it is given goes with another one only. That is known before any label is.
    """
    full = chosen.get("method") == Full.name
    if full and given.get("scorer", CHOICE) not in CHOOSING:
        raise UsageError(
            f"--scorer {given['scorer']} goes with a method that cuts one score, and --method {Full.name} reads all signals: name one too, "
            f"like --method {DEFAULT_METHOD}"
        )
    if "method" not in chosen:
        full = (
            chosen.get("scorer", CHOICE) in CHOOSING
            and chosen.get("unit", "best") != "response"
            and chosen.get("label_floor") is None
            and chosen.get("shape", INDICATOR_SHAPE.name) == INDICATOR_SHAPE.name
            and chosen.get("pending") != "labelled-only"
        )
    found: dict[str, Any] = {}
    if "method" not in chosen:
        found["method"] = Full.name if full else DEFAULT_METHOD
    try:
        before, judged = form(present.get("judged", WHOLE.text)), form(str(chosen.get("judged", WHOLE.text)))
    except ValueError as error:
        raise UsageError(_as_options(str(error))) from None
    if (full or judged.agrees) and "scorer" not in given and chosen.get("scorer") not in CHOOSING:
        found["scorer"] = CHOICE
    scorer = found.get("scorer", chosen.get("scorer", GRAM))
    if full and chosen.get("signals") is None:
        found["signals"] = SignalList().text
    elif scorer not in CHOOSING and "signals" not in given:
        found["signals"] = None
    if (listed := found.get("signals", chosen.get("signals"))) is not None:
        kept = SignalList.of_text(listed)
        names = [name for name in kept.given if "signals" in given or name not in before.signal]
        own = ("logprob",) if scorer == LIKELIHOOD else judged.signal
        found["signals"] = replace(kept, given=tuple(dict.fromkeys((*names, *own)))).text
    return found


def _with_upstream(
    gate: str,
    given: "Mapping[str, Any]",
    settings: "Settings",
    settings_of: "Callable[[str], GateSettings]",
) -> dict[str, Any]:
    """Replace the name of an upstream by its id, which says how it is set now. Raises `UsageError` for another gate's."""
    name = given.get("upstream")
    if name is None or UPSTREAM_ID.fullmatch(name):
        return dict(given)
    found = wiring.upstream_id(settings, name, settings_of)
    if name != gate and (
        gate not in settings.upstreams or wiring.upstream_id(settings, gate, settings_of) != found
    ):
        raise UsageError(
            f"--upstream must be {gate}, for `streamer serve` asks [upstreams.{gate}] for the answers of gate {gate}, and not "
            f"[upstreams.{name}]"
        )
    return {**given, "upstream": found}


def _of_another_package(name: str) -> "dict[str, str]":
    """Freeze the scorer of an installed package. Raises `UsageError` for a name that none has."""
    if name not in entry_points():
        if "@" in name:
            return {}  # by its whole name, as it is recorded
        raise UsageError(
            f"--scorer must be one of {', '.join(EVERY)}, or one of an installed package (`streamer scorer list`), not {name!r}"
        )
    try:
        spec = frozen(name)
    except ValueError as error:
        raise UsageError(f"--scorer {name}: {error}") from None
    return {"scorer": spec.frozen_name, "model": spec.text}


def _in_place(
    scorer: "Scorer", given: "Mapping[str, Any]", present: "Mapping[str, Any]", settings: "Settings"
) -> str:
    """Return what a gate has in the place of an encoder whose scorer reads no embeddings: of a judge its name."""
    wanted = str(scorer.in_place)
    if "encoder" in given:
        if not stands_for(wanted, str(given["encoder"])):
            raise UsageError(f"--encoder must be {wanted} with --scorer {scorer.name}, or left out")
        return str(given["encoder"])
    if not scorer.asks:
        return wanted
    if "scorer" not in given and stands_for(wanted, present["encoder"]):
        return str(present["encoder"])
    return wiring.judge_scoring_id(settings)


def _embeddings_of(encoder: str, settings: "Settings") -> "Embeddings":
    """Return the default for embeddings of events: a gate accepts them where no worker makes any."""
    if encoder.startswith(EXTERNAL_PREFIX):
        return "accept"
    return "accept" if not is_in_place(encoder) and settings.encoder.name == NO_ENCODER else "refuse"


def _dimension_of(
    encoder: str, given: int | None, settings: "Settings", known_dimension: "Callable[[str], int | None]"
) -> int:
    """Find the dimension of an encoder's vectors; raises `UsageError` where it is unknown, or known to be another."""
    from streamer.scoring.encoders.endpoint_encoder import is_endpoint_name, parted_name

    known = None
    if is_endpoint_name(encoder):
        known = parted_name(encoder)[1]
    elif not encoder.startswith(EXTERNAL_PREFIX):
        known = known_dimension(encoder)
        for name in (settings.encoder.name, DEFAULT_ENCODER):
            if known is None and name != NO_ENCODER:
                with suppress(UsageError):
                    identity = wiring.encoder_identity(settings, name)
                    known = identity.dimension if identity.id == encoder else None
    if given is None:
        if known is None:
            raise UsageError(f"give --dimension D, that of the embeddings of {encoder}: it is not known here")
        return known
    if known not in (None, given):
        raise UsageError(f"--dimension must be {known}, that of {encoder}, not {given}")
    return given


def _as_options(text: str) -> str:
    """Name settings as the options that set them, in a message that speaks of settings."""
    first, _, rest = text.partition(" ")
    return f"{_OPTIONS[first]} {rest}" if first in _OPTIONS else text


_IDENTITY = re.compile(r"(?!openai:)[^/\s]+@[0-9a-f]{8}|openai:[!-~]+@[1-9][0-9]{0,5}")
_OPTIONS = {one.name: one.option for one in SETTINGS}


def _encoder_id(name: str, chosen: "Mapping[str, Any]", settings: "Settings") -> str:
    """Name an encoder by its weights; an identity (``name@hash``) or an external encoder is taken as it is.

    So is ``openai:MODEL@DIMENSION``; without a dimension the configured endpoint is asked for it.
    """
    if name == NO_ENCODER:
        raise UsageError(
            f"a gate with the scorer {chosen.get('scorer', GRAM)} needs an encoder; give --encoder NAME, or --scorer external, or, for "
            "embeddings that events bring, --encoder external:NAME --dimension D"
        )
    if name.startswith(EXTERNAL_PREFIX) or _IDENTITY.fullmatch(name):
        return name
    return wiring.encoder_identity(settings, name).id
