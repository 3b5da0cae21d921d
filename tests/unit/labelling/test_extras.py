"""Parts that need an extra say which one, and cost nothing until they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streamer.errors import UsageError
from streamer.labels.bertscore import BertScorer


def test_bertscore_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bert_score.utils", None)
    with pytest.raises(UsageError, match=r"pip install 'conformal-streamer\[bertscore\]'"):
        BertScorer("/nowhere")


def test_importing_these_parts_imports_no_model_library() -> None:
    code = """
import sys
import streamer.labels.bertscore, streamer.labels.severity
assert not {"torch", "transformers", "bert_score", "openai", "pandas"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
