"""docs/sampling.md and the README, done as they say: each command planned, the Python block run."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from streamer.cli import main
from tests.services.openai_server import ChatReply, ChatRequest, OpenAIServer

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "sampling.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    """Every command line of both pages that samples."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE + README, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.startswith("streamer sample")]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("STREAMER_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("STREAMER_SAMPLING_BASE_URL", "https://api.openai.com/v1")
    monkeypatch.setenv("STREAMER_SAMPLING_MODEL", "gpt-4o-mini")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts.jsonl").write_text(
        json.dumps({"question": "Why?", "references": ["Because."]}) + "\n"
    )


@pytest.mark.parametrize("line", commands())
def test_commands_plan_something(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for word in shlex.split(line, comments=True)[1:] if word != "--dry-run"]
    assert main([*words, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] > 0


def test_there_are_commands_to_try() -> None:
    assert len(commands()) == 7


def test_settings_that_the_page_names_are_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = set(re.findall(r"STREAMER_[A-Z_]+", PAGE))
    for name in names:
        if name.endswith("_FILE"):
            Path(name).write_text("key")
    monkeypatch.setenv("STREAMER_SAMPLING_API_KEY_FILE", "STREAMER_SAMPLING_API_KEY_FILE")
    for name in names - {"STREAMER_SAMPLING_API_KEY", "STREAMER_SAMPLING_API_KEY_FILE"}:
        monkeypatch.setenv(name, name)
    assert main(["config", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["unknown_variables"] == []
    hosts = {one["setting"] for one in shown["settings"] if one["setting"].startswith("sampling.api_keys.")}
    assert hosts == {"sampling.api_keys.api.openai.com", "sampling.api_keys.api.together.xyz"}


def test_the_python_block_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

    def answer(request: ChatRequest) -> ChatReply:
        return ChatReply("Paris.", further=["Paris."] * (request.body.get("n", 1) - 1))

    with OpenAIServer(answer) as server:
        code = block.replace("https://api.openai.com/v1", server.url).replace('"..."', '"key"')
        exec(compile(code, "docs/sampling.md", "exec"), {})
    assert "clouds=1" in capsys.readouterr().out
    assert Path("clouds.jsonl").is_file()
