"""Traffic without an end: no batch twice, everything in the order of time, labels after what they are about."""

from itertools import islice

import pytest

from streamer.clouds.traffic import endless_clouds, occurrences


def test_no_batch_comes_twice_and_the_same_seed_gives_the_same() -> None:
    clouds = list(islice(endless_clouds(seed=5, responses=2), 250))
    assert len({cloud.batch_id for cloud in clouds}) == 250
    assert clouds == list(islice(endless_clouds(seed=5, responses=2), 250))
    later = {cloud.batch_id for cloud in islice(endless_clouds(seed=8, responses=2), 250)}
    assert not later & {cloud.batch_id for cloud in clouds}


@pytest.mark.parametrize("delay", [0.0, 0.2, 3.0, 100.0])
def test_labels_follow_their_batch_by_the_delay(delay: float) -> None:
    clouds = list(islice(endless_clouds(seed=1, responses=2), 30))
    came = list(occurrences(iter(clouds), rate=4.0, label_after=delay))
    assert [each.at for each in came] == sorted(each.at for each in came)
    batches = [each for each in came if not each.labels]
    assert [each.cloud for each in batches] == clouds
    assert [each.at for each in batches] == [i / 4 for i in range(30)]
    when = {each.cloud.batch_id: each.at for each in batches}
    labels = [each for each in came if each.labels]
    assert len(labels) == 30
    for each in labels:
        assert each.at == when[each.cloud.batch_id] + delay
        assert came.index(each) > came.index(next(b for b in batches if b.cloud is each.cloud))


def test_it_holds_no_more_than_what_waits_for_labels() -> None:
    endless = occurrences(endless_clouds(seed=1, responses=2), rate=10.0, label_after=1.0)
    assert sum(each.labels for each in islice(endless, 500)) >= 240
