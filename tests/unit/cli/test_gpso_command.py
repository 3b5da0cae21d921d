"""`streamer gpso` as people and programs meet it, on files that bring their embeddings along."""

import csv
import json
import resource
from pathlib import Path

import numpy as np
import pytest

from streamer.cli import WRONG_USAGE, main
from tests.told import Told


@pytest.fixture
def clouds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six questions with five good and five bad responses each, whose embeddings tell them apart."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    path = tmp_path / "mine.jsonl"
    with path.open("w") as file:
        for i in range(6):
            responses = [
                {
                    "text": f"answer {j}",
                    "label": float(j % 2),
                    "embedding": (rng.normal(size=6) + np.array([9, 1, 1, 1, 1, 1]) * (j % 2 == 0)).tolist(),
                }
                for j in range(10)
            ]
            file.write(json.dumps({"question_id": f"q{i}", "question": "?", "responses": responses}) + "\n")
    return path


def test_people_read_the_papers_table(clouds, told: Told, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = told("gpso", str(clouds)).out
    plain = " ".join(text.split())
    assert text.startswith("mine\n")
    assert "6 questions, 60 responses; good: severity at most 0.5 (30, 50%), bad: above (30)" in plain
    assert "6 have 3 or more of each class; 0 skipped" in plain
    assert "macro acc good bad Δ_P AUROC ties" in plain
    for name in ("(A) L2, centred", "(B) L2, no centre", "(C) no L2, centred", "(D) no L2, no centre"):
        assert name in text
    for name in ("logistic regression", "nearest mean", "Each question left out: 12 batches of one class"):
        assert name in text
    assert "nothing is certified" in plain
    tables = [
        line
        for line in text.splitlines()
        if line.startswith(("(", "method", "logistic", "nearest", "tightness"))
    ]
    assert len(tables) == 2 * (8 + 4 + 8) + 2 * (5 + 4)  # no row is folded into two


def test_json_is_one_value_and_a_rerun_is_identical(clouds, told: Told):
    words = ["gpso", str(clouds), "--json", "--no-loo", "--splits", "2", "--pipeline", "b"]
    first = told(*words).out
    assert told(*words).out == first
    (value,) = json.loads(first)
    assert value["file"] == "mine"
    assert {row["protocol"] for row in value["rows"]} == {"within"}
    wanted = {"GPSO B", "logistic regression", "nearest mean", "tightness alone"}
    assert {row["method"] for row in value["rows"]} == wanted
    assert value["rows"][0]["judged"] == 6 * 2 * 2


def test_files_are_written(clouds, tmp_path, told: Told):
    out = tmp_path / "made" / "here"
    found = told("gpso", str(clouds), "--no-loo", "--out", str(out)).err
    assert "wrote gpso.json, gpso.csv, gpso-batches.csv and gpso.md" in found
    assert json.loads((out / "gpso.json").read_text())[0]["file"] == "mine"
    with (out / "gpso.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 7 + 4
    assert (out / "gpso-batches.csv").read_text().count("\n") == 1 + 4 * 6 * 5 * 2
    assert (out / "gpso.md").read_text().startswith("## mine, cut 0.5\n")


def test_several_files_are_named_apart(clouds, tmp_path, told: Told):
    other = tmp_path / "b" / "mine.jsonl"
    other.parent.mkdir()
    other.write_bytes(clouds.read_bytes())
    words = ["--no-loo", "--splits", "1", "--pipeline", "B", "--json"]
    assert [one["file"] for one in json.loads(told("gpso", str(clouds), str(other), *words).out)] == [
        str(clouds),
        str(other),
    ]
    assert "named twice" in told("gpso", str(clouds), str(clouds), *words, status=WRONG_USAGE).err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--pipeline", "E"], "pipelines are A, B, C and D, not E"),
        (["--pipeline", "a,,B"], "--pipeline has an empty name"),
        (["--pipeline", "a,B,A"], "--pipeline names 'A' twice"),
        (["--cut", "1"], "the cut must be in [0, 1), not 1"),
        (["--min-per-class", "1"], "at least 2 responses"),
    ],
)
def test_wrong_options_are_told_in_one_line(clouds, capsys, words, message):
    assert main(["gpso", str(clouds), *words]) == WRONG_USAGE
    told = capsys.readouterr()
    assert message in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{broken", "line 7: not JSON"),
        (
            '{"question_id": "x", "question": "?", "responses": [{"text": "a", "label": 0}, {"text": "b", "label": 2}]}',
            "line 7",
        ),
        (
            '{"question_id": "x", "question": "?", "responses": [{"text": "a", "label": 0, "embedding": [1, 2]}, '
            '{"text": "b", "label": 1, "embedding": [1, 2, 3]}]}',
            "line 7: the embeddings of one question are of different dimensions",
        ),
    ],
)
def test_a_bad_line_is_named_with_its_file(clouds, capsys, line, message):
    with clouds.open("a") as file:
        file.write(line + "\n")
    assert main(["gpso", str(clouds)]) == WRONG_USAGE
    told = " ".join(capsys.readouterr().err.split())
    assert "mine.jsonl" in told
    assert message in told


def test_a_file_without_labels_or_with_one_class_is_told_before_an_encoder_is_loaded(
    tmp_path, told: Told, monkeypatch
):
    monkeypatch.setattr(
        "streamer.scoring.encoders.registry.load_encoder", None
    )  # a call would be an unexpected error
    path = tmp_path / "poor.jsonl"

    def write(*labels):
        responses = [{"text": f"t{i}", "label": label} for i, label in enumerate(labels)]
        path.write_text(json.dumps({"question_id": "q", "question": "?", "responses": responses}) + "\n")

    write(None, None)
    assert "poor.jsonl: no response has a label" in told("gpso", str(path), status=WRONG_USAGE).err
    write(0.1, 0.2)
    assert "poor: every response is good at the cut 0.5" in told("gpso", str(path), status=WRONG_USAGE).err


def test_no_encoder_is_told(tmp_path, told: Told, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMER_ENCODER_NAME", "none")
    path = tmp_path / "plain.jsonl"
    responses = [{"text": f"t{i}", "label": i % 2} for i in range(6)]
    path.write_text(json.dumps({"question_id": "q", "question": "?", "responses": responses}) + "\n")
    assert "encoder.name is none" in told("gpso", str(path), status=WRONG_USAGE).err


def test_a_folder_that_cannot_be_made_is_told_before_anything_is_computed(clouds, tmp_path, told):
    taken = tmp_path / "taken"
    taken.write_text("a file")
    assert "cannot make the folder" in told("gpso", str(clouds), "--out", str(taken), status=WRONG_USAGE).err


def test_a_folder_gets_all_files_or_none(clouds, capsys):
    short = ["--no-loo", "--splits", "1", "--pipeline", "A"]
    (clouds.parent / "there" / "gpso.md").mkdir(parents=True)
    assert main(["gpso", str(clouds), *short, "--out", "there"]) == WRONG_USAGE
    assert "there/gpso.md is a folder" in capsys.readouterr().err
    assert [path.name for path in (clouds.parent / "there").iterdir()] == ["gpso.md"]

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        assert main(["gpso", str(clouds), *short, "--out", "full"]) == WRONG_USAGE
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "cannot write into full: File too large" in capsys.readouterr().err
    assert list((clouds.parent / "full").iterdir()) == []


def test_a_file_without_labels_makes_no_folder(clouds, told: Told):
    clouds.write_text(clouds.read_text().replace('"label"', '"other"'))
    assert "no response has a label" in told("gpso", str(clouds), "--out", "new", status=WRONG_USAGE).err
    assert not (clouds.parent / "new").exists()
