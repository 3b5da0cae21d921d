"""Answers as scorers see them: what few scorers look at is made when one looks."""

import numpy as np
import pytest

from streamer.labels import answer_forms
from streamer.labels.lexical import normal_form
from streamer.scoring.registry import EVERY


def test_normal_forms_are_made_for_the_scorer_that_looks_at_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(answer_forms, "normal_form", lambda text: made.append(text) or normal_form(text))
    texts = ["Paris.", "It is Paris", " ", "PARIS!"]
    batch = answer_forms.answer_batch(texts, np.eye(4) + 1, [False, False, True, False])
    EVERY["gram"].score(batch)
    assert made == []
    assert [batch.forms[0], *batch.forms[2:]] == [normal_form("Paris."), "", normal_form("PARIS!")]
    assert len(made) == 3
    assert len(batch.forms) == 4
