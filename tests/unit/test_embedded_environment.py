"""What the worker of `streamer dev` and of the demo gets of the settings that checkpoints are made with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from streamer.audit.signing import generate_keys
from streamer.embedded import EmbeddedStep
from streamer.settings import load_settings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("shared", [True, False])
def test_only_a_record_that_is_kept_gets_the_checkpoints_that_are_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    audit: dict[str, Any] = {"private_key": generate_keys()[0], "checkpoint_file": "here/checkpoints.jsonl"}
    step = EmbeddedStep(
        load_settings(audit=audit),
        database_url="sqlite:///record.db",
        directory=tmp_path / "dev",
        shared=shared,
    )
    step.broker.start(topics=("streamer.responses",))
    try:
        environment = step._environment()
    finally:
        step.stop()
    passed = {name: value for name, value in environment.items() if name.startswith("STREAMER_AUDIT_")}
    expected = {
        "STREAMER_AUDIT_PRIVATE_KEY": audit["private_key"],
        "STREAMER_AUDIT_CHECKPOINT_FILE": str(tmp_path / "here" / "checkpoints.jsonl"),
        "STREAMER_AUDIT_CHECKPOINT_EVERY_SECONDS": "300.0",
    }
    assert passed == (expected if shared else {})
