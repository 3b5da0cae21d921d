"""What the worker of `streamer dev` and of the demo gets of the settings that checkpoints are made with."""

from pathlib import Path
from typing import Any

import pytest

from streamer.audit.signing import generate_keys
from streamer.cli.dev.embedded import EmbeddedStep
from streamer.settings.settings import Settings, load_settings


def environment_of(settings: Settings, folder: Path, *, shared: bool = True) -> dict[str, str]:
    """The variables that services get of these settings."""
    step = EmbeddedStep(settings, database_url="sqlite:///record.db", directory=folder / "dev", shared=shared)
    step.broker.start(topics=("streamer.responses",))
    try:
        return step._environment()
    finally:
        step.stop()


@pytest.mark.parametrize("shared", [True, False])
def test_only_a_record_that_is_kept_gets_the_checkpoints_that_are_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    audit: dict[str, Any] = {"private_key": generate_keys()[0], "checkpoint_file": "here/checkpoints.jsonl"}
    environment = environment_of(load_settings(audit=audit), tmp_path, shared=shared)
    passed = {name: value for name, value in environment.items() if name.startswith("STREAMER_AUDIT_")}
    expected = {
        "STREAMER_AUDIT_PRIVATE_KEY": audit["private_key"],
        "STREAMER_AUDIT_CHECKPOINT_FILE": str(tmp_path / "here" / "checkpoints.jsonl"),
        "STREAMER_AUDIT_CHECKPOINT_EVERY_SECONDS": "300.0",
    }
    assert passed == (expected if shared else {})


def test_what_signs_policies_goes_with_a_record_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    private = generate_keys()[0]
    for shared in (True, False):
        environment = environment_of(
            load_settings(policies={"private_key": private}), tmp_path, shared=shared
        )
        assert environment.get("STREAMER_POLICIES_PRIVATE_KEY") == (private if shared else None)


def test_the_console_shows_the_words_that_a_gate_has_for_its_severities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "streamer.toml").write_text('[rubrics.bot]\nhalf = "The right article, ünclear"\n', "utf-8")
    settings = load_settings()
    environment = environment_of(settings, tmp_path)
    (tmp_path / "streamer.toml").unlink()
    monkeypatch.setenv("STREAMER_RUBRICS", environment["STREAMER_RUBRICS"])
    assert load_settings().rubrics == settings.rubrics


def test_the_endpoint_gets_the_upstreams_and_where_their_keys_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "streamer.toml").write_text(
        '[upstreams.bot]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "small"\nkey_variable = "SMALL_KEY"\nanswers = 9\n'
        "steps = [3, 6]\nstop_above = 0.9\nprice_per_million_input = 0.15\nprice_per_million_output = 0.6\n",
        "utf-8",
    )
    monkeypatch.setenv("SMALL_KEY_FILE", "secrets/small")
    settings = load_settings()
    environment = environment_of(settings, tmp_path)
    wanted = str(tmp_path / "secrets" / "small")
    assert environment["SMALL_KEY_FILE"] == wanted, "services run in another folder"
    (tmp_path / "streamer.toml").unlink()
    monkeypatch.setenv("STREAMER_UPSTREAMS", environment["STREAMER_UPSTREAMS"])
    assert load_settings().upstreams == settings.upstreams != {}
