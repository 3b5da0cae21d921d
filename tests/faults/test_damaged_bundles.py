"""Bundles with one damage each, before both verifiers that need nothing of this package: they say the same, and both say where.

`make faults` damages every member of every kind of row several times over; here it is a few of them.
"""

import hmac
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from streamer.audit import signing
from streamer_verify.bundle import Bundle
from streamer_verify.command import verify_bundle as by_one_file
from streamer_verify.values import canonical_json
from streamer_verify.verifier import Verifier
from tests.faults.matrix import LONG
from tests.integration.audit.alone import agree, in_javascript, need_node
from tests.integration.audit.damage import BYTES, Parts, damages
from tests.integration.audit.history import KEYS, export
from tests.integration.audit.tampering_table import make_site

COUNT = 6_000 if LONG else 25
SEED = 32
AD_HOC = re.compile(
    r"cannot be read: \w+Error|value that cannot be read|\w+Error\b|undefined|is not a function"
)
"""What neither verifier is to say: that its own code came to grief."""

pytestmark = [pytest.mark.node, pytest.mark.timeout(120 + 5 * COUNT)]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    need_node()
    folder = tmp_path_factory.mktemp("good")
    export(make_site(folder).settings, folder / "bundle")
    return Parts.read(folder / "bundle")


def verdict(bundle: Path, what: str) -> tuple[str, str]:
    """What both say: `fits`, `changed` or `unreadable`, and the first place and detail, of the one file."""
    alone: Verifier | None = None
    try:
        alone = by_one_file(Bundle(bundle), KEYS, None, verify_signature=signing.verify)
        said, first = (
            ("changed", "{place}: {detail}".format(**alone.faults[0])) if alone.faults else ("fits", "")
        )
        heard = json.dumps(alone.faults)
    except ValueError as error:
        said, heard = "unreadable", str(error)
        first = heard
    second = in_javascript(bundle, None)
    theirs = "unreadable" if "unreadable" in second else "changed" if second["faults"] else "fits"
    assert theirs == said, (what, heard, second)
    assert not AD_HOC.search(heard + json.dumps(second)), (what, heard, second)
    if alone is not None:
        forms = [
            {fault["place"] for fault in faults if fault["check"] == "form"}
            for faults in (alone.faults, second["faults"])
        ]
        assert forms[0] == forms[1], what
        if not forms[0]:  # else what is about the row that nobody reads is told in words of their own
            agree(alone, second)
    return said, first


def test_what_somebody_reseals_without_a_change_fits(good: Parts, tmp_path: Path) -> None:
    good.of({}).write(tmp_path)
    assert verdict(tmp_path, "nothing") == ("fits", "")
    same = good.of({})
    same.reseal()
    same.write(tmp_path)
    assert verdict(tmp_path, "resealed") == ("fits", "")


@pytest.mark.parametrize("name", BYTES)
def test_what_is_no_canonical_json_is_named_by_its_line(good: Parts, tmp_path: Path, name: str) -> None:
    files = ("control.jsonl", "outcomes.jsonl", "checkpoints.jsonl")
    for file in files if LONG else files[len(name) % 3 :][:1]:
        at = 0 if file == "checkpoints.jsonl" else 1
        good.of({(file, at): BYTES[name]}).write(tmp_path)
        said, first = verdict(tmp_path, f"{file}: {name}")
        if file == "checkpoints.jsonl":
            # Notes are signed, and the lines that they stand in may have white space.
            changed = ("changed", "the bundle, line 1")
            assert (said, first.partition(":")[0]) == (("fits", "") if name == "white space" else changed)
        else:
            assert said == ("changed" if name == "an unknown member" else "unreadable"), first


def test_a_line_of_ten_megabytes_is_read(good: Parts, tmp_path: Path) -> None:
    parts = good.of({})
    # The last one, which no run has read.
    line = [one for one in parts.lines["outcomes.jsonl"] if "content_hash" in one.get("content", {})][-1]
    content: dict[str, Any] = line["content"]
    content["prompt"] = 'ü\\"' * (4 << 20)
    sealed = [content[name] for name in ("content_hash", "prompt", "references", "metadata", "texts")]
    mac = hmac.digest(bytes.fromhex(content["salt"]), canonical_json(sealed), "sha256")
    line["facts"]["content_mac"] = mac.hex()
    parts.reseal()
    parts.write(tmp_path)
    assert (tmp_path / "outcomes.jsonl").stat().st_size > 10 << 20
    assert verdict(tmp_path, "a long line") == ("fits", "")


def test_every_member_of_every_row_damaged_in_turn(good: Parts, tmp_path: Path) -> None:
    became = {"fits": 0, "changed": 0, "unreadable": 0}
    rng = random.Random(SEED)
    for _, damage in zip(range(COUNT), damages(good, rng), strict=False):
        damage.of(good).write(tmp_path)
        said, _ = verdict(tmp_path, str(damage))
        became[said] += 1
        if not damage.sealed and damage.file in ("control.jsonl", "outcomes.jsonl"):
            assert said != "fits", damage
    print(f"\n{COUNT} damaged bundles: {became}")
    assert became["changed"] > COUNT / 2
