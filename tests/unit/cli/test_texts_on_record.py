"""Texts that go on record, longer than their column or no text at all: refused in one line, before anything is written."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
import typer

from streamer.cli import WRONG_USAGE, main
from streamer.cli.app import app, every_command
from streamer.gates.free_text import MOST_WHO, MOST_WHY, fault
from streamer.store.db.schema import metadata
from streamer.store.db.schema.types import asked_of_text
from tests.told import Told

WHO = ("by", "created_by", "revoked_by", "rejected_by", "replayed_by", "requested_by", "labeller")
WHY = ("reason", "revoked_reason", "note", "remark")
OPTIONS = {"--by": MOST_WHO, "--reason": MOST_WHY, "--note": MOST_WHY}
NOT_WRITTEN_BY_PEOPLE = {"decisions.reason"}


def options() -> Iterator[tuple[list[str], str]]:
    for path, command in every_command(typer.main.get_command(app), "streamer"):
        for one in command.params:
            for name in set(one.opts) & set(OPTIONS) if one.metavar in ("WHO", "TEXT", "WHY") else ():
                yield path.split()[1:], name


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, migrated_sqlite_file: Path) -> Path:
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.chdir(tmp_path)
    Path(".streamer").mkdir()
    return Path(shutil.copy(migrated_sqlite_file, ".streamer/audit.db"))


@pytest.mark.parametrize(
    ("words", "option"), [pytest.param(*one, id=" ".join((*one[0], one[1]))) for one in options()]
)
def test_an_option_that_goes_on_record_names_itself_and_its_bound(
    words: list[str], option: str, database: Path, told: Told
):
    before = database.read_bytes()
    for text, wrong in (
        ("x" * (OPTIONS[option] + 1), f"at most {OPTIONS[option]} are allowed"),
        ("a\udcffb", "is not UTF-8"),
    ):
        said = told(*words, option, text, status=WRONG_USAGE).err.strip().splitlines()[-1]
        assert f"'{option}'" in said
        assert wrong in said
    assert database.read_bytes() == before


def bounds() -> Iterator[tuple[str, int]]:
    """Each column for free text that has a bound, and the bound."""
    for table in metadata.tables.values():
        for column in table.columns:
            asked = asked_of_text(f"ck_{table.name}_{column.name}")
            if asked is not None and column.name in (*WHO, *WHY):
                yield f"{table.name}.{column.name}", int(asked.split(" characters")[0].split()[-1])


def test_no_column_is_shorter_than_what_the_options_permit():
    found = dict(bounds())
    assert len(found) > 15
    for name, longest in found.items():
        if name not in NOT_WRITTEN_BY_PEOPLE:
            assert longest >= (MOST_WHO if name.split(".")[1] in WHO else MOST_WHY), name


def test_every_bound_on_a_text_is_said_in_words():
    for table in metadata.tables.values():
        for one in table.constraints:
            rule = str(one.sqltext) if isinstance(one, sa.CheckConstraint) else ""
            if rule.startswith("length(") and "=" not in rule.replace("<=", ""):
                assert asked_of_text(str(one.name)) is not None, one.name


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("x" * 11, "has 11 characters, at most 10 are allowed"),
        ("a\0b", "has a NUL character"),
        ("\ud800", "is not UTF-8"),
    ],
)
def test_what_is_wrong_with_a_text(text: str, wrong: str):
    assert fault(text, 10) == wrong
    assert fault("x" * 10, 10) is None


def test_an_argument_that_is_no_text_is_named(database: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["gate", "create", "one"]) == 0
    capsys.readouterr()
    assert main(["gate", "set", "one", "--segment-by", "\udcff"]) == WRONG_USAGE
    assert capsys.readouterr().err == "streamer: the argument '\\udcff' is not UTF-8\n"


@pytest.mark.parametrize("name", ["x" * 3000, "/" + "x" * 3000, "~nobody-here/model"])
def test_an_encoder_that_can_be_no_folder_is_none(name: str, database: Path, told: Told):
    assert "no encoder" in told("gate", "create", "one", "--encoder", name, status=WRONG_USAGE).err


@pytest.mark.parametrize(
    "words", [["gate", "set", "one", "--draws"], ["threshold", "show", "one", "--version"]]
)
def test_a_number_that_no_database_keeps_is_named(
    words: list[str], database: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["gate", "create", "one"]) == 0
    capsys.readouterr()
    assert main([*words, str(2**63)]) == WRONG_USAGE
    assert capsys.readouterr().err == (
        "streamer: the argument 9223372036854775808 is larger than any number on record\n"
    )


@pytest.mark.parametrize("file", ["", "/", "."])
@pytest.mark.parametrize(
    "words", [["label", "keygen", "ann"], ["label", "clouds", "none.jsonl", "--by", "lexical"]]
)
def test_a_file_without_a_name_is_refused(words: list[str], file: str, database: Path, told: Told):
    assert (
        told(*words, "--out", file, status=WRONG_USAGE).err
        == f"streamer: {Path(file)} is a folder; name a file\n"
    )
