"""The short form of `make swap`: gates whose answers silently change are closed, and those beside them stay open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.scenario.population import read_prompts
from tests.e2e.swap.answers import Answers
from tests.e2e.swap.lives import SHORT, SHORT_LIVES
from tests.e2e.swap.picture import draw
from tests.e2e.swap.report import table
from tests.e2e.swap.service import ALPHA, Service

if TYPE_CHECKING:
    from pathlib import Path

    from streamer.scoring.encoders.sentence_transformer import SentenceTransformerEncoder
    from tests.services.kafka import KafkaBroker

pytestmark = pytest.mark.slow


@pytest.mark.timeout(900)
def test_gates_whose_answers_change_are_closed_and_the_others_stay_open(
    kafka_broker: KafkaBroker,
    postgres_database_url: str,
    topic_prefix: str,
    real_encoder: SentenceTransformerEncoder,
    triviaqa_path: Path,
    tmp_path: Path,
) -> None:
    prompts = read_prompts(triviaqa_path, real_encoder, questions=100, each=3, answers=4)
    outcomes = Service(
        bootstrap=kafka_broker.bootstrap,
        database_url=postgres_database_url,
        prefix=topic_prefix,
        directory=tmp_path,
        answers=[Answers.of(prompt) for prompt in prompts],
        lives=SHORT_LIVES,
        lengths=SHORT,
    ).run()
    print(table(outcomes))
    assert all(one.open_before and len(one.said) == 5 for one in outcomes)
    changed = [one for one in outcomes if one.life.swapped]
    steady = [one for one in outcomes if not one.life.swapped]
    assert [one.closed is not None for one in changed] == [True] * len(changed)
    assert [one.closed for one in steady] == [None] * len(steady)
    for one in changed:
        assert one.exposure_before < one.exposure_after
        assert 0 < one.bad <= one.until
        assert one.curve[-1] >= one.bad
    draw(outcomes, changed, ALPHA, tmp_path / "swap.png")
    assert (tmp_path / "swap.png").stat().st_size > 10_000
