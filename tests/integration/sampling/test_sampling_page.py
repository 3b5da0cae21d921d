"""docs/sampling.md and docs/using.md, done as they say: each command planned, the Python block run."""

import json
import re
import shlex
from pathlib import Path

import pytest

from streamer.cli import main
from streamer.clouds.cloud_files import read_clouds
from tests.services.openai_server import ChatReply, ChatRequest, OpenAIServer
from tests.told import Told

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "sampling.md").read_text(encoding="utf-8")
USING = (ROOT / "docs" / "using.md").read_text(encoding="utf-8")


def shell_lines(page: str) -> list[str]:
    """Every line of a page's shell blocks, with its continuations."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def commands() -> list[str]:
    """Every command line of both pages that samples."""
    return [line for line in shell_lines(PAGE + USING) if line.startswith("streamer sample")]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMER_SAMPLING_BASE_URL", "https://api.openai.com/v1")
    monkeypatch.setenv("STREAMER_SAMPLING_MODEL", "gpt-4o-mini")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts.jsonl").write_text(
        json.dumps({"question": "Why?", "references": ["Because."]}) + "\n"
    )


@pytest.mark.parametrize("line", commands())
def test_commands_plan_something(line: str, told: Told):
    words = [word for word in shlex.split(line, comments=True)[1:] if word != "--dry-run"]
    assert json.loads(told(*words, "--dry-run", "--json").out)["requests"] > 0


@pytest.mark.encoder
def test_from_prompts_to_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Sampled, labelled and planned for by the commands of the page, on answers of which some are right."""
    answers = {f"What is {i} + {i}?": str(2 * i) for i in range(10, 40)}
    rows = [json.dumps({"question": question, "references": [right]}) for question, right in answers.items()]
    (tmp_path / "prompts.jsonl").write_text("\n".join(rows))

    def answer(request: ChatRequest) -> ChatReply:
        right = answers[request.texts[1]]
        texts = [right if (int(right) + i) % 3 else str(7 * i) for i in range(request.body.get("n", 1))]
        return ChatReply(texts[0], further=texts[1:])

    label, plan = (
        line for line in shell_lines(PAGE) if line.startswith(("streamer label clouds", "streamer plan"))
    )
    with OpenAIServer(answer) as server:
        assert main(["sample", "prompts.jsonl", "--out", "clouds.jsonl", "--base-url", server.url]) == 0
    for _ in range(2):
        assert main(shlex.split(label, comments=True)[1:]) == 0
    clouds = list(read_clouds("labelled.jsonl"))
    assert [cloud.references for cloud in clouds] == [(right,) for right in answers.values()]
    severities = [(r.text, cloud.references[0], r.severity) for cloud in clouds for r in cloud.responses]
    assert all(severity == float(text != right) for text, right, severity in severities)
    assert {r.kind for cloud in clouds for r in cloud.responses} == {"lexical"}
    capsys.readouterr()
    assert main([*shlex.split(plan, comments=True)[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["guessed"] is False


def test_there_are_commands_to_try():
    assert len(commands()) == 7


def test_settings_that_the_page_names_are_settings(monkeypatch: pytest.MonkeyPatch, told: Told):
    names = set(re.findall(r"STREAMER_[A-Z_]+", PAGE))
    for name in names:
        if name.endswith("_FILE"):
            Path(name).write_text("key")
    monkeypatch.setenv("STREAMER_SAMPLING_API_KEY_FILE", "STREAMER_SAMPLING_API_KEY_FILE")
    for name in names - {"STREAMER_SAMPLING_API_KEY", "STREAMER_SAMPLING_API_KEY_FILE"}:
        monkeypatch.setenv(name, name)
    shown = json.loads(told("config", "show", "--json").out)
    assert shown["unknown_variables"] == []
    hosts = {one["setting"] for one in shown["settings"] if one["setting"].startswith("sampling.api_keys.")}
    assert hosts == {"sampling.api_keys.api.openai.com", "sampling.api_keys.api.together.xyz"}


def test_the_python_block_runs(capsys: pytest.CaptureFixture[str]):
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

    def answer(request: ChatRequest) -> ChatReply:
        return ChatReply("Paris.", further=["Paris."] * (request.body.get("n", 1) - 1))

    with OpenAIServer(answer) as server:
        code = block.replace("https://api.openai.com/v1", server.url).replace('"..."', '"key"')
        exec(compile(code, "docs/sampling.md", "exec"), {})
    assert "clouds=1" in capsys.readouterr().out
    assert Path("clouds.jsonl").is_file()
