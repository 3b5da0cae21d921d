"""Scores of Gram energy, from the texts of a bundle and embeddings from elsewhere."""

from __future__ import annotations

import base64
import itertools
import math
import sys
from array import array
from collections.abc import Iterable, Sequence
from operator import mul
from typing import Any

from streamer_verify.actions import has_scores, is_blank, judged_text
from streamer_verify.bundle import Bundle
from streamer_verify.segments import NO_SEGMENTS, Segments
from streamer_verify.values import place_of, sha256, strict_json
from streamer_verify.verifier import Verifier

TOLERANCE = 1e-5
"""How far a score may lie from the recorded one: another processor's embeddings differ in the last digits."""


def _step(value: float) -> float:
    return round(value * 1e6) / 1e6


def gram_energy(blank: Sequence[bool], rows: Sequence[Sequence[float]]) -> list[float]:
    """Return the root of the mean squared cosine of each of n >= 2 answers with the others; a blank one has none.

    `rows` : n embeddings of any positive length; those of blank answers are not looked at.
    """
    every = range(len(rows))
    written = [i for i in every if not blank[i]]
    unit: dict[int, list[float]] = {}
    for i in written:
        length = math.sqrt(math.fsum(x * x for x in rows[i]))
        if not 0 < length < math.inf:
            raise ValueError("an embedding has no direction")
        unit[i] = [x / length for x in rows[i]]
    squares = [[0.0] * len(rows) for _ in every]
    for i, j in itertools.combinations(written, 2):
        if len(unit[i]) != len(unit[j]):
            raise ValueError("embeddings of one batch differ in their dimension")
        squares[i][j] = squares[j][i] = sum(map(mul, unit[i], unit[j])) ** 2
    return [_step(min(1.0, math.sqrt(math.fsum(row) / (len(rows) - 1)))) for row in squares]


def read_embeddings(lines: Iterable[bytes]) -> dict[tuple[str, str], array[float]]:
    """Read embeddings by their encoder and the SHA-256 of their text. Raises `ValueError` or `KeyError` for what is none."""
    found: dict[tuple[str, str], array[float]] = {}
    for line in lines:
        value = strict_json(line)
        row = value["embedding"]
        if isinstance(row, str):
            numbers = array("f", base64.b64decode(row, validate=True))
            if sys.byteorder == "big":
                numbers.byteswap()
        else:
            numbers = array("d", row)
        found[value["encoder"], value["text"]] = numbers
    return found


class _ScoresAgain:
    """Derives the scores of Gram energy again, from a bundle's texts and embeddings from elsewhere."""

    def __init__(self, embeddings: dict[tuple[str, str], array[float]], verifier: Verifier) -> None:
        self._embeddings = embeddings
        self._verifier = verifier
        self._later: dict[tuple[Any, ...], dict[str, dict[str, float]]] = {}

    def control(self, lines: Iterable[dict[str, Any]]) -> None:
        """Read scores that adopted candidates gave to batches which were decided before."""
        for line in lines:
            row = line["row"]
            if line["kind"] == "carried_scores" and row is not None:
                of = self._later.setdefault(tuple(row["of"]), {})
                of.setdefault(row["scorer"], {})[row["response_id"]] = row["score"]

    def outcomes(self, lines: Iterable[dict[str, Any]]) -> None:
        """Score every decision of which there are texts."""
        for line in lines:
            facts = line.get("facts")
            if line["kind"] == "decision" and facts is not None:
                self._decision(line, facts, place_of(line))

    def _decision(self, line: dict[str, Any], facts: dict[str, Any], place: str) -> None:
        recorded = [response[1] for response in facts["responses"]]
        ids = [response[0] for response in facts["responses"]]
        later = self._later.get(tuple(facts["batch"]), {})
        if not has_scores(facts) or (facts["scorer"] == "judge" and not later):
            return
        if facts["unit"] == "claim":  # derived with the decision
            return
        if facts["embedding_source"] != "encoder":
            self._left_out("they came with their events, or from embeddings that did")
            return
        content = line.get("content")
        if content is None or None in content["texts"]:
            self._left_out("their texts are erased, or not in the bundle")
            return
        settings = self._verifier.settings(facts["batch"][0], facts["policy"]) or {}
        texts = [judged_text(settings, text) for text in content["texts"]]
        blank = [is_blank(text) for text in texts]
        rows: list[Sequence[float]] = []
        for text, empty in zip(texts, blank, strict=True):
            row = () if empty else self._embeddings.get((facts["encoder"], sha256(text.encode())))
            if row is None:
                self._left_out("the file has no embedding of one of their texts by the gate's encoder")
                return
            rows.append(row)
        derived = gram_energy(blank, rows)
        self._compare(facts["scorer"], derived, recorded, ids, place)
        for scorer, scores in sorted(later.items()):
            if scores.keys() == set(ids):
                kept = [scores[one] for one in ids]
                self._compare(scorer, derived, kept, ids, f"carried_scores {scorer}, {place}")
            else:
                wrong = f"{scorer} has scored some of its responses later, and not all"
                self._verifier.fault("score", place, wrong)

    def _compare(
        self, scorer: str, derived: Sequence[float], recorded: Sequence[float], ids: Sequence[str], place: str
    ) -> None:
        if scorer != "gram":
            self._left_out(f"this file does not compute the scorer {scorer}")
            return
        self._verifier.counts["batches scored again"] += 1
        for name, score, again in zip(ids, recorded, derived, strict=True):
            if not abs(score - again) <= TOLERANCE:
                wrong = f"the score of response {name!r} is {score}, and from its text follows {again:.6f}"
                self._verifier.fault("score", place, wrong)
                return

    def _left_out(self, why: str) -> None:
        self._verifier.counts["batches not scored again"] += 1
        self._verifier.notes[f"scores: {why}"] = f"scores of some batches: {why}"


def check_scores(
    bundle: Bundle, verifier: Verifier, embeddings: Iterable[bytes], segments: Segments = NO_SEGMENTS
) -> None:
    """Derive the scores of a bundle again that follow from its texts and these embeddings; differences become faults.

    Embeddings are one JSON a line, with `encoder` (name@hash), `text` (SHA-256) and `embedding`: numbers, or the base64 of them
    as little-endian float32. The record has no embeddings: whoever gives them vouches for them.
    """
    again = _ScoresAgain(read_embeddings(embeddings), verifier)
    again.control(bundle.values("control.jsonl"))
    again.outcomes(segments.filled(bundle.values("outcomes.jsonl"), verifier.rows("give_outs")))
