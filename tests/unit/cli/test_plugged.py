"""Commands of other packages, by the entry points `streamer.commands`."""

from pathlib import Path

import pytest

from streamer.cli import DONE, WRONG_USAGE, main
from tests.told import Told


@pytest.fixture
def another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution with the commands `greet` and `plan`, of which the second has a name of ours."""
    (tmp_path / "greeting.py").write_text(
        "GREET = ('greeting:greet', 'Greet somebody.')\n\n"
        "def greet(name: str) -> None:\n    print(f'Hello {name}')\n\n"
        "def missing() -> None:\n    import joblib_of_nowhere\n"
        "MISSING = ('greeting:missing', 'Lack a package.')\n"
    )
    about = tmp_path / "greeting-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[streamer.commands]\ngreet = greeting:GREET\nplan = greeting:GREET\nlacking = greeting:MISSING\n"
        "gone = farewell:GONE\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("another_package")
def test_a_package_adds_a_command(capsys: pytest.CaptureFixture[str]):
    assert main(["greet", "Ann"]) == DONE
    assert capsys.readouterr().out == "Hello Ann\n"
    assert main(["--help"]) == DONE
    told = capsys.readouterr().out
    assert "Of other packages" in told
    assert "Greet somebody." in told
    assert "Cannot be loaded: No module named 'farewell'." in told
    assert main(["greet"]) == WRONG_USAGE


@pytest.mark.usefixtures("another_package")
def test_a_name_of_ours_stays_ours(told: Told):
    assert "--alpha" in told("plan", "--help").out


@pytest.mark.usefixtures("another_package")
def test_what_such_a_command_lacks_is_an_error_like_any_other(told: Told):
    assert "joblib_of_nowhere" in told("lacking", status=1).err


@pytest.mark.usefixtures("another_package")
def test_a_command_that_cannot_be_loaded_says_where_it_should_be(capsys: pytest.CaptureFixture[str]):
    assert main(["gone"]) == WRONG_USAGE
    told = capsys.readouterr().err
    assert told == "streamer: `streamer gone` (farewell:GONE) cannot be loaded: No module named 'farewell'\n"


def test_the_package_of_studies_is_installed_with_all_that_it_needs(told: Told):
    assert "  gpso  " in told("--help").out
