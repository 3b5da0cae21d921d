"""Full receipts and the record's logs before code that others wrote: Go's checksum database and certificate transparency."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamer import wiring
from streamer.audit.standalone.verify_bundle import complete_lines
from streamer.cli import main
from streamer.signing.merkle import consistency_proof
from tests.integration.audit.attacker import breaking_in
from tests.integration.audit.test_audit_commands import here
from tests.services.requirements import missing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.integration.audit.conftest import Record

    Verify = Callable[[Mapping[str, Any]], subprocess.CompletedProcess[str]]

__all__ = ["here"]

_SOURCE = Path(__file__).with_name("foreign")


@pytest.fixture(scope="session")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Verify:
    """The program in the folder `foreign`, built once."""
    if shutil.which("go") is None:
        missing("no go", "install Go 1.19 or newer (go.dev, or apt-get install golang-go)")
    program = tmp_path_factory.mktemp("foreign") / "verify"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=_SOURCE, check=True)

    def verify(given: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(program)], input=json.dumps(given), capture_output=True, text=True, check=False
        )

    return verify


def test_foreign_code_verifies_receipts_and_no_other(
    here: Path, capsys: pytest.CaptureFixture[str], foreign: Verify
) -> None:
    receipts: list[dict[str, Any]] = []
    for number in range(0, 36, 3):
        assert main(["audit", "receipt", f"batch-{number}", "--gate", "best"]) == 0
        receipts += [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(receipts) == 12
    assert len({one["checkpoint"]["sequence"] for one in receipts}) == 2
    done = foreign({"receipts": receipts})
    assert (done.returncode, done.stdout) == (0, "12 receipts, 0 consistency proofs\n"), done.stderr
    one, other = receipts[:2]
    for wrong in (
        one | {"data": one["data"].replace("batch-0", "batch-1")},
        one | {"index": one["index"] + 1},
        one | {"root": other["leaf"]},
        one | {"proof": one["proof"][1:]},
        one | {name: other[name] for name in ("data", "leaf")},
    ):
        assert foreign({"receipts": [wrong]}).returncode == 1


def test_foreign_code_verifies_that_each_checkpoint_goes_on_from_the_one_before(
    record: Record, foreign: Verify
) -> None:
    checkpoints = [json.loads(value) for value in complete_lines(record.file.read_bytes())]
    proofs = []
    with wiring.open_store(record.settings) as store, store.evidence.snapshot() as snapshot:
        for before, after in itertools.pairwise(checkpoints):
            newer = {(one["log_id"], one["topic"], one["partition"]): one for one in after["partitions"]}
            for one in before["partitions"]:
                place = (one["log_id"], one["topic"], one["partition"])
                new = newer[place]
                leaves = snapshot.leaves(place, new["size"])
                proof = [node.hex() for node in consistency_proof(one["size"], leaves)]
                proofs.append(
                    {
                        "from": one["size"],
                        "to": new["size"],
                        "older": one["root"],
                        "newer": new["root"],
                        "proof": proof,
                    }
                )
    assert any(0 < one["from"] < one["to"] for one in proofs)
    done = foreign({"consistency": proofs})
    assert (done.returncode, done.stdout) == (0, f"0 receipts, {len(proofs)} consistency proofs\n"), (
        done.stderr
    )
    grown = next(one for one in proofs if one["from"] < one["to"])
    for wrong in (
        grown | {"older": grown["newer"]},
        grown | {"from": grown["from"] + 1},
        grown | {"proof": []},
    ):
        assert foreign({"consistency": [wrong]}).returncode == 1


def test_no_receipt_is_given_of_what_no_checkpoint_covers_or_what_was_changed(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "receipt", "batch-25", "--gate", "each"]) == 0
    capsys.readouterr()
    assert main(["audit", "receipt", "nothing"]) == 2
    with breaking_in("sqlite:///record.db") as connection:
        connection.exec_driver_sql("UPDATE decisions SET reason = 'closed' WHERE batch = 1")
        batch = connection.exec_driver_sql("SELECT batch_id FROM batches WHERE id = 1").scalar_one()
    capsys.readouterr()
    assert main(["audit", "receipt", batch]) == 3
    assert (
        "the decision is not what was recorded; `streamer audit verify` says more" in capsys.readouterr().err
    )
    with breaking_in("sqlite:///record.db") as connection:
        connection.exec_driver_sql("DELETE FROM checkpoints")
    assert main(["audit", "receipt", "batch-25"]) == 2
    assert "no checkpoint covers the decision yet" in capsys.readouterr().err
