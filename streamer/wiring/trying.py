"""Trying a labelled file: for the command, and, in a process of its own, for a page that takes it as an upload."""

import multiprocessing
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from streamer.clouds.cloud import Cloud, held_note, one_call
from streamer.clouds.evaluated_claims import CLAIM, CLAIM_BUDGETS, ClaimOptions, evaluate_claims, has_claims
from streamer.clouds.halves import SPLITS
from streamer.clouds.tables.answers import Reading
from streamer.clouds.tables.columns import Role, parse_mapping
from streamer.clouds.tables.rows import UnclearMarks
from streamer.clouds.unlabelled import check_unlabelled, counts, unlabelled_note
from streamer.errors import StreamerError, UsageError
from streamer.frames.answers import Doubt, Read, doubt_of, read
from streamer.frames.results import Report, claims_page, report_page
from streamer.gates.settings import NO_ENCODER, PARAMETERS
from streamer.scoring.encoders.registry import load_encoder
from streamer.scoring.registry import LIKELIHOOD
from streamer.settings.settings import Settings
from streamer.wiring.encoders import endpoint_encoder

if TYPE_CHECKING:
    from streamer.research.evaluation.run import ProgressWatch

MOST_SECONDS = 600.0
"""After so long an upload is given up."""


Ask = Callable[[Doubt], Mapping[Role, tuple[str, ...]]]


class _Asked(Exception):
    def __init__(self, doubt: Doubt) -> None:
        super().__init__()
        self.doubt = doubt


def tried(
    settings: Settings,
    file: Path,
    given: Mapping[str, Any],
    *,
    reading: Reading,
    unlabelled: str = "worst",
    seed: int = 0,
    ask: Ask,
    of_claims: Callable[[Sequence[Cloud]], None],
    note: Callable[[str], None] = lambda _text: None,
    warn: Callable[[str], None] = lambda _text: None,
    upload: str | None = None,
    watch: "ProgressWatch | None" = None,
) -> tuple[Report | None, list[str]]:
    """Say what a gate would make of a labelled file; and how it was read, in sentences.

    `given` : settings of the gate and parameters of its method. `ask` is told once what the file
    leaves open, and returns the columns that were named; `of_claims` gets answers with claims, of
    which there is no report; `note` and `warn` get the sentences before the rest is done. `upload` :
    what somebody calls the file, who has no options. `watch` : receives progress. Raises `UsageError` where the file cannot be
    tried; the message says what to do.
    """
    from streamer.frames.calibrating import Marking
    from streamer.frames.gate import Gate

    named, choice = dict(given), check_unlabelled(unlabelled)
    with ExitStack() as until:
        encode = _Encode(settings, named.pop("encoder", None), until, watch)
        gate = Gate(
            encoder=Marking(encode),
            unlabelled=choice,
            seed=seed,
            signals=reading.signals,
            models=reading.models,
            parameters={name: named.pop(name) for name in PARAMETERS if name in named},
            **named,
        )
        table = _read(file, reading, gate.kept_columns, ask)
        said = [f"{upload or file}: {table.recognised}", *table.notes]
        for one in said:
            note(one)
        if given.get("unit") == CLAIM or ("unit" not in given and has_claims(table.clouds)):
            of_claims(table.clouds)
            return None, said
        missing, answers = counts(table.clouds)
        option = "--unlabelled " if upload is None else None
        if missing == answers:
            raise UsageError(
                f"{file}: no answer has a severity, so there is nothing to judge by; say which column has them: "
                "--column severity=NAME, or --column correct=NAME where 1 means right"
            )
        likely = given.get("scorer") == LIKELIHOOD or ("scorer" not in given and one_call(table.clouds))
        left = (
            unlabelled_note(missing, answers, choice, option=option),
            held_note(table.clouds, likely=likely),
        )
        for one in filter(None, left):
            warn(one)
            said.append(one)
        encode.total = len({text for cloud in table.clouds for text in cloud.samples.texts})
        try:
            gate.fit(table)
            if watch is None:
                return gate.report(), said
            watch.phase("Calibrating on seeded halves", SPLITS)
            return gate.report(progress=watch.done), said
        except ValueError as error:
            raise UsageError(str(error)) from None


def _read(file: Path, reading: Reading, kept: Sequence[str], ask: Ask) -> Read:
    """Read a file; where it leaves something open, as the answer says. Raises `UnclearMarks` where none is given."""

    def settled(doubt: Doubt | None) -> Read | None:
        answered = ask(doubt) if doubt else {}
        again = replace(reading, columns={**reading.columns, **answered})
        return read(str(file), again, kept, advice=str) if answered else None

    try:
        table = read(str(file), reading, kept, advice=str)
    except UnclearMarks as unclear:
        if (found := settled(Doubt(unclear.columns, found=True))) is None:
            raise
        return found
    return settled(doubt_of(table)) or table


def try_upload(
    settings: Settings, name: str, content: bytes, alpha: float, columns: Sequence[str]
) -> str | Doubt:
    """Return the page of `streamer try` about an uploaded file, or what has to be asked first.
    Nothing of it is kept.

    `columns` like ``answer=text``; those that are not named are recognised. A process of its own
    reads it: a file that takes all memory or time costs that process alone. Raises `UsageError`
    where the file cannot be tried, or takes longer than `MOST_SECONDS`.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(
        target=_try_upload, args=(there, settings, name, content, alpha, columns), daemon=True
    )
    process.start()
    there.close()
    try:
        if not here.poll(MOST_SECONDS):
            raise UsageError(
                f"{name} takes longer than {MOST_SECONDS / 60:.0f} minutes; `streamer try` has no limit"
            )
        found: str | Doubt | UsageError = here.recv()
    except EOFError:
        raise UsageError(
            f"{name} could not be tried: memory may not suffice; `streamer try` says more"
        ) from None
    finally:
        process.kill()
        process.join()
    if isinstance(found, UsageError):
        raise found
    return found


def _try_upload(
    answer: Connection, settings: Settings, name: str, content: bytes, alpha: float, columns: Sequence[str]
) -> None:
    os.nice(10)
    with TemporaryDirectory(prefix="streamer-try-") as folder:
        file = Path(folder, f"upload{''.join(Path(name).suffixes[-2:])[:20]}")

        def ask(doubt: Doubt) -> Mapping[Role, tuple[str, ...]]:
            raise _Asked(doubt)

        of_claims: list[Sequence[Cloud]] = []
        found: str | Doubt | UsageError
        try:
            file.write_bytes(content)
            reading = Reading(columns=parse_mapping(columns))
            how: Any = {"reading": reading, "ask": ask, "of_claims": of_claims.append, "upload": name}
            report, said = tried(settings, file, {"alpha": alpha}, **how)
            if report is None:
                alphas = tuple(sorted({alpha, *CLAIM_BUDGETS}))
                asked = ClaimOptions(alphas=alphas, losses=("any",))
                result = evaluate_claims(name, of_claims[0], asked)
                found = claims_page(result, alpha, name, said, back="/try")
            else:
                found = report_page(report, name, said, back="/try")
        except _Asked as asked:
            found = asked.doubt
        except (StreamerError, OSError) as error:
            text = re.sub(r", or which of [^;]* with --format TOOL", "", str(error).replace(str(file), name))
            text = re.sub(r"(with )?--column ", "at Columns: ", text)
            found = UsageError(text)
    answer.send(found)


class _Encode:
    """The configured encoder, or the named one, loaded when the first text needs it."""

    def __init__(
        self, settings: Settings, name: str | None, until: ExitStack, watch: "ProgressWatch | None"
    ) -> None:
        self._settings, self._name, self._until = settings, name or settings.encoder.name, until
        self._loaded: Any = None
        self._watch, self._done = watch, 0
        self.total: int | None = None

    def __call__(self, texts: list[str]) -> ArrayLike:
        if self._name == NO_ENCODER:
            raise UsageError("answers are scored by their embeddings, and encoder.name is none: set one")
        if self._loaded is None:
            if self._watch is not None:
                self._watch.phase("Encoding answers", self.total)
            asked = endpoint_encoder(self._settings, self._name)
            if asked is not None:
                self._until.callback(asked.close)
            chosen = self._settings.encoder
            self._loaded = asked or load_encoder(self._name, device=chosen.device, threads=chosen.threads)
        found: ArrayLike = self._loaded.encode(texts)
        self._done += len(texts)
        if self._watch is not None:
            self._watch.done(self._done)
        return found


def run_trials(settings: Settings, port: int, announce: Callable[[str], None]) -> None:
    """Serve the page that takes files to try, on this machine alone, until SIGINT or SIGTERM."""
    from streamer.console.trial import trial_app
    from streamer.review.server import listen, serve
    from streamer.web.server import base_url

    with listen("127.0.0.1", port, command="try") as listening:
        announce(base_url("127.0.0.1", listening))
        serve(trial_app(partial(try_upload, settings)), listening)
