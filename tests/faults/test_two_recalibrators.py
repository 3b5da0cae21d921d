"""Two that want to calibrate one gate: two recalibrators at once, and a person beside one."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from streamer import wiring
from tests.faults.recalibrators import Place, leaders, opened, runs_now
from tests.faults.site import wait_until
from tests.integration.store.labelled_gate import GATE
from tests.services.kafka import KafkaBroker


@pytest.mark.slow
def test_two_at_once_make_one_policy_a_decision_and_one_takes_over(place: Place) -> None:
    opened(place)
    # Whoever leads comes to its third run and no further.
    two = [place.start(STREAMER_FAILPOINTS="before_record=sleep:60@3") for _ in range(2)]
    for one in two:
        one.wait_until_ready()
    wait_until(lambda: len(leaders(*two)) == 1, "one leads")
    (leader,) = leaders(*two)
    (other,) = [one for one in two if one is not leader]
    version, runs = place.version, len(place.runs())
    place.label_more(0.8)
    wait_until(lambda: place.version > version, "there is a new policy")
    shown = f'streamer_calibration_new_groups{{gate="{GATE}"}}'
    wait_until(lambda: leader.metrics().get(shown) == 0, "the leader has read them")
    assert (place.version, len(place.runs())) == (version + 1, runs + 1)
    assert not [name for name in other.metrics() if "gate=" in name], "who stands by shows no gate"
    assert other.unready() == ""
    place.label_more(0.8)
    wait_until(lambda: len(place.runs()) == runs + 2, "the leader goes on")
    place.label_more(0.95)
    wait_until(lambda: runs_now(place), "it is in the middle of a run")
    rounds = "streamer_recalibrator_round_timestamp_seconds"
    looked = leader.metrics()[rounds]
    wait_until(lambda: leader.metrics()[rounds] > looked, "it looks after all gates meanwhile")
    assert leader.unready() == ""
    leader.kill()
    wait_until(lambda: leaders(other) == [other], "the other one takes over")
    wait_until(lambda: len(place.runs()) == runs + 3, "and goes on where the record says")
    wait_until(lambda: other.metrics().get(shown) == 0, "it shows the gate")
    place.agree()
    assert other.terminate() == 0


@pytest.mark.slow
def test_a_run_by_hand_waits_for_the_one_under_way(
    kafka_broker: KafkaBroker, migrated_postgres_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        place = Place(migrated_postgres_url, kafka_broker, topic_prefix, tmp_path, stack)
        opened(place)
        version = place.version
        place.label_more(0.8)
        one = place.start(STREAMER_FAILPOINTS="before_record=sleep:3")
        wait_until(lambda: runs_now(place), "its run has the gate")
        by_hand = wiring.recalibrate(place.settings, GATE, by="ana")
        assert by_hand.before.version == version + 1, "it came after the service's"
        assert by_hand.after.version == version + 2
        one.wait_until_ready()
        place.agree()
