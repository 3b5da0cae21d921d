"""A gate on a table that judges a part of each answer: invoices read by a model that errs in one field, and answers that think aloud."""

import hashlib
import json
from typing import Any

import numpy as np
import pytest

import streamer
from streamer.scoring.judged import form

ALPHA, INVOICES, SAMPLES = 0.1, 200, 6


def embed(texts: list[str]) -> np.ndarray[Any, Any]:
    """Rows that say nothing but whether texts are the same."""
    rows = [
        np.frombuffer(hashlib.sha256(text.encode()).digest()[:16], dtype=np.uint16) / 2**16 - 0.5
        for text in texts
    ]
    return np.array(rows)


def invoices() -> dict[str, list[Any]]:
    """What a model read of each: the hard ones' totals are often wrong, everything else is right, in words and an order of its own."""
    rng = np.random.default_rng(20)
    rows: dict[str, list[Any]] = {"prompt_id": [], "prompt": [], "answer": [], "severity": []}
    for number in range(INVOICES):
        total, hard = round(float(rng.uniform(10, 900)), 2), rng.uniform() < 0.5
        for _ in range(SAMPLES):
            wrong = hard and rng.uniform() < 0.8
            said = total + (int(rng.integers(1, 4)) * 10 if wrong else 0)
            fields = [
                ("number", f"R-{number:04}"),
                ("to", ["Ada Lovelace", "ADA  LOVELACE"][int(rng.integers(2))]),
                ("total", said),
            ]
            rng.shuffle(fields)
            text = json.dumps(dict(fields), indent=[None, 2][int(rng.integers(2))])
            rows["prompt_id"].append(number)
            rows["prompt"].append(f"Read invoice {number}.")
            rows["answer"].append(f"<think>Sum: {rng.integers(99)}</think>\n```json\n{text}\n```")
            rows["severity"].append(float(wrong))
    return rows


@pytest.mark.parametrize("method", ["mean", "full"])
def test_invoices_are_gated_by_their_fields(method: str) -> None:
    rows = invoices()
    served = {}
    for judged in ("whole", "json"):
        gate = streamer.Gate(alpha=ALPHA, method=method, judged=judged, encoder=embed, seed=1)
        at = gate.fit(rows).report().at
        served[judged] = at.ship_rate.mean or 0.0
        assert (at.exposure.mean or 0.0) - 2 * (at.exposure.error or 0.0) <= ALPHA
    assert served["json"] > served["whole"] + (0.1 if method == "mean" else 0)


def test_a_held_invoice_names_its_disputed_field() -> None:
    rows, judged = invoices(), form("json")
    gate = streamer.Gate(alpha=ALPHA, method="mean", judged="json", encoder=embed).fit(rows)
    assert gate.settings_.judged == "json@1"
    found = gate.decide(rows)
    texts = np.array(rows["answer"]).reshape(INVOICES, SAMPLES)
    held = ~found.ship.reshape(INVOICES, SAMPLES).any(axis=1)
    assert held.any()
    disputes = [judged.disputed(judged.parts(list(texts[one])), 0) for one in np.flatnonzero(held)]
    assert {path for one in disputes for path in one} == {"/total"}


def test_an_answer_of_another_form_never_ships() -> None:
    rows = invoices()
    rows["answer"][0::SAMPLES] = ["It is 5 in all."] * INVOICES
    rows["severity"][0::SAMPLES] = [0.0] * INVOICES
    gate = streamer.Gate(alpha=0.5, method="mean", judged="json", encoder=embed).fit(rows)
    assert not gate.decide(rows).ship[0::SAMPLES].any()


def test_reasoning_changes_nothing() -> None:
    rows = invoices()
    bare = {**rows, "answer": [text.rpartition("</think>")[2].strip() for text in rows["answer"]]}
    gates = [streamer.Gate(alpha=ALPHA, encoder=embed).fit(one) for one in (rows, bare)]
    assert gates[0].threshold_.guarantee == gates[1].threshold_.guarantee
    assert gates[0].decide(rows).ship.tolist() == gates[1].decide(bare).ship.tolist()


def test_what_cannot_be_judged_is_refused() -> None:
    with pytest.raises(ValueError, match="judged must be one of whole"):
        streamer.Gate(judged="sentences", encoder=embed).fit(invoices())
