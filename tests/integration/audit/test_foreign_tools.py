"""Full receipts and the record's logs before code that others wrote: Go's checksum database and certificate transparency."""

import base64
import itertools
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from streamer import wiring
from streamer.audit import signing
from streamer.cli import main
from streamer.settings.settings import load_settings
from streamer.signing.merkle import among, consistency_proof
from tests import programs
from tests.integration.audit.attacker import breaking_in, remove_checkpoints
from tests.integration.audit.conftest import Record
from tests.integration.audit.history import PRIVATE
from tests.integration.audit.test_audit_commands import here
from tests.services.requirements import missing
from tests.told import Told

Verify = Callable[[Mapping[str, Any]], subprocess.CompletedProcess[str]]


__all__ = ["here"]

_SOURCE = Path(__file__).with_name("foreign")
_DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="session")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Verify:
    """The program in the folder `foreign`, built once."""
    if shutil.which("go") is None:
        missing("no go", "install Go 1.19 or newer (go.dev, or apt-get install golang-go)")
    program = tmp_path_factory.mktemp("foreign") / "verify"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=_SOURCE, check=True)

    def verify(given: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
        return programs.run(program, status=None, input=json.dumps(given))

    return verify


def test_foreign_code_verifies_receipts_and_no_other(
    here: Path, capsys: pytest.CaptureFixture[str], foreign: Verify
):
    """From a decision's leaf to its log's root, from there to a head, and to the signed note: alone and offline."""
    receipts: list[dict[str, Any]] = []
    for number in range(0, 36, 3):
        assert main(["audit", "receipt", f"batch-{number}", "--gate", "best"]) == 0
        receipts += [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(receipts) == 12
    assert {one["head"]["index"] for one in receipts} == {1, 2}
    origin = receipts[0]["checkpoint"].partition("\n")[0]
    keys = [str(signing.Signer(PRIVATE).verifier_key(origin))]
    done = foreign({"keys": keys, "receipts": receipts})
    assert (done.returncode, done.stdout) == (0, "12 receipts, 0 consistency proofs\n"), done.stderr
    one, other = receipts[0], receipts[-1]
    note, head = one["checkpoint"], one["head"]
    for wrong in (
        one | {"data": one["data"].replace("batch-0", "batch-1")},
        one | {"index": one["index"] + 1},
        one | {"root": other["leaf"]},
        one | {"proof": one["proof"][1:]},
        one | {name: other[name] for name in ("data", "leaf")},
        one | {"head": head | {"data": head["data"].replace('"size":', '"size":1')}},
        one | {"head": head | {"index": 0}},
        one | {"head": other["head"]},
        one | {"checkpoint": note.replace("\n3\n", "\n4\n")},
    ):
        assert foreign({"keys": keys, "receipts": [wrong]}).returncode == 1
    stranger = str(signing.Signer(signing.generate_keys()[0]).verifier_key(origin))
    assert foreign({"keys": [stranger], "receipts": [one]}).returncode == 1


def test_foreign_code_verifies_that_each_head_goes_on_from_the_one_before(record: Record, foreign: Verify):
    proofs = []
    with wiring.open_store(record.settings) as store, store.evidence.snapshot() as snapshot:
        heads = [json.loads(data) for data in snapshot.heads()]
        for before, after in itertools.pairwise(heads):
            newer = {(one["log_id"], one["topic"], one["partition"]): one for one in after["partitions"]}
            for one in before["partitions"]:
                place = (one["log_id"], one["topic"], one["partition"])
                new = newer[place]
                hashes = among(snapshot.leaves(place, new["size"]))
                proof = consistency_proof(one["size"], new["size"], hashes)
                proofs.append(_consistency(one["size"], new["size"], one["root"], new["root"], proof))
        # The log of heads itself, by the hashes that are stored with it.
        for size in range(1, len(heads) + 1):
            proof = consistency_proof(size, len(heads), store.heads.root)
            roots = (store.heads.root(0, end).hex() for end in (size, len(heads)))
            proofs.append(_consistency(size, len(heads), *roots, proof))
    assert any(0 < one["from"] < one["to"] for one in proofs)
    done = foreign({"consistency": proofs})
    wanted = (0, f"0 receipts, {len(proofs)} consistency proofs\n")
    assert (done.returncode, done.stdout) == wanted, done.stderr
    grown = next(one for one in proofs if one["from"] < one["to"])
    for wrong in (
        grown | {"older": grown["newer"]},
        grown | {"from": grown["from"] + 1},
        grown | {"proof": []},
    ):
        assert foreign({"consistency": [wrong]}).returncode == 1


def test_foreign_code_reads_the_tiles_of_the_log_of_heads(here: Path, told: Told, foreign: Verify):
    """A full tile, one above it and partial ones, each leaf proved from them and the checkpoint alone."""
    with wiring.open_store(load_settings()) as store:
        for number in range(300):
            before = store.heads.newest()
            data = b'{"made up":%d}' % number
            signer, now = signing.Signer(PRIVATE), wiring.now()
            make = partial(_signed, signer)
            assert store.heads.append(data, before=before, make=make, now=now) is not None
        size, origin = store.heads.newest().size, store.heads.origin()
    assert main(["audit", "export", "--out", "bundle", "--tiles", "tiles"]) == 0
    there = told("audit", "export", "--out", "other", "--tiles", "tiles", status=2).err
    assert "tiles exists; name a new folder" in there
    folder = here / "tiles"
    found = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    rest = f".p/{size - 256}"
    assert found == sorted(
        [
            "checkpoint", "tile/0/000", f"tile/0/001{rest}", "tile/1/000.p/1",
            "tile/entries/000", f"tile/entries/001{rest}",
        ]
    )  # fmt: skip
    given = {"keys": [str(signing.Signer(PRIVATE).verifier_key(origin))], "tiles": str(folder)}
    done = foreign(given)
    assert (done.returncode, done.stdout) == (
        0, f"{size} leaves in tiles, 0 receipts, 0 consistency proofs\n",
    ), done.stderr  # fmt: skip
    bundle = folder / "tile" / "entries" / "000"
    bundle.write_bytes(bundle.read_bytes().replace(b'"made up":7}', b'"made up":8}'))
    assert "tiles: leaf" in foreign(given).stderr


def _signed(signer: signing.Signer, origin: str, size: int, root: bytes) -> tuple[bytes, None]:
    return signer.checkpoint(origin, size, root), None


def _consistency(size: int, whole: int, older: str, newer: str, proof: list[bytes]) -> dict[str, Any]:
    return {
        "from": size, "to": whole, "older": older, "newer": newer,
        "proof": [node.hex() for node in proof],
    }  # fmt: skip


def test_no_receipt_is_given_of_what_no_checkpoint_covers_or_what_was_changed(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["audit", "receipt", "batch-25", "--gate", "each"]) == 0
    capsys.readouterr()
    assert main(["audit", "receipt", "nothing"]) == 2
    with breaking_in("sqlite:///record.db") as connection:
        connection.exec_driver_sql("UPDATE decisions SET reason = 'closed' WHERE batch = 1")
        batch = connection.exec_driver_sql("SELECT batch_id FROM batches WHERE id = 1").scalar_one()
    capsys.readouterr()
    assert main(["audit", "receipt", batch]) == 3
    found = capsys.readouterr().err
    assert "the decision is not what was recorded; `streamer audit verify` says more" in found
    with breaking_in("sqlite:///record.db") as connection:
        remove_checkpoints(connection)
    assert main(["audit", "receipt", "batch-25"]) == 2
    assert "no checkpoint covers the decision yet" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["policy", "label"])
def test_foreign_code_verifies_what_policies_and_labels_are_signed_with(kind: str, foreign: Verify):
    """The vector of `docs/audit-format.md` in a DSSE envelope, by its type, its bytes and its signature alone."""
    vector = json.loads((_DOCS / "audit-format.vectors.json").read_text("utf-8"))[f"{kind}-signature"]
    statement = vector["statement"]
    payload, payload_type = (
        statement[statement.index("{") :].encode(),
        f"application/vnd.streamer.{kind}.v1+json",
    )
    private = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(vector["private_key"]))
    key = base64.b64encode(private.public_key().public_bytes_raw()).decode()

    def done(**changed: object) -> subprocess.CompletedProcess[str]:
        envelope = {
            "payloadType": payload_type,
            "payload": base64.b64encode(payload).decode(),
            "signatures": [{"sig": vector["signature"]}],
        }
        return foreign({"envelopes": [{"key": key, "envelope": envelope | changed}]})

    assert done().stdout.startswith(payload_type + ", "), done().stderr
    assert done(payloadType="application/json").returncode == 1
    assert done(payload=base64.b64encode(payload + b" ").decode()).returncode == 1
