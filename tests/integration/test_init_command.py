"""`streamer init`: what it makes is what the commands that it prints need."""

import json
import resource
from pathlib import Path

import pytest

from streamer.cli import main
from streamer.cli.publish import publications
from streamer.events.labels import decode_label
from streamer.events.limits import Limits
from tests.told import Told


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("STREAMER_DATABASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.encoder
def test_the_folder_has_what_the_printed_commands_need(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, told: Told
):
    said = told("init", "here", "--gate", "faq", "--alpha", "10%").out
    assert "streamer evaluate answers.csv --alpha 0.1" in said
    assert "streamer publish answers.csv --gate faq --labels" in said
    assert sorted(path.name for path in (elsewhere / "here").iterdir()) == [
        ".gitignore", ".streamer", "answers.csv", "streamer.toml",
    ]  # fmt: skip
    monkeypatch.chdir("here")
    shown = json.loads(told("gate", "show", "faq", "--json").out)
    assert (shown["alpha"], shown["method"]) == (0.1, "full"), "what any new gate has"
    # The labels that `publish --labels` sends are of the gate's kind: a recalibration reads them.
    batches = list(publications("answers.csv", gate="faq", labels=True, labeller=None, limits=Limits()))
    kinds = {decode_label(label).kind for batch in batches for label in batch.labels}
    assert kinds == {shown["severity_kind"]}
    assert sum(len(batch.labels) for batch in batches) == 400
    found = told("evaluate", "answers.csv", "--alpha", "0.1", "--splits", "20").out
    assert "answers: At a budget of 10 %" in found


@pytest.mark.encoder
def test_nothing_that_is_there_is_overwritten(elsewhere: Path, told: Told):
    (elsewhere / "answers.csv").write_text("mine")
    assert "answers.csv already" in told("init", ".", status=2).err
    assert (elsewhere / "answers.csv").read_text() == "mine"
    assert not (elsewhere / "streamer.toml").exists()
    for wrong in (["--gate", "Bad!"], ["--alpha", "2"]):
        assert main(["init", "new", *wrong]) == 2
        assert not (elsewhere / "new").exists()
    (elsewhere / "file").write_text("")
    assert "cannot write file" in told("init", "file", status=2).err


@pytest.mark.encoder
def test_what_a_full_disk_ended_can_be_begun_again(elsewhere: Path, capsys: pytest.CaptureFixture[str]):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    try:
        assert main(["init", "new"]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert capsys.readouterr().err == "streamer: cannot write new: File too large\n"
    assert not (elsewhere / "new").exists()
    (elsewhere / "file").write_text("")
    assert main(["init", "file/new"]) == 2
    assert "cannot write file/new: a file stands where a folder should be" in capsys.readouterr().err


def test_a_refusal_leaves_no_folder_of_those_above_either(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, told: Told
):
    (elsewhere / "mine").mkdir()
    monkeypatch.setenv("STREAMER_DATABASE_URL", "nonsense")
    assert "the database URL cannot be read" in told("init", "mine/above/new", status=2).err
    assert list(elsewhere.rglob("*")) == [elsewhere / "mine"]
