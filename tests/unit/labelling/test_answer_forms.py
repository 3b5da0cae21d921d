"""Answers as scorers see them: what few scorers look at is made when one looks."""

from collections.abc import Iterator

import numpy as np

from streamer.labels.answer_forms import answer_batch
from streamer.labels.lexical import normal_form
from streamer.scoring.registry import EVERY


class Watched(list[str]):
    """Texts that know whether anybody has read them."""

    read = False

    def __iter__(self) -> Iterator[str]:
        self.read = True
        return super().__iter__()


def test_normal_forms_are_made_for_the_scorer_that_looks_at_them() -> None:
    texts = Watched(["Paris.", "It is Paris", " ", "PARIS!"])
    batch = answer_batch(texts, np.eye(4) + 1, [False, False, True, False])
    EVERY["gram"].score(batch)
    assert not texts.read
    assert EVERY["choice"].score(batch)[0] > 0
    assert texts.read
    assert [batch.forms[0], *batch.forms[2:]] == [normal_form("Paris."), "", normal_form("PARIS!")]
    assert len(batch.forms) == 4
