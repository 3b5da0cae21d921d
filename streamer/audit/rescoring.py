"""Scoring stored texts again with the encoders that the decisions name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.events.responses import recorded_models, recorded_numbers
from streamer.gates.declared import Unit
from streamer.gates.policy_gate import unit_row
from streamer.gates.settings import NO_ENCODER
from streamer.labels.answer_forms import answer_batch
from streamer.scoring.judged import WHOLE, Form, form
from streamer.scoring.plugins import Installed, loaded
from streamer.scoring.registry import EVERY, LIKELIHOOD, OF_CLAIMS, is_plugin, scorer_named
from streamer.scoring.scorer import AnswerBatch, Scorer
from streamer.scoring.scorers.judge import Judge
from streamer.scoring.signals.signal_list import MEASURED, SignalList
from streamer_verify.values import place_of

if TYPE_CHECKING:
    from streamer_verify.verifier import Verifier

    Embed = Callable[[Sequence[Sequence[str]]], Sequence[NDArray[np.float32]]]
    _Waiting = tuple[str, Scorer, list[str], Form, tuple[str, ...], "list[float] | None", "_Row | None"]

TOLERANCE = 1e-5
"""How far a score may lie from the stored one: ten of the steps of 1e-6 that scores are rounded to. On one machine
with the same libraries the vectors are the same to the bit; another processor's float32 sums differ in the last digits,
and a score moves by no more than the cosines that it is the mean square of."""

_BATCHES_A_CALL = 64


class _Row(NamedTuple):
    """A row of signals on record, and what it was made of besides texts and embeddings."""

    recorded: bytes
    signals: SignalList
    unit: Unit
    prompt: str | None
    given: dict[str, list[float | None]]

    def differs(self, batch: AnswerBatch, scores: Sequence[float], blank: Sequence[bool]) -> float:
        """By how much the batch's row differs at most, in the signals' own units."""
        rows = self.signals.rows(batch, self.prompt, self.given)
        found = unit_row(self.unit, rows, scores, blank)
        recorded = np.frombuffer(self.recorded, "<f4")
        if found is None or found.shape != recorded.shape:
            return np.inf
        units = np.ones(len(found))
        units[: len(MEASURED)] = [one.deviation for one in MEASURED]
        return float((np.abs(found - recorded) * units).max())


class Rescorer:
    """Scores the batches that it is given again, many in one call of their encoder, within a tolerance on each score.

    `encoders` have by id, ``name@hash``, what gives vectors of batches of texts, as
    `streamer.scoring.encoders.encoder.CachedEncoder.embed`. What needs another is told of as not scored again.
    """

    def __init__(self, encoders: Mapping[str, Embed], *, tolerance: float = TOLERANCE) -> None:
        self._encoders = encoders
        self._tolerance = tolerance
        self._waiting: dict[str, list[_Waiting]] = {one: [] for one in (*encoders, NO_ENCODER)}

    def take(self, line: dict[str, Any], verifier: Verifier) -> None:
        """Score the decision of a line, now or with later ones."""
        facts, content = line["facts"], line.get("content")
        scores = [response[1] for response in facts["responses"]]
        if None in scores or not scores:
            return
        if facts["scorer"] in (Judge.name, *OF_CLAIMS):
            return  # derived from recorded marks or texts, whether an encoder scores again or not
        unembedded = facts["scorer"] == LIKELIHOOD and "signals" in facts
        if facts["embedding_source"] != "encoder" and not unembedded:
            self._left_out(verifier, "scores came with their events, or from embeddings that did")
        elif facts["encoder"] not in self._encoders and not unembedded:
            self._left_out(verifier, self._of_another(facts["encoder"]))
        elif (scorer := _scorer(facts["scorer"], verifier)) is None:
            self._left_out(verifier, f"there is no scorer {facts['scorer']} here")
        elif content is None or None in content["texts"]:
            self._left_out(verifier, "texts are erased, or were never kept")
        else:
            settings = verifier.settings(facts["batch"][0], facts["policy"]) or {}
            judged = form(settings.get("judged", WHOLE.text))
            ids = [one[0] for one in facts["responses"]]
            models = recorded_models(content["metadata"], ids)
            row = None
            if "signals" in facts:
                signals = SignalList.of_text(settings.get("signals") or "")
                given = recorded_numbers(content["metadata"], ids)
                row = _Row(bytes.fromhex(facts["signals"]), signals, facts["unit"], content["prompt"], given)
            one = (place_of(line), scorer, content["texts"], judged, models, scores, row)
            self._add(facts["encoder"], one, verifier)

    def take_later(self, line: dict[str, Any], verifier: Verifier) -> None:
        """Score a batch again that got its scores, or its row of signals, after it was decided; see `Snapshot.scored_later`."""
        if not line["encoded"]:
            self._left_out(verifier, "scores came with their events, or from embeddings that did")
        elif line["encoder"] not in self._encoders:
            self._left_out(verifier, self._of_another(line["encoder"]))
        elif None in line["texts"]:
            self._left_out(verifier, "texts are erased, or were never kept")
        elif (scorer := _scorer(line["scorer"], verifier)) is None:
            self._left_out(verifier, f"there is no scorer {line['scorer']} here")
        else:
            of, row = f"carried_scores {line['scorer']}", None
            if (kept := line.get("row")) is not None:
                if kept["signals"] is None:
                    self._left_out(verifier, "no gate has the list of signals of their rows")
                    return
                row = _Row(**kept | {"signals": SignalList.of_text(kept["signals"])})
                of = "carried_signals"
            place = "{} ({}/{}#{})".format(of, *line["batch"])
            one = (place, scorer, line["texts"], form(line["judged"]), line["models"], line["scores"], row)
            self._add(line["encoder"], one, verifier)

    def finish(self, verifier: Verifier) -> None:
        """Score what still waits."""
        for encoder in self._waiting:
            self._score(encoder, verifier)

    def _add(self, encoder: str, one: _Waiting, verifier: Verifier) -> None:
        self._waiting[encoder].append(one)
        if len(self._waiting[encoder]) == _BATCHES_A_CALL:
            self._score(encoder, verifier)

    def _score(self, encoder: str, verifier: Verifier) -> None:
        waiting, self._waiting[encoder] = self._waiting[encoder], []
        if not waiting:
            return
        parts = [judged.parts(texts) for _, _, texts, judged, *_ in waiting]
        embed = self._encoders.get(encoder)
        vectors_of_each = embed(parts) if embed else [np.empty((len(one), 0), "<f4") for one in parts]
        for (place, scorer, texts, judged, models, stored, row), vectors in zip(
            waiting, vectors_of_each, strict=True
        ):
            verifier.counts["batches scored again"] += 1
            blank = judged.blank(texts)
            batch = answer_batch(texts, vectors, blank, models, encoded=embed is not None, form=judged)
            if embed is None and row is not None:
                came = scorer.of_given(row.given.get(scorer.of_event or "", [None] * len(texts)), blank)
                found = np.full(len(texts), np.inf) if came is None else np.array(came[0])
            else:
                found = scorer.score(batch)
            if stored is None:  # a row came without
                stored = found.tolist()
            worst = float(np.abs(found - np.asarray(stored)).max())
            apart = [("score", worst)]
            if row is not None:
                verifier.counts["rows of signals measured again"] += 1
                apart.append(("signal", row.differs(batch, stored, blank)))
            for what, by in apart:
                if by > self._tolerance:
                    wrong = f"a {what} differs by {by:.6f} from that of the stored texts"
                    verifier.fault("score", place, wrong)

    def _of_another(self, encoder: str) -> str:
        here = " and ".join(self._encoders) or "none"
        return f"scores are of the encoder {encoder}, and {'these are' if len(self._encoders) > 1 else 'this is'} {here}"

    def _left_out(self, verifier: Verifier, why: str) -> None:
        verifier.counts["batches not scored again"] += 1
        verifier.notes[f"not scored again: {why}"] = f"some batches were not scored again: {why}"


def _scorer(name: str, verifier: Verifier) -> Scorer | None:
    """The scorer of a decision; another package's by the specification that a revision of its gate has."""
    if not is_plugin(name):
        return EVERY.get(name)
    try:
        scorer = scorer_named(name, verifier.model(name))
        if isinstance(scorer, Installed):
            loaded(scorer.spec)
    except ValueError:
        return None
    return scorer
