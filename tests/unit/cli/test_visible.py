"""What other people wrote, on a terminal: nothing of it steers the terminal, hides, or is read as markup."""

import io
import json
import logging
import re
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamer
from streamer.cli import console, main
from streamer.security.visible import VisibleLines, visible
from streamer.telemetry.logs import configure_logging
from tests.told import Told
from tests.unit.telemetry.test_logs import as_before  # noqa: F401

HOSTILE = "\x1b[31mred\x1b]0;title\x07\x9b2J\x08\x7f\r\u202egnp\u2066\u200f\ufeff\u2028\U000e0041 [red]markup[/red] [/] :smile:"
STEERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0001-\U000e007f]"
)


@pytest.fixture
def logs_as_before(as_before: Iterator[None]) -> None:  # noqa: F811
    """Log handlers are put back."""


@given(st.text())
def test_every_text_is_made_visible_once(text: str):
    shown = visible(text)
    assert not STEERS.search(shown)
    assert visible(shown) == shown
    shown.encode()
    if all(unicodedata.category(one) not in ("Cc", "Cf", "Cn", "Cs", "Zl", "Zp") for one in text):
        assert shown == text


@given(st.dictionaries(st.text(), st.text()))
def test_json_stays_the_same_json(value: dict[str, str]):
    assert json.loads(visible(json.dumps(value, ensure_ascii=False))) == value


def test_code_points_that_are_no_characters_are_written_as_numbers():
    for number in (
        0xFDD0,
        0xFDEF,
        *(plane | end for plane in range(0, 0x110000, 0x10000) for end in (0xFFFE, 0xFFFF)),
    ):
        shown = visible(f"a{chr(number)}b")
        assert shown.isascii()
        assert json.loads(f'"{shown}"') == f"a{chr(number)}b"
    assert visible("\ufdcf\ufdf0\ufffd") == "\ufdcf\ufdf0\ufffd"


def test_joiners_of_emoji_and_scripts_stay():
    for text in ("👩\u200d👩\u200d👧", "می\u200cخواهم", "naïve\u00a0café\t\n", "日本語"):
        assert visible(text) == text


@pytest.mark.parametrize(
    "show",
    [
        console.say,
        console.note,
        console.warn,
        console.complain,
        lambda text: console.print_table([text], [[text]], title=text),
        lambda text: console.print_fields({text: text}),
        lambda text: console.output().print(text),
        lambda text: console.errors().print({"a": [text]}),
        lambda text: console.print_json({text: text}),
    ],
)
def test_nothing_that_the_commands_print_steers_a_terminal(
    show: Callable[[str], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "1000")
    show(HOSTILE)
    captured = capsys.readouterr()
    printed = captured.out + captured.err
    assert not STEERS.search(printed)
    assert "\\u001b[31mred" in printed or "\\x1b[31mred" in printed
    assert "[red]markup[/red]" in printed


def test_cells_with_a_style_of_ours_bring_none_of_theirs(capsys: pytest.CaptureFixture[str]):
    from rich.text import Text

    console.print_table(["a"], [[Text(HOSTILE, style="bold")]])
    assert not STEERS.search(capsys.readouterr().out)


def test_a_queue_that_is_looked_at_is_visible():
    terminal = io.StringIO()
    VisibleLines(terminal).write(f"a,{HOSTILE}\r\n")
    assert not STEERS.search(terminal.getvalue())
    assert terminal.getvalue().endswith("\n")


@pytest.mark.parametrize(
    "words",
    [[f"--{HOSTILE}"], [HOSTILE], ["gate", "show", f"--{HOSTILE}"], ["publish", "x", "--rate", HOSTILE]],
)
def test_usage_errors_quote_the_command_line_visibly(words: list[str], told: Told):
    assert not STEERS.search(told(*words, status=2).err)


@pytest.mark.usefixtures("logs_as_before")
@pytest.mark.expected_errors
@pytest.mark.parametrize("style", ["console", "json"])
def test_log_lines_are_visible_and_stay_lines(style: str):
    stream = io.StringIO()
    configure_logging(style, stream=stream)  # type: ignore[arg-type]
    logging.getLogger("library").error("said %s", HOSTILE + "\n2026-11-20 forged line")
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logging.getLogger("x").exception(HOSTILE, extra={"value": HOSTILE})
    text = stream.getvalue()
    assert not STEERS.search(text)
    assert not any(line.startswith("2026-11-20 forged") for line in text.splitlines())


def test_names_and_reasons_of_a_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("STREAMER_DATABASE_URL", f"sqlite:///{tmp_path / 'db'}")
    monkeypatch.setenv("STREAMER_ENCODER_NAME", "none")
    said = "\x1b[31mred\u202e[red]\x9b2J"
    assert main(["db", "upgrade"]) == 0
    assert main(["gate", "create", "bot", "--scorer", "external", "--by", said, "--reason", said]) == 0
    assert main(["threshold", "close", "bot", "--by", said, "--reason", said]) == 0
    capsys.readouterr()
    for words in (
        ["gate", "show", "bot"],
        ["gate", "list"],
        ["threshold", "show", "bot"],
        ["threshold", "history", "bot"],
        ["gate", "history", "bot"],
        ["audit", "log"],
        ["config", "show"],
    ):
        for json_too in ([], ["--json"]):
            main([*words, *json_too])
            captured = capsys.readouterr()
            assert not STEERS.search(captured.out + captured.err), words


def test_commands_print_through_the_console_alone():
    folder = Path(streamer.__file__).parent / "cli"
    prints = re.compile(r"(?<![\w.])print\(|typer\.(echo|secho)\(|Console\(|sys\.std(out|err)\.write\(")
    found = {path.name: prints.findall(path.read_text()) for path in folder.glob("*.py")}
    assert (
        {name: len(calls) for name, calls in found.items() if calls}
        == {
            "__init__.py": 2,  # the traceback of STREAMER_DEBUG, made visible; the name of a package that is missing
            "app.py": 1,  # the version
            "console.py": 6,
        }
    )
