import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "monitoring.md"


def test_the_code_of_the_page_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict = {}
    exec(code, names)
    assert names["sequence"].overdue == 1
    assert names["sequence"].exposure().labels == 2
    assert "RiskInterval" in capsys.readouterr().out
