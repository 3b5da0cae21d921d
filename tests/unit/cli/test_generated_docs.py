"""The pages that are generated from the code are up to date, and `--check` notices when not."""

from pathlib import Path

import pytest

from docs import generate as generate_docs
from streamer.scoring.registry import SCORER_NAMES
from streamer.settings.settings import Settings
from streamer.settings.sources import leaves, variable_name
from streamer.telemetry.catalogue import CATALOGUE


def test_the_pages_are_up_to_date() -> None:
    assert generate_docs.stale() == [], "run python -m docs.generate"


def test_check_notices_and_writing_cures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate_docs, "DOCS", tmp_path)
    assert generate_docs.generate(["--check"]) == 3
    assert generate_docs.generate([]) == 0
    assert generate_docs.generate(["--check"]) == 0
    (tmp_path / "cli.md").write_text("older")
    assert generate_docs.stale() == ["cli.md"]


def test_both_forms_of_a_switch_are_on_the_page() -> None:
    page = generate_docs.cli_page()
    assert "| `--signed-labels / --no-signed-labels` | Read only labels" in page
    assert "| `--keep-texts / --hashes-only` | " in page
    (propose,) = (line for line in page.splitlines() if line.startswith("| `--propose / --activate`"))
    assert propose.endswith(" Default: --activate. |")


def test_every_scorer_is_among_those_that_evaluate_compares() -> None:
    (option,) = (line for line in generate_docs.cli_page().splitlines() if line.startswith("| `--scorers "))
    assert f"compare: {', '.join(SCORER_NAMES)}, or" in option


def test_every_setting_and_metric_is_on_its_page() -> None:
    settings, metrics = generate_docs.settings_page(), generate_docs.metrics_page()
    for group, field, leaf in leaves(Settings):
        assert variable_name(group, field) in settings
        assert leaf.description
    for metric in CATALOGUE:
        assert f"`{metric.name}`" in metrics


def test_a_command_that_has_commands_of_its_own_is_on_the_page() -> None:
    _, section = generate_docs.cli_page().split("## `streamer console`\n")
    assert "| `--public-url URL` |" in section.split("\n## ")[0]
