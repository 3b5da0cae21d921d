"""Finding decisions, on both databases."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from streamer.store.log.decision_search import Wanted
from tests.integration.store.conftest import START, World


def found(world: World, *, limit: int = 100, **wanted: Any) -> list[str]:
    return [one.batch_id for one in world.store.decision_search.find(Wanted(**wanted), limit=limit).rows]


def ids(numbers: Sequence[int]) -> list[str]:
    return [f"b0-{n}" for n in numbers]


def fill(world: World) -> None:
    """Twelve decisions, one a minute, with best scores 0.75, 0.05, 0.15, ...; every third ships."""
    decisions = []
    for n in range(12):
        best = 0.75 if n == 0 else n / 10 - 0.05 if n < 11 else None
        ships = n % 3 == 0 and best is not None
        decisions.append(
            world.decision(
                n, at=START + timedelta(minutes=n),
                scores=None if best is None else (best / 2, best),
                actions=("abstain", "ship" if ships else "abstain"),
                reason="scored" if ships else "no_threshold", sampled=n % 2 == 0, content=f"c{n}",
                segment="fr" if n in (3, 4) else None,
                prompt="x" * 10_000 if n == 5 else f"prompt {n}",
            )
        )  # fmt: skip
    world.keep(*decisions)


def test_what_is_looked_for_is_found_the_newest_first(world: World) -> None:
    fill(world)
    world.gate("other")
    newest = list(range(11, -1, -1))
    assert found(world) == ids(newest)
    assert found(world, gate="support-bot") == ids(newest)
    assert found(world, gate="other") == []
    assert found(world, batch="b0-7") == ["b0-7"]
    assert found(world, batch="b0-1*") == ids([11, 10, 1])
    assert found(world, batch="b0_1*") == [], "nothing but the star stands for something"
    assert found(world, batch="%") == []
    minute = timedelta(minutes=1)
    assert found(world, since=START + 2 * minute, until=START + 4 * minute) == ids([3, 2])
    assert found(world, least_score=0.75) == ids([10, 9, 8, 0]), "both bounds are inside"
    assert found(world, least_score=0.15, most_score=0.25) == ids([3, 2])
    assert found(world, segment="fr") == ids([4, 3])
    assert found(world, outcome="shipped") == ids([9, 6, 3, 0])
    assert found(world, outcome="held", drawn=True) == ids([10, 8, 4, 2])
    assert found(world, drawn=False, outcome="shipped") == ids([9, 3])
    (one,) = world.store.decision_search.find(Wanted(batch="b0-5")).rows
    assert (one.responses, one.best_score, one.attempt, one.prompt) == (2, 0.45, 1, "x" * 300)
    (one,) = world.store.decision_search.find(Wanted(batch="b0-11")).rows
    assert one.best_score is None


def test_pages_follow_one_another_and_none_reads_without_end(world: World) -> None:
    fill(world)
    search, before, seen = world.store.decision_search, None, []
    while True:
        page = search.find(Wanted(gate="support-bot"), before=before, limit=5)
        seen += [one.batch_id for one in page.rows]
        assert not page.cut_short
        if page.more is None:
            break
        before = page.more
    assert seen == ids(range(11, -1, -1))

    rare, before, seen, questions = Wanted(segment="fr"), None, [], 0
    while True:
        page = search.find(rare, before=before, limit=5, most=4)
        seen += [one.batch_id for one in page.rows]
        questions += 1
        if page.more is None:
            break
        assert page.cut_short
        before = page.more
    assert seen == ids([4, 3])
    assert questions == 4


def test_texts_of_answers_are_found_by_batch_and_response(world: World) -> None:
    fill(world)
    search = world.store.decision_search
    assert search.texts("support-bot", []) == {}
    assert search.texts("support-bot", [("b0-1", "b"), ("b0-2", "a"), ("b0-2", "z"), ("gone", "a")]) == {
        ("b0-1", "b"): ("prompt 1", "c1 answer 1 \u2014 ünïcode"),
        ("b0-2", "a"): ("prompt 2", "c2 answer 0 \u2014 ünïcode"),
    }
