"""The command that compares scores at equal labels, with a program of another package that uv runs."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from streamer_research.studies.score_table import chosen_answers, main
from tests.services.requirements import missing

OWN_UV = Path(__file__).resolve().parents[3] / ".uv" / "bin"
LENGTH = "json.dumps({'length': [min(1, len(t) / 100) for t in json.loads(line)['texts']]})"


@pytest.fixture
def uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{OWN_UV}{os.pathsep}{os.environ['PATH']}")
    if shutil.which("uv") is None:
        missing("no uv", "pip install uv")


@pytest.fixture
def clouds(tmp_path: Path) -> Path:
    """60 prompts: what agrees best is bad, and short. Their embeddings come with them."""
    rng = np.random.default_rng(1)
    path = tmp_path / "made-up.jsonl"
    with path.open("w") as file:
        for number in range(60):
            bad = number % 3 == 0
            centre = rng.normal(size=4)
            responses = [
                {
                    "text": "Lyon" if bad else "It is Paris, as far as anybody can tell",
                    "label": float(bad),
                    "embedding": (centre + (0.1 if bad else 0.5) * rng.normal(size=4)).tolist(),
                }
                for _ in range(3)
            ]
            line = {"question_id": f"q{number}", "question": "?", "references": [], "responses": responses}
            file.write(json.dumps(line) + "\n")
    return path


def program(folder: Path, printed: str) -> str:
    """A program that prints this for each line."""
    path = folder / "theirs.py"
    path.write_text(
        "# /// script\n# dependencies = []\n# ///\nimport json, sys\n"
        f"for line in sys.stdin:\n    print({printed})\n"
    )
    return str(path)


def run(clouds: Path, *others: str) -> int:
    kept = str(clouds.parent / "kept")
    more = ["--others", *others] if others else []
    return main(
        [str(clouds), "--labels", "40", "--alpha", "0.2", "--repetitions", "2", "--scores", kept, *more]
    )


@pytest.mark.encoder
@pytest.mark.usefixtures("uv")
def test_scores_of_another_package_are_gated_as_the_own_ones(
    tmp_path: Path, clouds: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = program(tmp_path, LENGTH)
    assert run(clouds, theirs) == 0
    said = capsys.readouterr().out
    assert said.startswith("### made-up.jsonl: 40 labelled prompts, measured on the other 20, 2 draws\n")
    served = {
        cells[1].strip(): float(cells[2])
        for cells in (line.split("|") for line in said.splitlines()[4:] if line)
    }
    assert served["`length`"] > 0.5 > served["`gram`"], "length tells right from wrong, agreement misleads"
    assert served["`full`"] > 0.5, "length is one of its signals"
    monkeypatch.setenv("PATH", "")
    assert run(clouds, theirs) == 0, "what it made is kept"
    assert capsys.readouterr().out == said
    (tmp_path / "theirs.py").write_text("raise SystemExit(1)")
    assert run(clouds, theirs) == 1, "another program is another score"
    assert "uv, which is not on the PATH" in capsys.readouterr().err


def test_files_together_are_one_population(clouds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = clouds.with_name("other.jsonl")
    other.write_text(clouds.read_text())
    arguments = ["--labels", "40", "90", "--alpha", "0.2", "--repetitions", "2"]
    assert main([str(clouds), str(other), "--together", *arguments]) == 0
    titles = [line for line in capsys.readouterr().out.splitlines() if line.startswith("###")]
    assert titles == [
        f"### made-up.jsonl and other.jsonl: {labels} labelled prompts, measured on the other {120 - labels}, 2 draws"
        for labels in (40, 90)
    ]
    few = clouds.with_name("few.jsonl")
    few.write_text("".join(clouds.read_text().splitlines(keepends=True)[:49]))
    assert main([str(few), *arguments]) == 1
    assert "49 prompts have a written answer, and 50 are needed" in capsys.readouterr().err


@pytest.mark.encoder
@pytest.mark.usefixtures("uv")
@pytest.mark.parametrize(
    ("printed", "says"),
    [
        ("'{}'", "must write one number in [0, 1] for each answer"),
        ("json.dumps({'a': [2, 0, 0]})", "must write one number in [0, 1] for each answer"),
        ("'no JSON'", "wrote a line that is no object of numbers"),
        ("1 / 0", "ended with status 1"),
    ],
)
def test_a_program_that_scores_nothing_is_refused(
    tmp_path: Path, clouds: Path, capsys: pytest.CaptureFixture[str], printed: str, says: str
) -> None:
    assert run(clouds, program(tmp_path, printed)) == 1
    assert says in capsys.readouterr().err


def test_of_equal_answers_that_one_is_gated_which_gram_energy_puts_first(clouds: Path) -> None:
    from streamer.clouds.cloud_files import read_clouds

    first, second = list(read_clouds(clouds))[:2]
    scores, severities = chosen_answers(
        [first, second], [[0.5] * 3, [0.5, 0.2, 0.1]], [np.array([0.1, 0.9, 0.9]), np.arange(3.0)]
    )
    assert scores.tolist() == [0.5, 0.5]
    assert severities.tolist() == [1.0, 0.0]
