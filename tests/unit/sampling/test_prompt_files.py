"""Files of prompts: JSON Lines, plain text, clouds; and what is wrong with those that are none."""

import gzip
import json
from pathlib import Path

import pytest

from streamer.errors import UsageError
from streamer_research.sampling import Prompt, read_prompts


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    rows = [
        {"question_id": 7, "question": "Capital?", "references": [" Paris ", ""]},
        {"question": "Why?", "source": "x"},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert read_prompts(path) == (Prompt("7", "Capital?", ("Paris",)), Prompt("line-0002", "Why?"))
    assert len(read_prompts(path, limit=1)) == 1


def test_plain_text_and_gzip(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt.gz"
    path.write_bytes(gzip.compress("\ufeffWo?\n\n 首都は？ \n".encode()))
    assert read_prompts(path) == (Prompt("line-0001", "Wo?"), Prompt("line-0003", "首都は？"))


def test_clouds_are_prompts_too(triviaqa_path: Path) -> None:
    prompts = read_prompts(triviaqa_path)
    assert len(prompts) == 500
    assert all(prompt.references for prompt in prompts)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "no prompts"),
        (b"\n \n", "no prompts"),
        (b'{"question": "a"}\nnot json', "line 2 is not JSON"),
        (b'{"question": "a"}\n{"text": "b"}', "line 2"),
        (b'{"question": " "}', "line 1: the question is blank"),
        (b'{"question": "a", "references": "b"}', "references"),
        (
            b'{"question": "a", "question_id": "x"}\n{"question": "b", "question_id": "x"}',
            "already on line 1",
        ),
        (b'{"question": "a\\u0000"}', "NUL"),
        (b'{"question": "a\\ud800"}', "line 1"),
        (b"caf\xe9", "not UTF-8"),
        (b"\x1f\x8bbroken", "damaged gzip"),
    ],
)
def test_files_that_cannot_be_used_name_the_line(tmp_path: Path, text: bytes, says: str) -> None:
    path = tmp_path / "prompts"
    path.write_bytes(text)
    with pytest.raises(UsageError, match=says):
        read_prompts(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read_prompts(tmp_path / "none")
