"""`streamer label clouds`: a file gets severities, cloud by cloud, and a second run does what the first did not."""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamer.cli import main
from streamer.clouds.cloud_files import read_clouds
from streamer.labels.cloud_labels import CloudLabelling
from streamer.labels.filling import Attempted, fill
from streamer.labels.kinds.lexical import Lexical
from streamer.labels.severity import Severity
from tests import programs
from tests.told import Told


def row(name: str, *texts: str, references: list[str] | None = None, **fields: Any) -> str:
    responses = [{"text": text, "label": None, "meta": {"model": "m"}} for text in texts]
    return json.dumps(
        {"question_id": name, "question": "?", "references": references, "responses": responses, **fields}
    )


def in_bounds(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command that may neither grow nor last: one that reads a device would do both."""

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (4_000_000_000, 4_000_000_000))

    return programs.run(sys.executable, "-m", "streamer", *command, status=None, preexec_fn=bound)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        row("a", "Paris.", "Lyon.", references=["Paris"], source="kept"),
        row("b", "Yes", "No"),
        row("c", "4", "four", references=["4"]),
    ]
    Path("in.jsonl").write_text("\n".join(rows))


def labels(name: str = "out.jsonl") -> dict[str, tuple[float | None, ...]]:
    return {cloud.question_id: cloud.severities for cloud in read_clouds(name)}


def test_labels_beside_everything_else():
    assert main(["label", "clouds", "in.jsonl", "--out", "out.jsonl"]) == 0
    assert labels() == {"a": (0.0, 1.0), "b": (None, None), "c": (0.0, 1.0)}
    written = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    (first,) = (one for one in written if one["question_id"] == "a")
    assert first["source"] == "kept"
    assert first["responses"][0]["meta"] == {"model": "m", "label_kind": "lexical (lexical/exact/head)"}


def test_going_on_after_a_kill(capsys: pytest.CaptureFixture[str]):
    assert main(["label", "clouds", "in.jsonl", "--out", "out.jsonl"]) == 0
    whole = Path("out.jsonl").read_bytes()
    Path("out.jsonl").write_bytes(whole[:-20])
    assert main(["label", "clouds", "in.jsonl", "--out", "out.jsonl"]) == 0
    assert labels() == {"a": (0.0, 1.0), "b": (None, None), "c": (0.0, 1.0)}
    assert "2 clouds were labelled already" in capsys.readouterr().err
    after = Path("out.jsonl").read_bytes()
    assert main(["label", "clouds", "in.jsonl", "--out", "out.jsonl"]) == 0
    assert Path("out.jsonl").read_bytes() == after


def test_two_labellers_do_not_share_a_file(told: Told):
    assert main(["label", "clouds", "in.jsonl", "--out", "out.jsonl"]) == 0
    found = told("label", "clouds", "in.jsonl", "--out", "out.jsonl", "--whole", status=2).err
    assert "not labelled by lexical/exact/whole but by lexical/exact/head" in found


def test_a_cloud_of_which_a_response_failed_waits_for_the_next_run():
    asked: list[str] = []

    class Half(Lexical):
        fails = True

        def label(self, tasks: Any) -> Any:
            for task in tasks:
                asked.append(task.response)
                failed = self.fails and task.response == "Lyon."
                yield [
                    Attempted(
                        task=task,
                        severity=None if failed else Severity(0.0, 0.0),
                        failure="x: y" if failed else None,
                    )
                ]

    with CloudLabelling("in.jsonl", Path("out.jsonl"), Half()) as labelling:
        *_, tally = fill(labelling.tasks(), Half(), labelling.keep)
    assert (tally.labelled, tally.failures) == (3, 1)
    assert labels() == {"b": (None, None), "c": (0.0, 0.0)}
    asked.clear()
    Half.fails = False
    with CloudLabelling("in.jsonl", Path("out.jsonl"), Half()) as labelling:
        list(fill(labelling.tasks(), Half(), labelling.keep))
    assert asked == ["Lyon."], "what the others of its cloud got is not paid for again"
    assert labels()["a"] == (0.0, 0.0)
    assert {path.name for path in Path().iterdir()} == {"in.jsonl", "out.jsonl"}


@pytest.mark.parametrize(
    ("text", "out", "says"),
    [
        ("not json", "out.jsonl", "line 1 is not JSON"),
        (row("a", "x", "y") + "\n" + row("a", "x", "y"), "out.jsonl", "occurs twice"),
        (row("a", "x", "y"), "in.jsonl", "names the file that is read"),
        (row("a", "x", "y"), "out.jsonl.gz", "must not end in .gz"),
        (row("a", "x", "y").replace('"label": null', '"label": 1'), "out.jsonl", "'unstated'"),
    ],
)
def test_what_cannot_be_done_is_told(text: str, out: str, says: str, told: Told):
    Path("in.jsonl").write_text(text)
    assert says in told("label", "clouds", "in.jsonl", "--out", out, status=2).err


def test_a_device_is_not_read_as_the_clouds_written_before():
    done = in_bounds(["label", "clouds", "in.jsonl", "--out", "/dev/full"])
    assert done.returncode == 2
    assert "cannot write /dev/full: it is a device or a pipe, not a regular file" in done.stderr
