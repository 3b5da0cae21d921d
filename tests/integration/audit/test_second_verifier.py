"""The verifier in JavaScript, as a stranger runs it, and what it derives beyond what the one file does."""

import json
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamer import wiring
from streamer.audit import signing
from streamer.settings.settings import Settings, load_settings
from streamer_verify.bundle import FILES, Bundle
from streamer_verify.command import main
from streamer_verify.signatures import read_label_keys
from tests import programs
from tests.integration.audit.alone import JAVASCRIPT, agree, by_one_file, in_javascript, need_node
from tests.integration.audit.attacker import breaking_in, rebuild_control, rebuild_outcomes
from tests.integration.audit.history import (
    KEYS,
    PUBLIC,
    Scribe,
    event,
    export,
    label,
    settings_for,
    verify,
    written_history,
)
from tests.migrated import migrated

pytestmark = pytest.mark.node


@pytest.fixture(autouse=True)
def node() -> None:
    need_node()


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a record and its checkpoints; leave it as it is."""
    directory = tmp_path_factory.mktemp("history")
    written_history(directory)
    return directory


@pytest.fixture
def settings(history: Path, tmp_path: Path) -> Settings:
    """A copy of the record, to be changed."""
    for name in ("record.db", "checkpoints.jsonl"):
        (tmp_path / name).write_bytes((history / name).read_bytes())
    return settings_for(f"sqlite:///{tmp_path / 'record.db'}", tmp_path)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return programs.run("node", JAVASCRIPT, *arguments, status=None)


def test_a_stranger_runs_it(settings: Settings, tmp_path: Path):
    export(settings, tmp_path / "bundle.zip")
    (tmp_path / "key.pub").write_bytes(PUBLIC if isinstance(PUBLIC, bytes) else PUBLIC.encode())
    given = ("--public-key", tmp_path / "key.pub", "--checkpoints", tmp_path / "checkpoints.jsonl")
    done = run(tmp_path / "bundle.zip", *given)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("Everything fits.\n")
    said = json.loads(run("--json", tmp_path / "bundle.zip", *given).stdout)
    assert said["faults"] == []
    assert any("thresholds of runs were not derived again" in note for note in said["notes"])
    assert run("--help").returncode == 0
    for wrong in (
        (),
        ("nowhere.zip",),
        (tmp_path / "key.pub",),
        ("--what", "a"),
        (tmp_path / "bundle.zip", "b"),
    ):
        done = run(*wrong)
        assert done.returncode == 2, wrong
        assert done.stderr
        assert done.stdout == ""
    with breaking_in(settings.database.url) as connection:
        connection.exec_driver_sql("UPDATE gates SET seed = 7 WHERE name = 'each'")
    export(settings, tmp_path / "changed")
    done = run(tmp_path / "changed", *given)
    assert done.returncode == 3
    assert "FAULT  log: control, leaf 5" in done.stdout


def test_both_read_the_same_files_alike(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Files as they are found: cut off in the middle of a line, empty, with names that steer a terminal."""
    (tmp_path / "key.pub").write_text(PUBLIC)
    (tmp_path / "empty").write_bytes(b"")
    bundle = tmp_path / "bundle"
    export(settings, bundle)
    (index, leaf, root) = next(
        (one["index"], one["leaf"], one["root"])
        for one in Bundle(bundle).values("control.jsonl")
        if one["index"] == 2
    )
    receipt = json.dumps(["control", "", 0, index, leaf, root])
    receipts = tmp_path / "receipts.jsonl"

    def both(*given: object) -> list[tuple[int, str]]:
        arguments = [str(bundle), "--public-key", str(tmp_path / "key.pub"), *map(str, given)]
        status = main(arguments)
        alone = capsys.readouterr()
        done = run(*arguments)
        return [(status, alone.out + alone.err), (done.returncode, done.stdout + done.stderr)]

    for written, status in (
        (f"{receipt}\n{receipt[:30]}", 0),
        (f"{receipt}\n\n{receipt}", 0),
        (f"{receipt[:30]}\n{receipt}\n", 3),
    ):
        receipts.write_text(written)
        assert [found for found, _ in both("--receipts", receipts)] == [status] * 2, written
    for status, said in both("--receipts", tmp_path / "nowhere"):
        assert status == 2
        assert "no such file" in said.lower()
        assert "Errno" not in said
    for status, said in both("--checkpoints", tmp_path / "empty"):
        assert status == 0
        assert "the file has no checkpoint" in said
    for status, said in both("--receipts", tmp_path / "empty"):
        assert status == 0
        assert "the file has no receipt" in said
    lines = (bundle / "control.jsonl").read_bytes().splitlines(keepends=True)
    whole = (bundle / "control.jsonl").read_bytes()
    for changed in (b"\xef\xbb\xbf" + whole, whole.decode().encode("utf-16-be")):
        (bundle / "control.jsonl").write_bytes(changed)
        assert [status for status, _ in both()] == [2, 2]
    # One line twice is one place, not every place behind it.
    (bundle / "control.jsonl").write_bytes(b"".join([*lines[:4], *lines[3:]]))
    for status, said in both():
        assert status == 3
        assert said.count("it is missing") == 1, said
    name = json.loads(lines[0])["row"]["name"].encode()
    steering = lines[0].replace(b'"' + name + b'"', rb'"\u001b[2J' + '\u202e"'.encode(), 1)
    (bundle / "control.jsonl").write_bytes(b"".join([steering, *lines[1:]]))
    for status, said in both():
        assert status == 3
        assert "[2J" in said
        assert not {"\x1b", "\u202e"} & set(said)


def test_what_no_record_unpacks_to_is_unreadable(settings: Settings, tmp_path: Path):
    export(settings, tmp_path / "bundle.zip")
    with (
        zipfile.ZipFile(tmp_path / "bundle.zip", "a", zipfile.ZIP_DEFLATED) as opened,
        opened.open("more", "w") as file,
    ):
        for _ in range(384):
            file.write(bytes(2**20))
    done = run(tmp_path / "bundle.zip")
    assert (done.returncode, done.stdout) == (2, "")
    assert "it is small and unpacks to more than any record has" in done.stderr


def test_a_bundle_without_one_of_its_files_is_unreadable(settings: Settings, tmp_path: Path):
    export(settings, tmp_path / "bundle")
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text("utf-8"))
    for name in FILES:
        whole = (tmp_path / "bundle" / name).read_bytes()
        (tmp_path / "bundle" / name).unlink()
        assert "unreadable" in in_javascript(tmp_path / "bundle", None)
        others = {one: said for one, said in manifest["files"].items() if one != name}
        (tmp_path / "bundle" / "manifest.json").write_text(json.dumps(manifest | {"files": others}), "utf-8")
        assert "unreadable" in in_javascript(tmp_path / "bundle", None)
        (tmp_path / "bundle" / name).write_bytes(whole)
        (tmp_path / "bundle" / "manifest.json").write_text(json.dumps(manifest), "utf-8")


def test_a_damaged_zip_is_unreadable(settings: Settings, tmp_path: Path):
    export(settings, tmp_path / "bundle.zip")
    whole = (tmp_path / "bundle.zip").read_bytes()
    for damaged in (whole[:-30], whole[1000:], b"", b"PK\x05\x06", whole[:5000] + b"\0\0\0\0" + whole[5004:]):
        (tmp_path / "bundle.zip").write_bytes(damaged)
        said = in_javascript(tmp_path / "bundle.zip", None)
        assert "unreadable" in said, damaged[:20]


RUNS = {
    # The run, its candidate and its policy are changed together, and every log is computed anew.
    "a lower threshold": (
        "UPDATE calibration_runs SET threshold = 0.5 WHERE id = 3;"
        "UPDATE calibration_candidates SET threshold = 0.5 WHERE run = 3 AND decides;"
        "UPDATE policies SET threshold = 0.5 WHERE calibration_run = 3 AND state = 'cut'",
        "by mean it says a cut at 0.5, and its inputs give a cut at 0.599579",
    ),
    "a diagnostic": (
        "UPDATE calibration_candidates SET threshold = 0.25 WHERE run = 3 AND method = 'bb'",
        "by bb it says a cut at 0.25",
    ),
    "a severity that no label gives": (
        "UPDATE calibration_inputs SET severity = 1.0 WHERE run = 3 AND severity = 0.0",
        "labels do not give severity 1",
    ),
    "a score": (
        "UPDATE calibration_inputs SET score = 0.1 WHERE run = 3",
        "its score is not the recorded one",
    ),
    "a probability": (
        "UPDATE calibration_inputs SET probability = 0.75 WHERE run = 3",
        "its own audit drew it with the probability",
    ),
    "an answer that was not drawn": (
        "UPDATE responses SET drawn = (1 = 0) WHERE (batch, response_id) IN"
        " (SELECT batch, response_id FROM calibration_inputs WHERE run = 3)",
        "it has read what its gate's own audit did not draw",
    ),
    "a batch that is left out": (
        "DELETE FROM calibration_inputs WHERE run = 3"
        " AND batch = (SELECT max(batch) FROM calibration_inputs WHERE run = 3)",
        "it did not read the drawn batch",
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_derived_again(settings: Settings, tmp_path: Path, name: str):
    statements, detail = RUNS[name]
    with breaking_in(settings.database.url) as connection:
        for one in statements.split(";"):
            connection.exec_driver_sql(one)
        rebuild_control(connection)
        rebuild_outcomes(connection)
    export(settings, tmp_path / "bundle")
    alone = by_one_file(Bundle(tmp_path / "bundle"), KEYS, [])
    second = in_javascript(tmp_path / "bundle", [])
    # It runs no calibrator.
    for found in (alone.faults, *([] if detail.startswith("by ") else [second["faults"]])):
        assert any(detail in one["detail"] for one in found), found
    agree(alone, second)


def test_labels_that_runs_have_read_were_signed(tmp_path: Path):
    """A label that somebody without a labeller's key writes into the database gives no run a severity."""
    private, public = signing.generate_keys()
    plain = settings_for(f"sqlite:///{tmp_path / 'record.db'}", tmp_path)
    settings = load_settings(
        database={"url": plain.database.url},
        audit=plain.audit.model_dump(),
        labels={
            "private_keys": wiring.key_block("ana", private),
            "public_keys": wiring.key_block("ana", public) + "\n" + wiring.key_block("eve", PUBLIC),
        },
    )
    wiring.migrate(settings)
    with wiring.open_store(settings) as store:
        scribe = Scribe(store, settings)
        scribe.gate("best", unit="response", audit_draws=4, alpha=0.4, signed_labels=True)
        scribe.deliver(event("best", n) for n in range(12))
        given = [label("best", n) for n in range(12)]
        store.labels.add(given, sign=True)
        store.labels.add([replace(label("best", n), severity=0.5) for n in range(3)])  # in her name, unsigned
        store.labels.add([label("best", n, labeller="eve") for n in range(4)])
        scribe.recalibrate("best")
    keys = settings.labels.public_keys
    assert keys is not None

    def both(name: str, label_keys: str | None) -> list[tuple[list[str], bool]]:
        """What each verifier says: details, and whether it checked what was signed."""
        export(settings, tmp_path / name)
        read = None if label_keys is None else read_label_keys(label_keys)
        alone = by_one_file(Bundle(tmp_path / name), KEYS, [], label_keys=read)
        second = in_javascript(tmp_path / name, [], label_keys=label_keys)
        agree(alone, second)
        return [
            ([fault["detail"] for fault in faults], not any("signed labels" in one for one in notes))
            for faults, notes in ((alone.faults, alone.notes.values()), (second["faults"], second["notes"]))
        ]

    assert both("bundle", keys) == [([], True)] * 2
    assert both("without", None) == [([], False)] * 2
    report = verify(settings, label_keys=wiring.label_keys(settings).trusted)
    assert report.faults == ()
    assert not any("signed labels" in one for one in report.notes)
    assert any("signed labels" in one for one in verify(settings).notes)
    with breaking_in(settings.database.url) as connection:  # a changed program read it
        connection.exec_driver_sql(
            "UPDATE calibration_inputs SET severity = 0.5 WHERE severity IS NOT NULL AND batch ="
            " (SELECT min(batch) FROM calibration_inputs)"
        )
        rebuild_control(connection)
        rebuild_outcomes(connection)
    said = "labels do not give severity 0.5"
    assert [any(said in one for one in details) for details, _ in both("changed", keys)] == [True] * 2
    assert [any(said in one for one in details) for details, _ in both("unseen", None)] == [False] * 2
    report = verify(settings, outside=[], label_keys=wiring.label_keys(settings).trusted)
    assert any(said in fault.detail for fault in report.faults)


def test_policies_are_signed_from_the_first_signature_on(tmp_path: Path):
    """The text under a signature is made from the bundle's rows alone."""
    private, public = signing.generate_keys()
    plain = settings_for(f"sqlite:///{tmp_path / 'record.db'}", tmp_path)
    migrated(plain)
    rules: dict[str, dict[str, Any]] = {
        "segments": {"unit": "best", "segment_by": "kind", "alpha": 0.4, "labellers": ("bob", "ana")},
        "own": {"unit": "response", "method": "transductive", "audit_draws": 4, "alpha": 0.3},
        "soft": {"unit": "best", "shape": "smooth", "width": 0.1, "alpha": 0.3, "window": 50},
        "walk": {"unit": "best", "method": "selective", "alpha": 0.7},
        "bernstein": {"unit": "best", "method": "bernstein", "alpha": 0.5, "decision_deadline_seconds": 1e9},
    }
    with wiring.open_store(plain) as store:
        Scribe(store, plain).gate("segments", **rules["segments"])  # unsigned
    signed = load_settings(
        database={"url": plain.database.url},
        audit=plain.audit.model_dump(),
        policies={"private_key": private, "public_keys": public},
    )
    with wiring.open_store(signed) as store:
        scribe = Scribe(store, signed)
        for name, chosen in rules.items():
            if name != "segments":
                scribe.gate(name, **chosen)
        for name in rules:
            if name == "segments":
                store.policies.sign(name, 1, by="ana", reason="first key")
            scribe.deliver(event(name, n) for n in range(12))
            labels = scribe.drawn_labels(name, range(12), lambda n, _: 0.25 * (n % 3))
            scribe.deliver(labels, topic="labels")
            scribe.recalibrate(name)
            scribe.deliver(event(name, n) for n in range(12, 16))

    def both(name: str) -> list[tuple[list[str], int]]:
        """What each verifier says: details, and how many signatures are good."""
        export(signed, tmp_path / name)
        trusted = signing.read_public_keys(public, place="the test")
        alone = by_one_file(Bundle(tmp_path / name), KEYS, None, policy_keys=trusted)
        second = in_javascript(tmp_path / name, None, policy_keys=public)
        return [
            (sorted(one["detail"] for one in faults if one["check"] == "policy"), counts["policy signatures"])
            for faults, counts in ((alone.faults, alone.counts), (second["faults"], second["counts"]))
        ]

    assert both("bundle") == [([], 10)] * 2
    with breaking_in(plain.database.url) as connection:
        connection.exec_driver_sql(
            "UPDATE policies SET reason = 'another' WHERE gate = 'soft' AND version = 2"
        )
        connection.exec_driver_sql("UPDATE policies SET signature = NULL WHERE gate = 'own' AND version = 2")
        rebuild_control(connection)
        rebuild_outcomes(connection)
    said = ["it is not signed, and a policy before it was", "its signature is not good for what it says"]
    assert both("changed") == [(said, 8)] * 2
