"""Both verifiers that need nothing of this package, on the same bundle: the one file of Python, and the one in JavaScript.

Whoever verifies here gets what the one file found. The other, which was written from the page alone, must name all of that too.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from streamer_verify.bundle import Bundle
from streamer_verify.command import verify_bundle as by_one_file
from streamer_verify.verifier import Verifier
from tests import programs
from tests.integration.audit.beside import same_bundle
from tests.integration.audit.history import PUBLIC
from tests.machine import LONG
from tests.services.requirements import in_ci, missing

_SERVER: Final = Path(__file__).with_name("second_verifier.mjs")
JAVASCRIPT: Final = Path(__file__).parents[3] / "verifiers" / "javascript" / "verify.mjs"
_LEAST: Final = 20
_REMEDY: Final = f"install Node {_LEAST} or newer (nodejs.org, or apt-get install nodejs)"


def what_is_missing() -> str | None:
    """What keeps the second verifier from running here; None: nothing."""
    if shutil.which("node") is None:
        return "no node"
    said = programs.run("node", "--version").stdout.strip()
    return None if int(said.lstrip("v").split(".")[0]) >= _LEAST else f"node is of version {said}"


def need_node() -> None:
    """Skip the test where Node is missing, or fail it in CI."""
    if (what := what_is_missing()) is not None:
        missing(what, _REMEDY)


@cache
def _server(process: int) -> subprocess.Popen[str]:
    """The running second verifier of this process; it ends when its input does."""
    del process
    return subprocess.Popen(
        ["node", str(_SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )


def in_javascript(
    bundle: Path,
    outside: Sequence[bytes] | None,
    receipts: Sequence[bytes] | None = None,
    *,
    keys: bytes | str = PUBLIC,
    policy_keys: bytes | str | None = None,
    label_keys: str | None = None,
) -> dict[str, Any]:
    """What the second verifier says: `faults`, `notes` and `counts`, or `unreadable`."""
    server = _server(os.getpid())
    assert server.stdin is not None
    assert server.stdout is not None
    request = {
        "bundle": str(bundle),
        "keys": _text(keys),
        "policyKeys": None if policy_keys is None else _text(policy_keys),
        "labelKeys": label_keys,
        "outside": None if outside is None else [line.decode() for line in outside],
        "receipts": None if receipts is None else [line.decode() for line in receipts],
    }
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    said: dict[str, Any] = json.loads(server.stdout.readline())
    assert "crashed" not in said, said["crashed"]
    return said


def verify_bundle(
    bundle: Path,
    keys: Sequence[bytes],
    outside: Sequence[bytes] | None,
    receipts: Sequence[bytes] | None = None,
) -> Verifier:
    """What the one file finds in a bundle; the second verifier has to find that too, and in a bundle in order nothing."""
    alone = by_one_file(Bundle(bundle), keys, outside, receipts)
    if LONG:
        same_bundle(bundle, keys, outside, receipts)
    if what_is_missing() is None or in_ci():
        need_node()
        agree(alone, in_javascript(bundle, outside, receipts))
    return alone


def agree(alone: Verifier, second: dict[str, Any]) -> None:
    """Check that the verifiers name the same.

    The second one names every place that the one file names, but for what it leaves to that (calibrators, age cuts, alarms), and
    nothing where that names nothing; of calibration runs the one file names all that the second does. Of a log that was computed
    anew it names the first checkpoint alone.
    """
    ours = {_leaf(fault["place"]) for fault in alone.faults}
    theirs = {_leaf(fault["place"]) for fault in second["faults"]}
    due = {_leaf(one["place"]) for one in alone.faults if one["check"] not in ("calibration", "alarm")}
    assert due <= theirs, (due - theirs, second["faults"])
    assert bool(ours) >= bool(theirs), second["faults"]
    runs = {_leaf(fault["place"]) for fault in second["faults"] if fault["check"] == "calibration"}
    cut_short = alone.counts["faults"] > len(alone.faults)
    assert cut_short or runs <= ours, (runs - ours, second["faults"])


def _leaf(place: str) -> str:
    """A place without what stands after the leaf or the checkpoint: the verifiers name rows in words of their own."""
    return re.sub(r"(, leaf \d+|checkpoint \d+).*", r"\1", place)


def _text(pem: bytes | str) -> str:
    return pem if isinstance(pem, str) else pem.decode()
