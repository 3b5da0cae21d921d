"""Failpoints: nothing unless they are armed, only what exists, each once at its passing."""

import re
import signal
import sys
import time
from pathlib import Path

import pytest

from streamer import failpoints
from streamer.errors import Unavailable, UsageError
from streamer.failpoints import POINTS, FailpointError, Failpoints, disarmed, from_environment, parse
from tests import programs

ROOT = Path(failpoints.__file__).parent


@pytest.mark.parametrize("environment", [{}, {"STREAMER_FAILPOINTS": ""}, {"STREAMER_FAILPOINTS": "  "}])
def test_nothing_is_armed_by_itself(environment: dict[str, str]):
    assert from_environment(environment) is disarmed
    for point in POINTS:
        disarmed(point)


def test_a_point_acts_at_its_passing_and_only_there():
    point = Failpoints(parse("after_lease=raise@3, after_score=away@*"))
    for _ in range(2):
        point("after_lease")
    with pytest.raises(FailpointError, match="after_lease"):
        point("after_lease")
    point("after_lease")
    point("after_commit")
    for _ in range(2):
        with pytest.raises(Unavailable, match="after_score"):
            point("after_score")


def test_sleep_waits():
    point = Failpoints(parse("before_commit=sleep:0.05"))
    began = time.monotonic()
    point("before_commit")
    assert time.monotonic() - began >= 0.05


def test_kill_leaves_no_time_for_anything():
    code = (
        "from streamer.failpoints import from_environment\n"
        "try:\n    from_environment()('after_lease')\nfinally:\n    print('still here')\n"
    )
    done = programs.run(
        *(sys.executable, "-c", code),
        status=-signal.SIGKILL,
        env={"PYTHONPATH": str(ROOT.parent), "STREAMER_FAILPOINTS": "after_lease=kill"},
    )
    assert "failpoint.armed" in done.stdout
    assert "still here" not in done.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("after_leese=kill", "there is no failpoint 'after_leese'; there are after_lease"),
        ("after_lease=explode", "there is no action 'explode'; there are kill"),
        ("after_lease", "is not point=action"),
        ("after_lease=kill@", "is not point=action"),
        ("after_lease=kill@0", "counted from 1"),
        ("after_lease=sleep", "sleep needs its seconds"),
        ("after_lease=kill:3", "no other action has any"),
        ("after_lease=kill,after_lease=raise", "given twice"),
    ],
)
def test_what_does_not_exist_is_refused(text: str, said: str):
    with pytest.raises(UsageError, match=re.escape(said)):
        from_environment({"STREAMER_FAILPOINTS": text})


def test_every_point_is_passed_somewhere():
    source = "".join(path.read_text() for path in ROOT.rglob("*.py") if path.name != "failpoints.py")
    passed = set(re.findall(r"failpoint\(\"(\w+)\"\)", source))
    assert passed == set(POINTS)
