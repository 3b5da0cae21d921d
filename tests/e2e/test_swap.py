"""The short form of `make swap`: gates whose answers silently change are closed, those beside them stay open."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from streamer.research.experiments.stored_encoder import StoredEncoder
from tests.e2e.scenario.population import read_prompts
from tests.e2e.swap.answers import Answers
from tests.e2e.swap.lives import SHORT, SHORT_LIVES, Life
from tests.e2e.swap.outcomes import judged
from tests.e2e.swap.picture import draw
from tests.e2e.swap.report import says_kept, sentences, table
from tests.e2e.swap.service import ALPHA, Service
from tests.recorded import DecisionSummary
from tests.services.kafka import KafkaBroker

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def decided(number: int, state: str, version: int) -> DecisionSummary:
    """A decision on three answers; what is open ships the first one."""
    shipped = state != "closed"
    return DecisionSummary(
        gate="g", batch_id=f"g/{number:05}", attempt=1, decided_at=NOW, unit="best", mode="enforce",
        outcome="ship" if shipped else "abstain", reason="scored", selected="r0" if shipped else None, responses=3,
        shipped=int(shipped), best_score=0.9, policy_version=version, policy_state=state, threshold=0.5, sampled=number % 2 == 0,
        topic="responses", partition=number % 4, offset=number,
    )  # fmt: skip


def test_what_shipped_is_joined_with_how_bad_it_was() -> None:
    # Two closed, four open, then the change: four open, four closed, four open under another policy.
    states = ["closed"] * 2 + ["cut"] * 8 + ["closed"] * 4 + ["cut"] * 4
    versions = [1] * 2 + [2] * 8 + [3] * 4 + [4] * 4
    record = [decided(n, *one) for n, one in enumerate(zip(states, versions, strict=True))]
    bad = {3, 7, 8, 11, 16}  # of which 11 is held
    outcome = judged(
        Life(seed=1, swapped=0.5, old=False, never=0.0), record[::-1],
        {one.batch_id: (float(n in bad), 0.0, 1.0) for n, one in enumerate(record)}, closed=2,
        changed=6, step=2,
        labels=dict(zip(range(0, 13, 2), (10, 11, 13, 17, 18, 18, 19), strict=True)),
        said={0: "the budget was kept; exposure ...", 4: "not known yet whether the budget was kept; ..."},
    )  # fmt: skip
    assert outcome.open_before
    assert (outcome.exposure_before, outcome.exposure_after) == (1 / 4, 2 / 4)
    assert (outcome.closed, outcome.drawn, outcome.labels, outcome.bad) == (4, 2, 3, 2.0)
    assert (outcome.reopened, outcome.exposure_reopened) == (4, 1 / 4)
    assert outcome.curve == (0.0, 1.0, 2.0, 2.0, 2.0, 2.0, 3.0)
    assert [says_kept(one) for one in outcome.said.values()] == [True, False]
    assert "| 50% | shortly | none | 0.25, 0.50 | 1 of 1 | 4 | 2 | 3 | 2 | 0 of 1 | 4 | 0.25 |" in table(
        [outcome]
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_gates_whose_answers_change_are_closed_and_the_others_stay_open(
    kafka_broker: KafkaBroker,
    postgres_database_url: str,
    topic_prefix: str,
    stored_encoder: StoredEncoder,
    triviaqa_path: Path,
    tmp_path: Path,
) -> None:
    prompts = read_prompts(triviaqa_path, stored_encoder.rows, questions=60, each=3, answers=4)
    outcomes = Service(
        bootstrap=kafka_broker.bootstrap, database_url=postgres_database_url, prefix=topic_prefix,
        directory=tmp_path, answers=[Answers.of(prompt) for prompt in prompts], lives=SHORT_LIVES,
        lengths=SHORT,
    ).run()  # fmt: skip
    print(table(outcomes), sentences(outcomes), sep="\n\n")
    assert all(one.open_before and len(one.said) == 5 for one in outcomes)
    changed = [one for one in outcomes if one.life.swapped]
    steady = [one for one in outcomes if not one.life.swapped]
    assert [one.closed is not None for one in changed] == [True] * len(changed)
    assert [one.closed for one in steady] == [None] * len(steady)
    for one in changed:
        assert not [text for n, text in one.said.items() if n > 0 and says_kept(text)]
        since = [text for n, text in one.said.items() if n >= one.until]
        assert since
        assert all("ALARM: " in text for text in since)
        assert one.exposure_before < one.exposure_after
        assert 0 < one.bad <= one.until
        assert one.curve[-1] >= one.bad
    draw(outcomes, changed, ALPHA, tmp_path / "swap.png")
    assert (tmp_path / "swap.png").stat().st_size > 10_000
